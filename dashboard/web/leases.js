// SPDX-License-Identifier: Apache-2.0
// All leases, and one of them in full: what it asked and had, memory, waits, what its program does
// over the network, and why it may be slow. Whoever may, ends it or changes its terms here.
import { attempt, field, question } from "./dialog.js";
import { el, facts, keyed, row, setAttr, setText, setVar } from "./dom.js";
import { bytes, colour, count, duration, gpus, moment, percent, share } from "./format.js";
import { answered, ask, look, now, state } from "./state.js";

const kSamples = 300; // of the small charts: five minutes
const kMoves = {
  Park: "Its GPU memory goes to its server's memory, until it works again.",
  Wake: "Its GPU memory comes back, when its part of the GPU is free.",
};

export function leaseState(lease) {
  if (lease.paused) return "paused";
  if (lease.state === "ending") return "ending";
  if (lease.standing !== "granted") return lease.standing;
  if (lease.idle_since_at !== null) return "idle";
  return lease.state;
}

export function asked(lease) {
  return lease.slices.reduce((sum, slice) => sum + slice.share, 0);
}

function where(lease) {
  return [...new Set(lease.slices.map((slice) => slice.server))].join(", ");
}

export function view(main, words) {
  return words.length === 0 || words[0] === "" ? list(main) : one(main, Number(words[0]));
}

function standing(lease) {
  if (lease.standing === "granted") return "";
  const since = lease.standing_since_at;
  return since === null ? lease.standing : `${lease.standing} since ${moment(since, now())}`;
}

// ---- the list ----

function list(main) {
  let next = null;
  let turn = 0;
  const search = el("input", {
    type: "search",
    placeholder: "owner, account, program, number …",
    "aria-label": "Search leases",
    oninput: () => refresh(),
  });
  const own = el("input", { type: "checkbox", id: "own", onchange: () => refresh() });
  const body = el("tbody");
  const more = el("button", { type: "button", onclick: () => refresh(true), hidden: true }, "More");
  const empty = el("p", { class: "empty", hidden: true }, "No lease is like that.");
  main.append(
    el(
      "div",
      { class: "head-of-view" },
      el("h1", {}, "Leases"),
      search,
      el("label", { for: "own" }, own, " only mine"),
    ),
    el(
      "div",
      { class: "panel scrolls", tabindex: 0, role: "region", "aria-label": "Leases" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          row(["Lease", "State", "Owner", "Account", "Slices", "Had", "Where", "Age", "Program"], "th"),
        ),
        body,
      ),
      empty,
      more,
    ),
  );
  look({});

  function makeRow(lease) {
    const link = el("a", { href: `#/leases/${lease.id}` }, String(lease.id));
    const cells = Array.from({ length: 8 }, () => el("td"));
    const node = el("tr", {}, el("td", {}, link), ...cells);
    node.parts = cells;
    return node;
  }
  function updateRow(node, lease) {
    const values = [
      leaseState(lease),
      lease.owner || "–",
      lease.account || "–",
      `${share(lease.slices.length, lease.slices[0]?.share ?? 0)} ${lease.gpu_class}`,
      lease.use.had === null ? "–" : gpus(lease.use.had),
      where(lease),
      duration(now() - lease.granted_at),
      lease.program || "–",
    ];
    values.forEach((value, at) => setText(node.parts[at], value));
  }
  let rows = [];
  async function refresh(further = false) {
    const mine = (turn += 1);
    const query = new URLSearchParams({ q: search.value, limit: 100 });
    if (own.checked) query.set("own", 1);
    if (further && next !== null) query.set("after", next);
    try {
      const answer = await ask(`leases?${query}`);
      if (mine !== turn) return;
      rows = further ? [...rows, ...answer.leases] : answer.leases;
      next = answer.next;
    } catch {
      return; // the line at the top says why
    }
    keyed(body, rows, (lease) => lease.id, makeRow, updateRow);
    setAttr(empty, "hidden", rows.length !== 0);
    setAttr(more, "hidden", next === null);
  }
  refresh();
  const timer = setInterval(() => {
    if (rows.length <= 100) refresh();
  }, 4000);
  return { update() {}, end: () => clearInterval(timer) };
}

