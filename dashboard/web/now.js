// SPDX-License-Identifier: Apache-2.0
// What there is now: classes in numbers, every server at a glance, the servers in sight with their
// slices, and the queue. Only servers in sight are asked for in full.
import { el, keyed, setAttr, setText, setVar } from "./dom.js";
import { count, gpus, percent } from "./format.js";
import { kCardGap, kCardHead, kGpuHeight, makeCard, serverState, slicesByGpu, updateCard } from "./gpus.js";
import { makeQueue, updateQueue } from "./queue.js";
import { look, state } from "./state.js";

const kCardWidth = 400; // about; cards share the line
const kNear = 400; // pixels around the window that are ready
const kMapFrom = 13; // servers from which on a map helps
let wanted = ""; // in the filter, over visits of the view

function makeClass() {
  const name = el("h3");
  const number = el("p", { class: "number" });
  const meter = el("div", { class: "meter", "aria-hidden": "true" }, el("i"), el("b"));
  const note = el("p", { class: "quiet" });
  const node = el("li", { class: "panel" }, name, number, meter, note);
  node.parts = { name, number, meter, note };
  return node;
}

/** What of all GPUs, or of a class, is given and busy. */
function sums(servers, of) {
  let all = 0;
  let given = 0;
  let busy = 0;
  let known = 0;
  for (const server of servers) {
    if (server.state || (of !== null && !server.classes.includes(of))) continue;
    server.given.forEach((part, at) => {
      all += 1;
      given += part / 100;
      if (server.busy[at] < 0) return;
      known += 1;
      busy += server.busy[at] / 100;
    });
  }
  return { all, given, busy: known === 0 ? null : busy };
}

function updateClass(node, { name, all, given, busy }) {
  setText(node.parts.name, name);
  setText(node.parts.number, `${gpus(given)} of ${gpus(all)}`);
  setVar(node.parts.meter, "--given", `${all ? (given / all) * 100 : 0}%`);
  setVar(node.parts.meter, "--busy", `${all && busy !== null ? (busy / all) * 100 : 0}%`);
  const free = `${gpus(Math.max(all - given, 0))} free`;
  setText(node.parts.note, busy === null ? free : `${free} · ${gpus(busy)} busy`);
}

function classRows(servers) {
  const classes = state.head?.classes ?? [];
  if (classes.length < 2)
    return [{ name: classes[0]?.name ?? "GPUs given", ...sums(servers, null) }];
  return classes.map((each) => ({
    ...sums(servers, each.name),
    name: each.name,
    all: each.gpus,
    given: each.given,
  }));
}

/** Cards in lines; only those near the window are there. */
class Cards {
  constructor() {
    this.node = el("div", { class: "cards" });
    this.servers = [];
    this.window = "";
  }

  layout() {
    const width = this.node.clientWidth || 800;
    const columns = Math.max(1, Math.floor((width + kCardGap) / (kCardWidth + kCardGap)));
    this.lines = [];
    let top = 0;
    for (let at = 0; at < this.servers.length; at += columns) {
      const servers = this.servers.slice(at, at + columns);
      const most = Math.max(1, ...servers.map((server) => server.given.length));
      const height = kCardHead + most * kGpuHeight + 12;
      this.lines.push({ top, height, servers });
      top += height + kCardGap;
    }
    this.columns = columns;
    this.node.style.height = `${top}px`;
  }

  /** The servers near the window. */
  visible() {
    const begin = -this.node.getBoundingClientRect().top - kNear;
    const end = begin + window.innerHeight + 2 * kNear;
    return this.lines.filter((line) => line.top + line.height >= begin && line.top <= end);
  }

  update() {
    if (!this.lines) return;
    const slices = slicesByGpu();
    const shown = this.visible().flatMap((line) =>
      line.servers.map((server, column) => ({ server, line, column })),
    );
    keyed(this.node, shown, (each) => each.server.n, makeCard, (node, { server, line, column }) => {
      setVar(node, "--top", `${line.top}px`);
      setVar(node, "--column", column);
      setVar(node, "--columns", this.columns);
      setVar(node, "--height", `${line.height}px`);
      updateCard(node, server, slices);
    });
    this.window = ranges(shown.map((each) => each.server.n));
  }

  scrollTo(server) {
    const line = this.lines.find((each) => each.servers.includes(server));
    if (!line) return;
    const top = this.node.getBoundingClientRect().top + window.scrollY + line.top - 80;
    window.scrollTo({ top });
  }
}

/** "1-20,31" of numbers. */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (const number of sorted) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts
    .slice(0, 60)
    .map(([from, to]) => (from === to ? from : `${from}-${to}`))
    .join(",");
}

function matches(server) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => {
    if (word === "free") return !serverState(server) && server.given.some((part) => part < 100);
    const text = [server.name, serverState(server), ...server.classes].join("\n").toLowerCase();
    return text.includes(word);
  });
}

export function view(main) {
  const classes = el("ul", { class: "classes" });
  const map = el("div", { class: "map", "aria-hidden": "true" });
  const filter = el("input", {
    type: "search",
    placeholder: "name, class, free, silent …",
    "aria-label": "Filter servers",
    value: wanted,
    oninput: () => {
      wanted = filter.value;
      refresh();
    },
  });
  const number = el("span", { class: "count" });
  const cards = new Cards();
  const queue = makeQueue();
  const none = el("p", { class: "empty", hidden: true }, "No server is like that.");
  main.append(
    el("h1", { class: "unseen" }, "Now"),
    classes,
    el(
      "div",
      { class: "now" },
      el(
        "div",
        {},
        el("div", { class: "bar-of-list" }, el("h2", {}, "Servers"), number, filter),
        map,
        none,
        cards.node,
      ),
      queue,
    ),
  );
  setAttr(queue, "hidden", true);

  function subscribe() {
    look({ servers: true, queue: true, window: cards.window });
  }
  function refresh() {
    const all = [...state.servers.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    cards.servers = all.filter(matches);
    setText(
      number,
      cards.servers.length === all.length
        ? String(all.length || "")
        : `${cards.servers.length} of ${count(all.length, "server", "servers")}`,
    );
    setAttr(none, "hidden", cards.servers.length !== 0 || all.length === 0);
    setAttr(queue, "hidden", !state.head?.pool);
    keyed(classes, classRows(all), (each) => each.name, makeClass, updateClass);
    setAttr(map, "hidden", all.length < kMapFrom);
    if (all.length >= kMapFrom) {
      keyed(map, cards.servers, (server) => server.n, makeCell, updateCell);
    }
    cards.layout();
    cards.update();
    subscribe();
  }
  function makeCell(server) {
    return el("i", { onclick: () => cards.scrollTo(state.servers.get(server.n)) });
  }
  function updateCell(node, server) {
    const given = server.given.reduce((sum, part) => sum + part, 0) / (server.given.length * 100 || 1);
    setVar(node, "--given", given.toFixed(2));
    setAttr(node, "data-state", serverState(server) || null);
    setAttr(node, "title", `${server.name}: ${percent(given)} given`);
  }
  let waiting = false;
  function moved() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      cards.layout();
      cards.update();
      subscribe();
    });
  }
  window.addEventListener("scroll", moved, { passive: true });
  window.addEventListener("resize", moved);
  refresh();
  return {
    update(changed) {
      if (changed.has("servers") || changed.has("head")) refresh();
      else if (changed.has("leases") || changed.has("details")) cards.update();
      if (changed.has("queue") || changed.has("head") || changed.has("time")) updateQueue(queue);
    },
    end() {
      window.removeEventListener("scroll", moved);
      window.removeEventListener("resize", moved);
    },
  };
}
