// SPDX-License-Identifier: Apache-2.0
// What happened, and who did what: the newest lines of the audit log, live. A user sees its own.
import { el, keyed, row, setAttr, setText } from "./dom.js";
import { moment, count } from "./format.js";
import { look, now, state } from "./state.js";

const kShown = 400;
const kKnown = new Set(["number", "time", "server", "who", "id", "role", "proof", "from", "what", "object", "allowed", "rule", "why"]);

function details(event) {
  const more = Object.entries(event)
    .filter(([name]) => !kKnown.has(name))
    .map(([name, value]) => (name === "text" ? value : `${name}: ${value}`));
  return [event.why, ...more].filter(Boolean).join(" · ");
}

export function view(main) {
  let wanted = "";
  let only = "";
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
        draw();
      },
    },
    el("option", { value: "" }, "all"),
    el("option", { value: "pool" }, "what the pool did"),
    el("option", { value: "people" }, "what people did"),
    el("option", { value: "refused" }, "what was refused"),
  );
  const number = el("span", { class: "count" });
  const body = el("tbody");
  const empty = el("p", { class: "empty" }, "Nothing has happened since this process started.");
  main.append(
    el("div", { class: "head-of-view" }, el("h1", {}, "Events"), number, kind, filter),
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
  );
  look({ events: true });

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
    const rows = state.events
      .filter((event) => {
        const pool = event.rule === "pool" && event.proof === "none";
        if (only === "pool" && !pool) return false;
        if (only === "people" && pool) return false;
        if (only === "refused" && event.allowed) return false;
        return !wanted || JSON.stringify(event).toLowerCase().includes(wanted);
      })
      .slice(0, kShown);
    setText(number, state.events.length ? count(state.events.length, "event", "events") : "");
    setAttr(empty, "hidden", state.events.length !== 0);
    keyed(body, rows, (event) => event.number, makeRow, () => {});
  }
  return {
    update(changed) {
      if (changed.has("events")) draw();
    },
    end() {},
  };
}