// ---- one lease ----

/** What slows a lease down, in the order of weight; from what it does now. */
export function reasons(lease, at) {
  const found = [];
  const use = lease.use;
  const want = asked(lease);
  if (lease.paused) found.push("It is paused: it gets no turns until it is resumed.");
  if (lease.standing === "parked")
    found.push(
      "It is parked: its memory is in its server's memory, and its part of the GPU is others'. " +
        "Its next call that needs the GPU wakes it.",
    );
  else if (lease.standing === "waking") found.push("It wakes, and waits for its part of the GPU to be free.");
  else if (lease.standing !== "granted") found.push("Its memory is being copied, so its programs wait.");
  if (lease.reclaimed)
    found.push("Others are entitled to what it holds, so the pool takes it back step by step.");
  if (lease.shrunk) found.push("Its share was made smaller, so that others have what is theirs.");
  if (lease.state === "granted" && lease.processes === 0)
    found.push("No program is attached to it, so it does nothing.");
  else if (lease.idle_since_at !== null && lease.standing === "granted")
    found.push(
      `Its program has given the GPU no work for ${duration(at - lease.idle_since_at)}: it is busy elsewhere, ` +
        "with data or on its processor.",
    );
  if (use.waits !== null && use.waits > 0.1)
    found.push(
      `It waits for its turn ${percent(Math.min(use.waits / Math.max(lease.slices.length, 1), 1))} of the time, ` +
        `because others use the same GPU. ${lease.capped ? "It is capped to its share. " : ""}` +
        "A larger share would help.",
    );
  if (use.awaits !== undefined && use.awaits !== null && use.awaits > 0.25)
    found.push(
      `Its program waits for answers over the network ${percent(Math.min(use.awaits, 1))} of the time` +
        (use.round_trips_s ? ` (${use.round_trips_s.toLocaleString()} round trips a second). ` : ". ") +
        "Fewer synchronous calls, or a shorter line, would help.",
    );
  if (use.in_bytes_s > 200e6 || use.out_bytes_s > 200e6)
    found.push(
      `It moves ${bytes(Math.max(use.in_bytes_s, use.out_bytes_s))} a second over the network. ` +
        "Data that stays on the GPU costs nothing.",
    );
  if (use.had !== null && use.had > want * 0.97 && want > 0 && found.length === 0)
    found.push(
      lease.capped
        ? "It uses its whole share and is capped to it. More comes only with another share."
        : "It uses its whole share.",
    );
  const promised = lease.slices.reduce((sum, slice) => sum + slice.memory_bytes, 0);
  if (promised > 0 && use.memory_used_bytes > promised * 0.95)
    found.push("Its memory is nearly full, so allocations may fail or wait.");
  return found;
}

