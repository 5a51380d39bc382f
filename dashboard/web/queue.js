// SPDX-License-Identifier: Apache-2.0
// The queue: who waits, for what, why, and until when.
import { el, keyed, setAttr, setText } from "./dom.js";
import { colour, duration, gpus, moment, share } from "./format.js";
import { now, state } from "./state.js";

export const kReasons = {
  Resources: "no room yet",
  Priority: "others go first",
  Quota: "its account's quota is used",
  UserLimit: "its user's limit",
  Reservation: "reserved for others",
  Schedule: "not at this time",
  Fragmented: "room, but in pieces",
  ServersDown: "servers are silent",
  Account: "its account is gone",
};

function makeRow() {
  const place = el("span", { class: "place" });
  const who = el("span", { class: "who-waits" });
  const what = el("span", { class: "what" });
  const why = el("p", { class: "why" });
  const when = el("p", { class: "quiet when" });
  const link = el("a", { class: "waiter" }, place, el("div", {}, el("p", {}, who, " ", what), why, when));
  const node = el("li", {}, link);
  node.parts = { link, place, who, what, why, when };
  return node;
}

function startText(request) {
  const from = request.start_from_at;
  const to = request.start_to_at;
  if (from === null && to === null) return "";
  if (from !== null && to !== null && to - from > 60)
    return `start between ${moment(from, now())} and ${moment(to, now())}`;
  return `start about ${moment(from ?? to, now())}`;
}

function updateRow(node, request) {
  const { link, place, who, what, why, when } = node.parts;
  setText(place, request.place === null ? "…" : String(request.place));
  setAttr(link, "href", `#/queue/${request.id}`);
  setText(who, request.owner || request.account || `request ${request.id}`);
  setAttr(who, "data-colour", colour(request.owner || request.account || ""));
  setText(what, `${share(request.slices, request.share)} ${request.queue || "GPU"}`);
  const reason = kReasons[request.reason] ?? request.reason ?? request.state;
  setText(why, request.numbers ? `${reason}: ${request.numbers}` : reason);
  const waited = `waits ${duration(now() - request.submitted_at)}`;
  const start = startText(request);
  const absent = request.present ? "" : "its client is away";
  setText(when, [waited, start, request.start_why, absent].filter(Boolean).join(" · "));
}

export function makeQueue() {
  const title = el("h2", { id: "queue-title" }, "Queue");
  const count = el("span", { class: "count" });
  const list = el("ol", { class: "queue" });
  const empty = el("p", { class: "empty" }, "Nobody waits.");
  const node = el(
    "section",
    { class: "panel queue-panel", "aria-labelledby": "queue-title" },
    el("header", {}, title, count),
    empty,
    list,
  );
  node.parts = { list, count, empty };
  return node;
}

export function updateQueue(node, limit = 200) {
  const rows = [...state.queue.values()].sort((a, b) => a.rank - b.rank).slice(0, limit);
  const waiting = state.head?.waiting ?? 0;
  setText(node.parts.count, waiting ? waiting.toLocaleString() : "");
  setAttr(node.parts.empty, "hidden", waiting !== 0);
  keyed(node.parts.list, rows, (row) => row.id, makeRow, updateRow);
}

/** One request that waits, in full. */
export function requestFacts(request) {
  return [
    ["Place", request.place === null ? "not known yet" : `${request.place} of ${request.of}`],
    ["Queue", request.queue],
    ["Account", request.account],
    ["Class of use", request.user_class],
    ["Slices", share(request.slices, request.share)],
    ["GPUs wanted", request.filter || "any"],
    ["Program", request.program],
    ["Host", request.host],
    ["Waits", duration(now() - request.submitted_at)],
    ["Reason", kReasons[request.reason] ?? request.reason],
    ["In numbers", request.numbers],
    ["Start", startText(request)],
    ["Then", request.start_why],
    ["GPUs in all", gpus(request.slices * request.share)],
  ];
}
