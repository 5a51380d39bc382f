// SPDX-License-Identifier: Apache-2.0
// The page: who is here, which view is shown, and the line at the top that says how things are.
// A view is a function that fills <main> and returns { update(changed), end() }.
import { toast } from "./dialog.js";
import { el, setAttr, setText } from "./dom.js";
import { ask, listen, state, stop } from "./state.js";
import * as now from "./now.js";

// `may`: who does not see this has no view of it. `pool`: a lone server has none.
const kViews = [
  { name: "now", title: "Now", load: async () => now },
  { name: "leases", title: "Leases", load: () => import("./leases.js") },
  { name: "queue", title: "Queue", load: () => import("./waiting.js"), pool: true },
  { name: "accounts", title: "Accounts", load: () => import("./accounts.js"), pool: true },
  { name: "servers", title: "Servers", load: () => import("./servers.js") },
  { name: "history", title: "History", load: () => import("./history.js") },
  { name: "events", title: "Events", load: () => import("./events.js") },
  { name: "policy", title: "Policy", load: () => import("./policy.js"), pool: true, may: "operate" },
];

let shown = null;
let turn = 0;

const element = (id) => document.getElementById(id);

function views() {
  return kViews.filter(
    (view) => (!view.pool || state.head?.pool !== false) && (!view.may || state.me.may[view.may]),
  );
}

function place() {
  const words = location.hash.replace(/^#\/?/, "").split("/");
  return { name: words[0] || "now", words: words.slice(1).map(decode) };
}

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

function drawViews() {
  const current = place().name;
  const links = views().map((view) =>
    el(
      "a",
      { href: `#/${view.name}`, "aria-current": view.name === current ? "page" : null },
      view.title,
    ),
  );
  const nav = element("views");
  const drawn = [...nav.children].map((link) => link.outerHTML).join();
  if (drawn !== links.map((link) => link.outerHTML).join()) nav.replaceChildren(...links);
}

async function show({ focus = false } = {}) {
  const mine = (turn += 1);
  const { name, words } = place();
  const view = views().find((each) => each.name === name);
  shown?.end();
  shown = null;
  const main = element("main");
  drawViews();
  if (!view) {
    main.replaceChildren(
      el("h1", {}, "Nothing here"),
      el("p", { class: "empty" }, "There is no such view, or not for you."),
    );
    return;
  }
  try {
    const module = await view.load();
    if (mine !== turn) return;
    main.replaceChildren();
    window.scrollTo({ top: 0 });
    shown = module.view(main, words);
    shown.update(new Set(["head", "servers", "details", "leases", "queue", "accounts", "events"]));
  } catch (error) {
    toast(error.message, true);
    return;
  }
  setText(document.querySelector("title"), `${view.title} · ${state.head?.name ?? "Tendril"}`);
  if (focus) main.focus({ preventScroll: true });
}

function drawTop() {
  const head = state.head;
  setText(element("pool-name"), head?.name || "Tendril");
  const live = element("live");
  setText(live, state.connected ? "live" : "connecting");
  setAttr(live, "data-on", state.connected && !state.trouble);
  let trouble = state.trouble;
  if (!trouble && head?.pool && !head.planning) trouble = `Nothing is planned: ${head.planning_why}`;
  if (!trouble && head?.store_trouble) trouble = `The store: ${head.store_trouble}`;
  setText(element("trouble"), trouble);
  setAttr(element("trouble"), "hidden", !trouble);
}

function signIn(note) {
  stop();
  shown?.end();
  shown = null;
  element("views").replaceChildren();
  const input = el("input", {
    type: "password",
    name: "token",
    autocomplete: "off",
    required: true,
    "aria-label": "Token or pass",
  });
  const form = el(
    "form",
    { class: "panel sign-in" },
    el("h1", {}, "Sign in"),
    el(
      "p",
      {},
      state.me?.mode === "secret"
        ? "Say the server's token, or open the address that `tendril page` shows."
        : "Open the address that `tendril page` shows, or paste the pass at its end.",
    ),
    note ? el("p", { class: "trouble", role: "alert" }, note) : null,
    input,
    el("button", { type: "submit", class: "main" }, "Sign in"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await ask("session", { method: "POST", body: { token: input.value.trim() } });
      await begin();
    } catch (error) {
      signIn(error.message);
    }
  });
  element("main").replaceChildren(form);
  input.focus();
}

/** An address of `tendril page` carries a pass that works once; it does not stay in the history. */
async function usePass() {
  const found = /^#pass=([0-9a-f]+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", "/#/now");
  try {
    await ask("session", { method: "POST", body: { token: found[1] } });
    return "";
  } catch (error) {
    return error.message;
  }
}

async function begin(note = "") {
  state.me = await ask("me");
  if (!state.me.signed_in) {
    signIn(note);
    return;
  }
  const role = state.me.role === state.me.name ? "" : ` (${state.me.role})`;
  setText(element("user"), `${state.me.name}${role}`);
  setAttr(element("sign-out"), "hidden", !state.me.session);
  await show();
}

function theme(next) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const wanted = next ?? (current === "dark" ? "light" : "dark");
  document.documentElement.dataset.theme = wanted;
  localStorage.setItem("theme", wanted);
}

function start() {
  const kept = localStorage.getItem("theme");
  if (kept === "dark" || kept === "light") theme(kept);
  element("theme").addEventListener("click", () => theme());
  element("sign-out").addEventListener("click", async () => {
    await ask("session", { method: "DELETE" });
    await begin();
  });
  window.addEventListener("hashchange", async () => {
    if (location.hash.startsWith("#pass=")) begin(await usePass());
    else if (state.me?.signed_in) show({ focus: true });
  });
  let pool = null;
  listen((changed) => {
    drawTop();
    if (changed.has("signed-out")) begin("Your session has ended.");
    if (changed.has("head") && state.head.pool !== pool) {
      pool = state.head.pool;
      drawViews();
    }
    shown?.update(changed);
  });
  usePass()
    .then(begin)
    .catch((error) => toast(error.message, true));
}

start();
