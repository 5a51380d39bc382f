// SPDX-License-Identifier: Apache-2.0
// What each account is entitled to, holds, lends and borrows, by class of GPUs; and its fair share:
// its quota, and by its weight a part of what nobody is entitled to.
import { el, keyed, setAttr, setText, setVar } from "./dom.js";
import { count, duration, gpus } from "./format.js";
import { look, state } from "./state.js";

/** Accounts with those below them, in order, and how deep they are. */
export function tree(accounts) {
  const below = new Map();
  for (const account of accounts) {
    if (!below.has(account.parent)) below.set(account.parent, []);
    below.get(account.parent).push(account);
  }
  const rows = [];
  const seen = new Set();
  function add(parent, depth) {
    for (const account of below.get(parent) ?? []) {
      if (seen.has(account.name)) continue;
      seen.add(account.name);
      rows.push({ account, depth });
      add(account.name, depth + 1);
    }
  }
  add("", 0);
  for (const account of accounts) {
    if (!seen.has(account.name)) rows.push({ account, depth: 0 });
  }
  return rows;
}

/** As the pool counts it: of what their parent is due, accounts have their quotas and divide the rest by weight. */
export function fairShare(account, of, accounts, capacity, depth = 0) {
  const parent = account.parent && depth < 20 ? accounts.find((each) => each.name === account.parent) : null;
  const whole = parent ? fairShare(parent, of, accounts, capacity, depth + 1) : capacity;
  const peers = accounts.filter((each) => each.parent === account.parent);
  const quota = (each) => each.classes.find((one) => one.name === of)?.quota ?? 0;
  const entitled = peers.reduce((sum, each) => sum + quota(each), 0);
  const weights = peers.reduce((sum, each) => sum + each.weight, 0);
  if (whole < entitled) return (whole * quota(account)) / entitled;
  return quota(account) + (weights > 0 ? ((whole - entitled) * account.weight) / weights : 0);
}

function makeRow() {
  const name = el("p", { class: "account-name" });
  const note = el("p", { class: "quiet" });
  const bar = el("div", { class: "account-bar" }, el("i"), el("b"), el("u"), el("s"));
  const cells = ["Entitled", "Holds", "Borrowed", "Lent", "Fair share"].map((term) => {
    const value = el("dd");
    return { value, node: el("div", {}, el("dt", {}, term), value) };
  });
  const numbers = el("dl", { class: "account-numbers" }, ...cells.map((cell) => cell.node));
  const node = el("li", { class: "account" }, el("div", {}, name, note), el("div", {}, bar, numbers));
  node.parts = { name, note, bar, values: cells.map((cell) => cell.value) };
  return node;
}

function updateRow(node, { account, depth, amount, fair, scale }) {
  const { name, note, bar, values } = node.parts;
  const quota = amount.quota ?? 0;
  const borrowed = Math.max(amount.used - quota, 0);
  setVar(node, "--depth", depth);
  setText(name, account.name);
  const words = [
    account.waiting ? `${count(account.waiting, "request waits", "requests wait")}` : "",
    amount.limit === null ? "" : `limit ${gpus(amount.limit)}`,
    account.usage_gpu_s > 0 ? `used ${duration(account.usage_gpu_s)} of GPU time lately` : "",
  ];
  setText(note, words.filter(Boolean).join(" · "));
  const part = (value) => `${Math.min(value / scale, 1) * 100}%`;
  setVar(bar, "--quota", part(quota));
  setVar(bar, "--used", part(Math.min(amount.used, quota)));
  setVar(bar, "--borrowed", part(borrowed));
  setVar(bar, "--lent", part(Math.min(amount.lent, quota)));
  setVar(bar, "--fair", part(fair));
  const label =
    `${account.name} is entitled to ${gpus(quota)}, holds ${gpus(amount.used)}, ` +
    `borrows ${gpus(borrowed)}, lends ${gpus(amount.lent)}`;
  setAttr(bar, "title", label);
  [amount.quota === null ? null : quota, amount.used, borrowed, amount.lent, fair].forEach((value, at) =>
    setText(values[at], value === null ? "all" : gpus(value)),
  );
}

export function view(main) {
  const place = el("div");
  const empty = el("p", { class: "empty", hidden: true }, "The policy names no accounts.");
  main.append(
    el("div", { class: "head-of-view" }, el("h1", {}, "Accounts")),
    el(
      "p",
      { class: "legend quiet" },
      el("i", { class: "key-quota" }), " entitled ",
      el("i", { class: "key-used" }), " holds ",
      el("i", { class: "key-borrowed" }), " borrowed from others ",
      el("i", { class: "key-lent" }), " lent to others ",
      el("i", { class: "key-fair" }), " fair share",
    ),
    empty,
    place,
  );
  look({ accounts: true });
  return {
    update(changed) {
      if (!changed.has("accounts") && !changed.has("head")) return;
      const accounts = [...state.accounts.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
      setAttr(empty, "hidden", accounts.length !== 0);
      const rows = tree(accounts);
      const classes = (state.head?.classes ?? []).filter((each) =>
        accounts.some((account) => account.classes.some((one) => one.name === each.name)),
      );
      keyed(
        place,
        classes,
        (each) => each.name,
        (each) => {
          const list = el("ul", { class: "accounts" });
          const title = el("h2", {}, each.name);
          const note = el("span", { class: "count" });
          const node = el("section", { class: "panel class-of-accounts" }, el("header", {}, title, note), list);
          node.parts = { list, note };
          return node;
        },
        (node, each) => {
          setText(node.parts.note, `${gpus(each.given)} of ${gpus(each.gpus)} given`);
          const shown = rows
            .map(({ account, depth }) => ({
              account,
              depth,
              amount: account.classes.find((one) => one.name === each.name),
              fair: fairShare(account, each.name, accounts, each.gpus),
            }))
            .filter((entry) => entry.amount);
          const scale = Math.max(1, ...shown.map((entry) => Math.max(entry.amount.quota ?? 0, entry.amount.used, entry.fair)));
          keyed(
            node.parts.list,
            shown.map((entry) => ({ ...entry, scale })),
            (entry) => entry.account.name,
            makeRow,
            updateRow,
          );
        },
      );
    },
    end() {},
  };
}
