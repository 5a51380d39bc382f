// SPDX-License-Identifier: Apache-2.0
// What was: GPUs, utilisation, memory and waits over any range, in sum or by name, as charts and as
// a table of the range's sums. Dygraphs draws, which is part of the program if it was there at
// build time. Its legend is not used, because it writes markup; ours is text.
import { el, keyed, setAttr, setText } from "./dom.js";
import { bytes, colour, count, duration, gpus, moment, percent } from "./format.js";
import { ask, look, now, state } from "./state.js";

const kRanges = [
  ["1 hour", 3600],
  ["6 hours", 6 * 3600],
  ["1 day", 86400],
  ["7 days", 7 * 86400],
  ["30 days", 30 * 86400],
  ["1 year", 365 * 86400],
];
const kCharts = [
  { name: "gpus", title: "GPUs", show: gpus },
  { name: "utilisation", title: "Utilisation", show: percent, most: 1 },
  { name: "memory", title: "Memory", show: bytes, binary: true },
  { name: "waiting", title: "Waiting in the queue", show: gpus },
  { name: "waits", title: "How long grants waited", show: waited },
];
// `may`: others' names are for those who may see them.
const kBy = [
  { value: "", title: "in sum" },
  { value: "gpu_class", title: "by class of GPU" },
  { value: "account", title: "by account" },
  { value: "user_class", title: "by class of use" },
  { value: "server", title: "by server" },
  { value: "user", title: "by user", may: "see_all" },
  { value: "lease", title: "by lease" },
];
const kLines = 9; // the palette has that many colours beside the grey of the others
const kGrey = 8;
const kMeanings = {
  capacity: "there",
  given: "given",
  used: "used",
  idle: "given, idle",
  held: "promised",
  requests: "requests",
  gpus: "GPUs asked for",
  mean: "mean of the grants of a step",
};
const kOfSums = { capacity: "--s8", given: "--s1", used: "--s0", idle: "--s4", held: "--s1", requests: "--s2", gpus: "--s4" };
const kHourNs = 3600e9;
const kGbHours = (1 << 20) / 1e3 / 1e9 / 3600; // of 2^20 bytes for a millisecond

/** Its legend writes markup and styles, which the page's rules forbid. */
function withoutLegend(Dygraph) {
  Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);
  return Dygraph;
}

