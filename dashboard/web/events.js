// SPDX-License-Identifier: Apache-2.0
// What happened, and who did what: lines of the audit log, live. A user sees its own. Those of
// before this process, and of other schedulers, are asked for: the pool's store keeps them.
import { el, keyed, row, setAttr, setText } from "./dom.js";
import { moment, count } from "./format.js";
import { ask, look, now, state } from "./state.js";

const kShown = 2000;
const kAtOnce = 400;
const kKnown = new Set(["number", "time", "server", "who", "id", "role", "proof", "from", "what", "object", "allowed", "rule", "why"]);

function details(event) {
  const more = Object.entries(event)
    .filter(([name]) => !kKnown.has(name))
    .map(([name, value]) => (name === "text" ? value : `${name}: ${value}`));
  return [event.why, ...more].filter(Boolean).join(" · ");
}

/** The same line has the same key, wherever it came from. */
function keyOf(event) {
  const { number, ...rest } = event;
  return JSON.stringify(rest);
}

export function view(main) {
  let wanted = "";
  let only = "";
  let past = []; // of the store, newest first
  let older = null; // ask with it for older ones; null: there are none
  let asked = 0; // counts questions, so that a late answer to another one is not taken
  let open = true;
  const filter = el("input", {
    type: "search",
    placeholder: "who, what, lease …",
    "aria-label": "Filter events",
    oninput: () => {
      wanted = filter.value.toLowerCase();
      draw();
    },
  });
  const kind = el(
    "select",
    {
      "aria-label": "Which events",
      onchange: () => {
        only = kind.value;
        restart();
      },
    },
    el("option", { value: "" }, "all"),
    el("option", { value: "pool" }, "what the pool did"),
    el("option", { value: "people" }, "what people did"),
    el("option", { value: "refused" }, "what was refused"),
  );
  const until = el("input", {
    type: "datetime-local",
    "aria-label": "Until",
    title: "Show what happened until then",
    onchange: () => restart(),
  });
  const more = el("button", { type: "button", hidden: true, onclick: () => read() }, "Show older ones");
  const note = el("p", { class: "quiet", role: "status" });
  const number = el("span", { class: "count" });
  const body = el("tbody");
  const empty = el("p", { class: "empty" }, "Nothing has happened.");
  main.append(
    el("div", { class: "head-of-view" }, el("h1", {}, "Events"), number, kind, el("label", { class: "quiet" }, "until ", until), filter),
    el(
      "section",
      { class: "panel scrolls", tabindex: 0, role: "region", "aria-label": "Events" },
      el(
        "table",
        { class: "events" },
        el("thead", {}, row(["When", "Who", "Did", "What", "Rule", "More"], "th")),
        body,
      ),
      empty,
    ),
    el("div", { class: "actions" }, more),
    note,
  );
  look({ events: true });
  restart();

  function restart() {
    past = [];
    older = null;
    read();
  }
  async function read() {
    const question = new URLSearchParams({ limit: kAtOnce });
    if (only === "pool" || only === "people") question.set("kind", only);
    const chosen = until.value ? Date.parse(until.value) + 60_000 : 0;
    const before = older ?? chosen;
    if (before) question.set("before", before);
    asked += 1;
    const turn = asked;
    setAttr(more, "disabled", true);
    try {
      const answer = await ask(`events/past?${question}`);
      if (turn !== asked || !open) return;
      past.push(...answer.events);
      older = answer.before;
      setText(note, "");
    } catch (error) {
      if (turn !== asked || !open) return;
      older = null;
      setText(note, error.code === "unsupported" ? `These are of this process, since it started: ${error.message}.` : error.message);
    }
    setAttr(more, "disabled", false);
    draw();
  }
  /** Newest first, each once. Live ones that are older than what was read wait until that is. */
  function known() {
    const oldest = older !== null && past.length ? past[past.length - 1].time : "";
    const end = until.value ? new Date(Date.parse(until.value) + 60_000).toISOString() : "";
    const lines = new Map(past.map((event) => [keyOf(event), event]));
    for (const event of state.events) {
      if (event.time >= oldest && (!end || event.time < end)) lines.set(keyOf(event), event);
    }
    return [...lines].sort(([, a], [, b]) => (a.time < b.time ? 1 : a.time > b.time ? -1 : 0));
  }

  function makeRow(event) {
    const chip = event.allowed ? event.rule : `refused: ${event.rule}`;
    const at = Date.parse(event.time) / 1000;
    const node = row([
      el("time", { datetime: event.time, title: event.time }, moment(at, now())),
      event.who + (event.role && event.role !== "nobody" ? ` (${event.role})` : ""),
      event.what,
      event.object ?? "",
      el("span", { class: "chip", "data-state": event.allowed ? null : "refused" }, chip),
      details(event),
    ]);
    return node;
  }
  function draw() {
    const all = known();
    const rows = all
      .filter(([, event]) => {
        const pool = event.rule === "pool" && event.proof === "none";
        if (only === "pool" && !pool) return false;
        if (only === "people" && pool) return false;
        if (only === "refused" && event.allowed) return false;
        return !wanted || JSON.stringify(event).toLowerCase().includes(wanted);
      })
      .slice(0, kShown);
    setText(number, all.length ? count(all.length, "event", "events") : "");
    setAttr(empty, "hidden", rows.length !== 0);
    setAttr(more, "hidden", older === null || rows.length === kShown);
    keyed(body, rows, ([key]) => key, ([, event]) => makeRow(event), () => {});
  }
  return {
    update(changed) {
      if (changed.has("events")) draw();
    },
    end() {
      open = false;
    },
  };
}