/** A small chart of the last minutes, 0 to `top`. */
class Trace {
  constructor(label) {
    this.values = [];
    const space = "http://www.w3.org/2000/svg";
    this.svg = document.createElementNS(space, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${kSamples} 60`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("class", "trace");
    this.svg.setAttribute("role", "img");
    this.label = label;
    this.area = document.createElementNS(space, "path");
    this.line = document.createElementNS(space, "line");
    this.svg.append(this.area, this.line);
  }
  add(value, top, mark = null) {
    this.values.push(value);
    if (this.values.length > kSamples) this.values.shift();
    const most = Math.max(top, ...this.values.filter((each) => each !== null)) || 1;
    const first = kSamples - this.values.length;
    const y = (each) => 58 - (Math.max(each ?? 0, 0) / most) * 54;
    const points = this.values.map((each, at) => `L${first + at + 1} ${y(each).toFixed(1)}`);
    this.area.setAttribute("d", `M${first + 1} 60 ${points.join(" ")} L${kSamples} 60 Z`);
    const at = mark === null ? -10 : y(mark);
    for (const [name, where] of [["x1", 0], ["x2", kSamples], ["y1", at], ["y2", at]])
      this.line.setAttribute(name, where);
    const seconds = this.values.length;
    this.svg.setAttribute("aria-label", `${this.label}, the last ${seconds} seconds`);
  }
}

function one(main, id) {
  const title = el("h1");
  const chip = el("span", { class: "chip" });
  const change = el("button", { type: "button", onclick: () => changeTerms() }, "Change terms");
  const release = el("button", { type: "button", class: "danger", onclick: () => end() }, "Release");
  const move = el("button", { type: "button", onclick: () => parkOrWake() }, "Park");
  const had = el("p", { class: "number" });
  const hadNote = el("p", { class: "quiet" });
  const memory = el("p", { class: "number" });
  const memoryNote = el("p", { class: "quiet" });
  const waits = el("p", { class: "number" });
  const waitsNote = el("p", { class: "quiet" });
  const net = el("p", { class: "number" });
  const netNote = el("p", { class: "quiet" });
  const hadTrace = new Trace("GPU time had");
  const memoryTrace = new Trace("memory used");
  const why = el("ul", { class: "reasons" });
  const life = el("div", { class: "life" });
  const more = el("div");
  const slices = el("tbody");
  const block = (name, ...children) => el("section", { class: "panel" }, el("h3", {}, name), ...children);
  const content = el(
    "div",
    { class: "columns narrow", hidden: true },
    el("section", { class: "panel wide" }, el("h3", {}, "Its life"), life),
    block("GPU time, of what it asked", had, hadNote, hadTrace.svg),
    block("Memory", memory, memoryNote, memoryTrace.svg),
    block("Waits for turns", waits, waitsNote),
    block("Over the network", net, netNote),
    el("section", { class: "panel wide" }, el("h2", {}, "Why is it slow?"), why),
    el(
      "section",
      { class: "panel wide scrolls", tabindex: 0, role: "region", "aria-label": "Slices" },
      el("h2", {}, "Slices"),
      el(
        "table",
        {},
        el("thead", {}, row(["Server", "GPU", "Share", "Memory"], "th")),
        slices,
      ),
    ),
    el("section", { class: "panel wide" }, el("h2", {}, "Details"), more),
  );
  const gone = el("p", { class: "empty", role: "status" }, "Looking …");
  const past = el("section", { class: "panel", hidden: true }, el("h2", {}, "What it had"));
  main.append(
    el(
      "div",
      { class: "head-of-view" },
      title,
      chip,
      el("div", { class: "actions" }, move, change, release),
    ),
    gone,
    past,
    content,
  );
  setText(title, `Lease ${id}`);
  look({ lease: id });
  let heard = false;
  let tries = 0;
  let timer = 0;

  /** The history has the sums of one that has ended, some seconds later. */
  async function remember() {
    tries += 1;
    let had = null;
    try {
      had = await ask(`leases/${id}/totals`);
    } catch (error) {
      if (error.code !== "unsupported") setText(gone, `Lease ${id} does not live now: ${error.message}.`);
    }
    if (state.leases.has(id)) return;
    if (had) drawPast(had);
    if (had?.to_at === null && tries < 10) timer = setTimeout(remember, 3000);
  }
  function drawPast(had) {
    setText(title, had.owner ? `Lease ${id} of ${had.owner}` : `Lease ${id}`);
    setText(gone, had.to_at === null ? "It ended just now; these are its sums so far." : "");
    setText(chip, "ended");
    setAttr(chip, "data-state", "ended");
    const gpuTime = (s) => (s < 360 ? `${Number(s.toFixed(1))} GPU seconds` : `${gpus(s / 3600)} GPU hours`);
    const part = (some, of) => (of > 0 ? ` (${percent(some / of)})` : "");
    const shown = facts([
      ["From", moment(had.from_at, now())],
      ["To", had.to_at === null ? "" : moment(had.to_at, now())],
      ["Account", had.account],
      ["Class of use", had.user_class],
      ["GPU class", had.gpu_class],
      ["Servers", String(had.parts)],
      ["Waited for its grant", duration(had.waited_s)],
      ["Held", duration(had.held_s)],
      ["Asked", gpuTime(had.asked_gpu_s)],
      ["Given", gpuTime(had.granted_gpu_s)],
      ["Used", gpuTime(had.used_gpu_s) + part(had.used_gpu_s, had.granted_gpu_s)],
      ["Idle", duration(had.idle_s) + part(had.idle_s, had.held_s)],
      ["Waited for turns", duration(had.waited_for_turns_s)],
      ["Memory, on the mean", had.held_s > 0 ? `${bytes(had.memory_used_byte_s / had.held_s)} of ${bytes(had.memory_held_byte_s / had.held_s)}` : ""],
    ]);
    past.replaceChildren(past.firstElementChild, shown);
    setAttr(past, "hidden", false);
  }

  function mine(lease) {
    return lease.owner !== "" && lease.owner === state.me.name;
  }
  /** Parked or not: it can be undone, and the lease's state says what comes of it. */
  async function parkOrWake() {
    const wakes = move.textContent === "Wake";
    const told = `Lease ${id} is to ${wakes ? "wake" : "be parked"}. If its server refuses, Events says why.`;
    await attempt(told, () =>
      ask(`leases/${id}/${wakes ? "wake" : "park"}`, { method: "POST", body: {} }),
    );
  }
  async function end() {
    const values = await question({
      title: `Release lease ${id}?`,
      text: "Its programs end: their next CUDA call fails. What they have not saved is lost.",
      fields: [field("Why (its holder reads it)", el("input", { name: "why", maxlength: 200 }))],
      act: "Release",
      danger: true,
    });
    if (!values) return;
    await attempt(`Lease ${id} was released.`, () =>
      ask(`leases/${id}/release`, { method: "POST", body: { why: values.why } }),
    );
  }
  async function changeTerms() {
    const lease = state.leases.get(id);
    if (!lease) return;
    const policy = el(
      "select",
      { name: "policy" },
      el("option", { value: "lend", selected: !lease.capped }, "also idle time of others"),
      el("option", { value: "cap", selected: lease.capped }, "never more than its share"),
    );
    const values = await question({
      title: `Terms of lease ${id}`,
      fields: [
        field(
          "Share of each GPU",
          el("input", { name: "share", type: "number", min: 0.01, max: 1, step: 0.01, value: lease.slices[0]?.share ?? "" }),
        ),
        field("It gets", policy),
        field(
          "Priority",
          el("input", { name: "priority", type: "number", min: -100, max: 100, step: 1, value: lease.priority }),
        ),
      ],
      act: "Change",
    });
    if (!values) return;
    const body = { policy: values.policy, priority: Number(values.priority) };
    if (Number(values.share) !== lease.slices[0]?.share) body.share = Number(values.share);
    await attempt(`The terms of lease ${id} were changed.`, () =>
      ask(`leases/${id}/change`, { method: "POST", body }),
    );
  }

  function drawLife(lease) {
    const end = lease.ends_at ?? Math.max(now(), lease.granted_at + 60);
    const begin = lease.granted_at - lease.queued_s;
    const whole = Math.max(end - begin, 1);
    const steps = [
      ["queued", lease.queued_s, `waited ${duration(lease.queued_s)}`],
      ["ran", Math.max(now() - lease.granted_at, 0), `holds for ${duration(now() - lease.granted_at)}`],
      ["left", lease.ends_at === null ? 0 : lease.ends_at - now(), lease.ends_at === null ? "" : `ends at ${moment(lease.ends_at, now())}`],
    ];
    keyed(
      life,
      steps.filter(([, seconds]) => seconds > 0),
      ([name]) => name,
      ([name]) => el("div", { class: `life-${name}` }, el("span")),
      (node, [, seconds, text]) => {
        setVar(node, "--part", `${Math.max((seconds / whole) * 100, 1)}%`);
        setText(node.firstElementChild, text);
        setAttr(node, "title", text);
      },
    );
  }

  function draw(lease, ticked) {
    const use = lease.use;
    const want = asked(lease);
    const promised = lease.slices.reduce((sum, slice) => sum + slice.memory_bytes, 0);
    setText(title, lease.owner ? `Lease ${id} of ${lease.owner}` : `Lease ${id}`);
    const words = leaseState(lease);
    setText(chip, words);
    setAttr(chip, "data-state", words);
    const rules = state.me.may.manage || (state.me.may.hold && mine(lease));
    setAttr(change, "hidden", !rules);
    setAttr(move, "hidden", !rules || lease.state === "ending");
    setText(move, lease.standing === "granted" ? "Park" : "Wake");
    setAttr(move, "title", kMoves[move.textContent]);
    setAttr(release, "hidden", !rules);
    setAttr(life, "data-colour", colour(lease.owner || lease.account || String(id)));
    drawLife(lease);
    setText(had, use.had === null ? `– of ${gpus(want)}` : `${gpus(use.had)} of ${gpus(want)}`);
    setText(
      hadNote,
      use.used_s === null
        ? "Not counted: it has whole GPUs, or is packed."
        : `${duration(use.used_s)} of GPU time so far, idle for ${duration(use.idle_s)}`,
    );
    setText(memory, `${bytes(use.memory_used_bytes)} of ${bytes(promised)}`);
    const parked = use.memory_parked_bytes;
    setText(
      memoryNote,
      [
        promised ? `${percent(use.memory_used_bytes / promised)} of what is promised` : "",
        parked ? `${bytes(parked)} of it parked in its server's memory` : "",
      ]
        .filter(Boolean)
        .join("; "),
    );
    setText(waits, use.waits === null ? "–" : percent(use.waits / Math.max(lease.slices.length, 1)));
    setText(
      waitsNote,
      use.waited_s === null ? "Not counted." : `${duration(use.waited_s)} so far, with work but without a turn`,
    );
    if (use.round_trips === undefined) {
      setText(net, "–");
      setText(netNote, "Its server is asked for it.");
    } else {
      const rate = use.round_trips_s;
      setText(net, rate === null ? "–" : `${rate.toLocaleString()} round trips/s`);
      setText(
        netNote,
        `${use.round_trips.toLocaleString()} round trips and ${use.calls.toLocaleString()} calls; ` +
          `${bytes(use.bytes_in)} in, ${bytes(use.bytes_out)} out` +
          (lease.links ? `; by ${lease.links}` : ""),
      );
    }
    if (ticked) {
      hadTrace.add(use.had, want, want);
      memoryTrace.add(use.memory_used_bytes, promised, promised);
    }
    const causes = reasons(lease, now());
    keyed(
      why,
      causes.length ? causes : ["Nothing here slows it down."],
      (text) => text,
      (text) => el("li", {}, text),
      () => {},
    );
    keyed(
      slices,
      lease.slices.map((slice, at) => ({ ...slice, at })),
      (slice) => slice.at,
      (slice) =>
        row([
          el("a", { href: `#/servers/${encodeURIComponent(slice.server)}` }, slice.server),
          String(slice.gpu),
          el("span"),
          el("span"),
        ]),
      (node, slice) => {
        setText(node.children[2], gpus(slice.share));
        setText(node.children[3], bytes(slice.memory_bytes));
      },
    );
    const shown = facts([
      ["Owner", lease.owner],
      ["Account", lease.account],
      ["Class of use", lease.user_class],
      ["GPU class", lease.gpu_class],
      ["Program", lease.program],
      ["Host", lease.host],
      ["Processes", String(lease.processes)],
      ["Priority", String(lease.priority)],
      ["Beyond its share", lease.capped ? "never" : "idle time of others"],
      ["On its GPUs", standing(lease)],
      ["Parked so far", lease.parks ? count(lease.parks, "time", "times") : ""],
      ["Granted", moment(lease.granted_at, now())],
      ["Granted by", lease.local ? "its server" : "the pool"],
      ["Ends at the latest", lease.ends_at === null ? "no limit" : moment(lease.ends_at, now())],
    ]);
    if (!more.firstChild || more.textContent !== shown.textContent) more.replaceChildren(shown);
  }

  return {
    update(changed) {
      const lease = state.leases.get(id);
      heard = heard || (changed.has("time") && answered());
      setAttr(content, "hidden", !lease);
      setAttr(gone, "hidden", Boolean(lease));
      if (!lease) {
        if (!heard) setText(gone, "Looking …");
        else if (tries === 0) {
          setText(gone, `There is no lease ${id} any more.`);
          remember();
        }
        for (const button of [move, change, release]) setAttr(button, "hidden", true);
        return;
      }
      tries = 0;
      setAttr(past, "hidden", true);
      draw(lease, changed.has("time"));
    },
    end: () => clearTimeout(timer),
  };
}