let library = null;
function charts() {
  library ??= new Promise((resolve, reject) => {
    document.head.append(
      el("link", { rel: "stylesheet", href: "/charts/dygraph.css" }),
      el("script", {
        src: "/charts/dygraph.js",
        onload: () => resolve(withoutLegend(window.Dygraph)),
        onerror: () => reject(new Error("the chart library could not be loaded")),
      }),
    );
  });
  return library;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Of each name one of the palette, as elsewhere on the page where two do not want the same. */
function coloursOf(names) {
  const taken = new Set([kGrey]);
  return new Map(
    names.map((name) => {
      let wanted = colour(name);
      for (let tries = 0; taken.has(wanted) && tries < 10; tries += 1) wanted = (wanted + 1) % 10;
      taken.add(wanted);
      return [name, wanted];
    }),
  );
}

/** As `duration`, so fine that the labels of an axis differ. */
function waited(seconds) {
  if (seconds === null || seconds >= 7200) return duration(seconds);
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  return `${Number((seconds / 60).toFixed(1))} min`;
}

/** Local date and time as an input has it. */
function inputTime(seconds) {
  const date = new Date(seconds * 1000);
  return new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

/** "2026-11-27 13:00", as `tendril report` reads it. */
function reportTime(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function nameOf(line, others) {
  if (line.others) return count(others, "other", "others");
  return line.name || "no name";
}

class Chart {
  constructor({ name, title, show, most, binary }) {
    this.name = name;
    this.title = title;
    this.show = show;
    this.most = most ?? null;
    this.binary = binary ?? false;
    this.place = el("div", { class: "chart", role: "img" });
    this.legend = el("ul", { class: "chart-legend" });
    this.note = el("p", { class: "quiet" });
    this.node = el("section", { class: "panel" }, el("h2", {}, title), this.place, this.legend, this.note);
  }

  /** Lines of one name are one entry of the legend, with a value for each kind. */
  group(answer, chart) {
    this.sums = answer.by.length === 0;
    this.kinds = [...new Set(chart.lines.map((line) => line.kind))];
    const entries = new Map();
    chart.lines.forEach((line, at) => {
      const name = this.sums ? kMeanings[line.kind] : nameOf(line, answer.others);
      const key = `${line.others} ${this.sums ? line.kind : line.name}`;
      if (!entries.has(key)) entries.set(key, { key, name, lines: [], others: line.others, kind: line.kind, line: line.name });
      entries.get(key).lines.push(at);
    });
    this.entries = [...entries.values()];
    const colours = coloursOf(this.entries.filter((each) => !each.others).map((each) => each.line));
    for (const each of this.entries) {
      if (this.sums) each.colour = kOfSums[each.kind] ?? "--s2";
      else each.colour = `--s${each.others ? kGrey : colours.get(each.line)}`;
    }
  }

  async draw(answer) {
    const Dygraph = await charts();
    const chart = answer.charts.find((each) => each.series === this.name);
    this.group(answer, chart);
    const rows = chart.rows.map((values) => [new Date(values[0] * 1000), ...values.slice(1)]);
    const isNothing = (value) => value === null || (this.name.startsWith("wait") && value === 0);
    const isEmpty = rows.every((values) => values.slice(1).every(isNothing));
    const gaps = answer.gaps ?? [];
    setText(this.note, this.words(answer, isEmpty));
    setAttr(this.place, "hidden", isEmpty);
    setAttr(this.legend, "hidden", isEmpty);
    this.rows = rows;
    if (isEmpty) {
      this.end();
      return;
    }
    this.drawLegend();
    const lines = chart.lines.map((line, at) => ({ line, entry: this.entries.find((each) => each.lines.includes(at)) }));
    const lonely = chart.lines.length === 1;
    const options = {
      file: rows,
      labels: ["time", ...lines.map((_, at) => String(at))], // drawn nowhere
      colors: lines.map(({ entry }) => css(entry.colour)),
      series: Object.fromEntries(
        lines.map(({ line }, at) => [String(at), { strokePattern: this.isDashed(line) ? [5, 3] : null, strokeWidth: this.isDashed(line) ? 1.2 : 1.8 }]),
      ),
      dateWindow: [answer.from_at * 1000, answer.to_at * 1000],
      valueRange: this.most === null ? null : [0, Math.max(this.most, ...rows.flatMap((values) => values.slice(1))) * 1.04],
      legend: "never",
      includeZero: true,
      fillGraph: lonely,
      drawPoints: rows.length < 3,
      connectSeparatedPoints: false,
      axisLineColor: css("--line"),
      gridLineColor: css("--line"),
      highlightCircleSize: 3,
      xRangePad: 0,
      axes: {
        y: { axisLabelFormatter: (value) => this.show(value), axisLabelWidth: 56, labelsKMG2: this.binary },
        x: { axisLabelWidth: 64 },
      },
      highlightCallback: (event, x, points, at) => this.drawLegend(at),
      unhighlightCallback: () => this.drawLegend(),
      zoomCallback: (from, to) => this.onrange?.(from / 1000, to / 1000),
      underlayCallback: (context, area, graph) => {
        context.fillStyle = css("--soft");
        for (const [from, to] of gaps) {
          const left = Math.max(graph.toDomXCoord(from * 1000), area.x);
          const right = Math.min(graph.toDomXCoord(to * 1000), area.x + area.w);
          if (right > left) context.fillRect(left, area.y, Math.max(right - left, 1), area.h);
        }
      },
    };
    const { file, ...rest } = options;
    if (this.graph && this.lines === chart.lines.length) this.graph.updateOptions(options);
    else {
      this.end();
      this.graph = new Dygraph(this.place, file, rest);
    }
    this.lines = chart.lines.length;
  }

  isDashed(line) {
    return !this.sums && this.kinds.length > 1 && line.kind !== this.kinds.at(-1);
  }

  words(answer, isEmpty) {
    if (isEmpty) return this.name.startsWith("wait") ? "Nobody waited in this time." : "Nothing was recorded in this time.";
    const meanings = this.kinds.map((kind, at) => {
      const shown = kMeanings[kind];
      return at < this.kinds.length - 1 ? `${shown} (dashed)` : shown;
    });
    let of = "";
    if (this.name === "utilisation") of = answer.charts.find((each) => each.series === this.name).lines.length && this.kinds.length > 1 ? "Part of the GPUs that were there." : "Used, of what each was given.";
    return [this.sums || this.kinds.length === 1 ? "" : `Each: ${meanings.join(" and ")}.`, of, `One point is ${duration(answer.step_s)}.`]
      .filter(Boolean)
      .join(" ");
  }

  drawLegend(at = null) {
    const values = this.rows[at ?? this.rows.length - 1];
    const text = (line) => (values[line + 1] === null ? "–" : this.show(values[line + 1]));
    const shown = this.entries.map((each) => ({ ...each, text: each.lines.map(text).join(" / ") }));
    shown.push({ key: "when", name: `at ${moment(values[0] / 1000, now())}`, text: "" });
    keyed(
      this.legend,
      shown,
      (each) => each.key,
      () => el("li", {}, el("i"), el("span"), el("b")),
      (node, each) => {
        if (each.colour) node.children[0].style.background = `var(${each.colour})`;
        setAttr(node.children[0], "hidden", !each.colour);
        setText(node.children[1], each.name);
        setText(node.children[2], each.text);
      },
    );
    const words = shown.slice(0, 4).map((each) => `${each.name} ${each.text}`);
    setAttr(this.place, "aria-label", `${this.title} over time; the table below has the sums. Now: ${words.join(", ")}`);
  }

  end() {
    this.graph?.destroy();
    this.graph = null;
  }
}

// ---- the sums of the range ----

const number = (value) => value.toLocaleString(undefined, { maximumFractionDigits: value < 0.1 ? 4 : value < 20 ? 2 : value < 1000 ? 1 : 0 });
const hours = (key) => (sums) => number(sums[key] / kHourNs);
const kColumns = [
  ["Leases", (sums) => sums.leases.toLocaleString()],
  ["There GPU h", (sums) => (sums.capacity_gpu_ns ? number(sums.capacity_gpu_ns / kHourNs) : "–")],
  ["Asked", hours("asked_gpu_ns")],
  ["Given", hours("given_gpu_ns")],
  ["Used", hours("used_ns")],
  ["Used of given", (sums) => percent(sums.given_gpu_ns ? sums.used_ns / sums.given_gpu_ns : null)],
  ["Idle", hours("idle_gpu_ns")],
  ["Queued", hours("queued_gpu_ns")],
  ["Mean wait", (sums) => duration(sums.leases ? sums.waited_ns / 1e9 / sums.leases : null)],
  ["Memory GB h", (sums) => number(sums.memory_held_mib_ms * kGbHours)],
  ["of it used", (sums) => number(sums.memory_used_mib_ms * kGbHours)],
];

function linkOf(by, name) {
  if (by === "server" && name) return `#/servers/${encodeURIComponent(name)}`;
  if (by === "lease" && /^\d+$/.test(name)) return `#/leases/${name}`;
  return null;
}

class Sums {
  constructor() {
    this.head = el("th", { scope: "col" });
    this.body = el("tbody");
    this.command = el("code");
    const heads = kColumns.map(([title]) => el("th", { scope: "col", class: "right" }, title));
    this.node = el(
      "section",
      { class: "panel wide", "aria-label": "Sums" },
      el("h2", {}, "In this time"),
      el(
        "div",
        { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Sums of this time" },
        el("table", {}, el("thead", {}, el("tr", {}, this.head, ...heads)), this.body),
      ),
      el("p", { class: "quiet exact" }, "GPU hours. Exact sums of everybody: ", this.command),
    );
  }
  draw(answer) {
    const by = answer.by[0] ?? "";
    setText(this.head, by ? kBy.find((each) => each.value === by).title.slice(3) : "");
    const range = `--from "${reportTime(answer.from_at)}" --to "${reportTime(answer.to_at)}"`;
    setText(this.command, `tendril report ${by ? `--by ${by} ` : ""}${range}`);
    keyed(
      this.body,
      answer.totals.map((sums) => ({ sums, name: by ? nameOf({ name: sums[by], others: sums.others }, answer.others) : "all" })),
      (each) => `${each.sums.others} ${each.sums[by] ?? ""}`,
      ({ sums, name }) => {
        const link = sums.others ? null : linkOf(by, sums[by] ?? "");
        const cells = kColumns.map(() => el("td", { class: "right" }));
        return el("tr", {}, el("td", { class: "name" }, link ? el("a", { href: link }, name) : el("span", {}, name)), ...cells);
      },
      (node, { sums }) => kColumns.forEach(([, show], at) => setText(node.children[at + 1], show(sums))),
    );
  }
}

// ---- the view ----

export function view(main) {
  look({});
  let seconds = 86400;
  let range = null; // [from, to] that the user named
  let last = null;
  const by = el(
    "select",
    { "aria-label": "In sum or by", onchange: () => refresh() },
    ...kBy
      .filter((each) => !each.may || state.me.may[each.may])
      .map(({ value, title }) => el("option", { value }, title)),
  );
  const buttons = kRanges.map(([title, length]) =>
    el("button", { type: "button", onclick: () => choose(length) }, title),
  );
  const from = el("input", { type: "datetime-local", "aria-label": "From", onchange: () => named() });
  const to = el("input", { type: "datetime-local", "aria-label": "To", onchange: () => named() });
  const note = el("p", { class: "empty", role: "status", hidden: true });
  const own = el("p", { class: "quiet own", hidden: state.me.may.see_all }, "Only of your own leases: your role does not see those of others.");
  const place = el("div", { class: "columns history", hidden: true });
  const tools = el(
    "div",
    { class: "ranges" },
    el("div", { class: "range-buttons", role: "group", "aria-label": "Range" }, ...buttons),
    el("div", { class: "range-fields" }, from, el("span", {}, "to"), to),
  );
  main.append(el("div", { class: "head-of-view" }, el("h1", {}, "History"), by), own, tools, note, place);
  const all = state.me.charts ? kCharts.map((chart) => new Chart(chart)) : [];
  const sums = new Sums();
  place.append(...all.map((chart) => chart.node), sums.node);
  const missing = "This program was built without the chart library (libjs-dygraphs), so there are no charts.";
  for (const chart of all) chart.onrange = (begin, end) => narrow(begin, end);

  function choose(length) {
    seconds = length;
    range = null;
    refresh();
  }
  function narrow(begin, end) {
    if (end - begin < 60) end = begin + 60;
    range = [Math.floor(begin), Math.ceil(end)];
    refresh();
  }
  function named() {
    const begin = Date.parse(from.value) / 1000;
    const end = Date.parse(to.value) / 1000;
    if (!Number.isFinite(begin) || !Number.isFinite(end)) return;
    setAttr(to, "aria-invalid", end <= begin ? "true" : null);
    if (end <= begin) return say("The range ends before it begins.");
    range = [begin, end];
    refresh();
  }
  function say(text) {
    setText(note, text);
    setAttr(note, "hidden", !text);
  }
  async function drawAll() {
    for (const chart of all) await chart.draw(last);
    sums.draw(last);
  }
  let turn = 0;
  async function refresh() {
    const mine = (turn += 1);
    const end = Math.floor(range ? range[1] : now());
    const begin = Math.floor(range ? range[0] : end - seconds);
    buttons.forEach((button, at) =>
      setAttr(button, "aria-pressed", String(!range && kRanges[at][1] === seconds)),
    );
    if (range || ![from, to].includes(document.activeElement)) {
      from.value = inputTime(begin);
      to.value = inputTime(end);
    }
    setAttr(to, "aria-invalid", null);
    const query = new URLSearchParams({ from: begin, to: end, points: 300, lines: kLines });
    if (by.value) query.set("by", by.value);
    setAttr(place, "aria-busy", "true");
    try {
      const answer = await ask(`history?${query}`);
      if (mine !== turn) return;
      last = answer;
      say(state.me.charts ? "" : missing);
      setAttr(place, "hidden", false);
      await drawAll();
    } catch (error) {
      if (mine !== turn) return;
      say(error.message);
      if (error.code !== "unsupported") return;
      for (const node of [place, tools, by, own]) setAttr(node, "hidden", true);
    } finally {
      if (mine === turn) setAttr(place, "aria-busy", null);
    }
  }
  refresh();
  const timer = setInterval(() => {
    if (!range && seconds <= 6 * 3600 && !document.hidden) refresh();
  }, 30000);
  // Lines have the colours of the theme in which they were drawn.
  const redraw = () => last && drawAll();
  const themes = new MutationObserver(redraw);
  themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", redraw);
  return {
    update() {},
    end() {
      turn += 1;
      clearInterval(timer);
      themes.disconnect();
      system.removeEventListener("change", redraw);
      all.forEach((chart) => chart.end());
    },
  };
}
