// SPDX-License-Identifier: Apache-2.0
// What was: GPUs, memory and waits over any range, in sum or by class, account or server. Charts
// are drawn by dygraphs, which is part of the program if it was there at build time. Its legend is
// not used, because it writes markup; ours is text.
import { toast } from "./dialog.js";
import { el, keyed, setAttr, setText } from "./dom.js";
import { bytes, colour, duration, gpus, moment } from "./format.js";
import { ask, look, now, state } from "./state.js";

const kRanges = [
  ["1 hour", 3600],
  ["6 hours", 6 * 3600],
  ["1 day", 86400],
  ["7 days", 7 * 86400],
  ["30 days", 30 * 86400],
  ["1 year", 365 * 86400],
];
const kSeries = [
  { name: "gpus", title: "GPUs: there, given, used", show: gpus },
  { name: "memory", title: "Memory: held and used", show: bytes },
  { name: "waiting", title: "Requests that wait", show: (value) => Number(value.toFixed(1)).toString() },
  { name: "waits", title: "How long grants waited", show: duration },
];
const kBy = [
  ["", "in sum"],
  ["class", "by class"],
  ["account", "by account"],
  ["server", "by server"],
  ["user", "by user"],
];
const kLinesMax = 12;

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

function lineName(line) {
  return [line.name, line.kind].filter(Boolean).join(" ");
}

function lineColour(line) {
  if (!line.name) {
    const known = { capacity: "--s8", given: "--s1", used: "--s0", idle: "--s4", held: "--s1" };
    return css(known[line.kind] ?? "--s2");
  }
  return css(`--s${colour(line.name)}`);
}

/** Local date and time as an input has it. */
function inputTime(seconds) {
  const date = new Date(seconds * 1000 - new Date(seconds * 1000).getTimezoneOffset() * 60000);
  return date.toISOString().slice(0, 16);
}

class Chart {
  constructor({ name, title, show }) {
    this.name = name;
    this.show = show;
    this.place = el("div", { class: "chart", role: "img", "aria-label": title });
    this.legend = el("ul", { class: "chart-legend" });
    this.note = el("p", { class: "quiet" });
    this.node = el("section", { class: "panel" }, el("h2", {}, title), this.place, this.legend, this.note);
  }

  async draw(answer) {
    const Dygraph = await charts();
    // The largest lines; more would only be noise.
    const weight = answer.lines.map((_, at) =>
      answer.rows.reduce((sum, values) => sum + (values[at + 1] ?? 0), 0),
    );
    const kept = weight
      .map((sum, at) => [sum, at])
      .sort((a, b) => b[0] - a[0])
      .slice(0, kLinesMax)
      .map(([, at]) => at)
      .sort((a, b) => a - b);
    const left = answer.lines.length - kept.length;
    const lines = kept.map((at) => answer.lines[at]);
    const rows = answer.rows.map((values) => [
      new Date(values[0] * 1000),
      ...kept.map((at) => values[at + 1]),
    ]);
    const gaps = answer.gaps ?? [];
    const notes = [
      answer.rows.length === 0 ? "Nothing was recorded in this time." : `One point is ${duration(answer.step_s)}.`,
      left > 0 ? `${left} smaller lines are left out.` : "",
      gaps.length ? "In the shaded time no scheduler was there; its sums are spread evenly." : "",
    ];
    setText(this.note, notes.filter(Boolean).join(" "));
    this.graph?.destroy();
    this.graph = null;
    setAttr(this.place, "hidden", rows.length === 0);
    this.drawLegend(lines, rows.at(-1)?.slice(1) ?? []);
    if (rows.length === 0) return;
    // Labels are drawn nowhere, so numbers do.
    this.graph = new Dygraph(this.place, rows, {
      labels: ["time", ...lines.map((_, at) => String(at))],
      colors: lines.map(lineColour),
      legend: "never",
      includeZero: true,
      strokeWidth: 1.6,
      fillGraph: lines.length === 1,
      connectSeparatedPoints: false,
      axisLineColor: css("--line"),
      gridLineColor: css("--line"),
      highlightCircleSize: 3,
      axes: { y: { axisLabelFormatter: (value) => this.show(value), axisLabelWidth: 62 } },
      highlightCallback: (event, x, points) =>
        this.drawLegend(lines, lines.map((_, at) => points.find((point) => point.name === String(at))?.yval ?? null), x),
      unhighlightCallback: () => this.drawLegend(lines, rows.at(-1).slice(1)),
      underlayCallback: (context, area, graph) => {
        context.fillStyle = css("--soft");
        for (const [from, to] of gaps) {
          const left = graph.toDomXCoord(from * 1000);
          context.fillRect(left, area.y, graph.toDomXCoord(to * 1000) - left, area.h);
        }
      },
    });
  }

  drawLegend(lines, values, at = null) {
    const rows = lines.map((line, number) => ({ line, value: values[number] ?? null, number }));
    if (at !== null) rows.push({ when: moment(at / 1000, now()), number: -1 });
    keyed(
      this.legend,
      rows,
      (entry) => (entry.line ? lineName(entry.line) : "when"),
      () => el("li", {}, el("i"), el("span"), el("b")),
      (node, { line, value, when }) => {
        if (line) node.children[0].style.background = lineColour(line);
        setAttr(node.children[0], "hidden", !line);
        setText(node.children[1], line ? lineName(line) : when);
        setText(node.children[2], line ? (value === null ? "–" : this.show(value)) : "");
      },
    );
  }

  end() {
    this.graph?.destroy();
  }
}

export function view(main) {
  look({});
  let seconds = 86400;
  let range = null; // [from, to] that the user named
  const by = el(
    "select",
    { "aria-label": "In sum or by", onchange: () => refresh() },
    ...kBy.map(([value, title]) => el("option", { value }, title)),
  );
  const buttons = kRanges.map(([title, length]) =>
    el("button", { type: "button", onclick: () => choose(length) }, title),
  );
  const from = el("input", { type: "datetime-local", "aria-label": "From", onchange: () => named() });
  const to = el("input", { type: "datetime-local", "aria-label": "To", onchange: () => named() });
  const note = el("p", { class: "empty", hidden: true });
  const place = el("div", { class: "columns history" });
  main.append(
    el("div", { class: "head-of-view" }, el("h1", {}, "History"), by),
    el("div", { class: "ranges" }, el("div", { class: "range-buttons", role: "group", "aria-label": "Range" }, ...buttons), from, el("span", {}, "to"), to),
    note,
    place,
  );
  const all = kSeries.map((series) => new Chart(series));
  if (!state.me.charts) {
    setText(note, "This program was built without the chart library (libjs-dygraphs), so there are no charts.");
    setAttr(note, "hidden", false);
  } else {
    place.append(...all.map((chart) => chart.node));
  }

  function choose(length) {
    seconds = length;
    range = null;
    refresh();
  }
  function named() {
    const begin = Date.parse(from.value) / 1000;
    const end = Date.parse(to.value) / 1000;
    if (!(end > begin)) return;
    range = [begin, end];
    refresh();
  }
  let turn = 0;
  async function refresh() {
    const mine = (turn += 1);
    const end = Math.floor(range ? range[1] : now());
    const begin = Math.floor(range ? range[0] : end - seconds);
    buttons.forEach((button, at) =>
      setAttr(button, "aria-pressed", String(!range && kRanges[at][1] === seconds)),
    );
    if (!range) {
      from.value = inputTime(begin);
      to.value = inputTime(end);
    }
    if (!state.me.charts) return;
    for (const chart of all) {
      const query = new URLSearchParams({ series: chart.name, by: by.value, from: begin, to: end, points: 500 });
      try {
        const answer = await ask(`history?${query}`);
        if (mine !== turn) return;
        setAttr(note, "hidden", true);
        await chart.draw(answer);
      } catch (error) {
        if (mine !== turn) return;
        setText(note, error.message);
        setAttr(note, "hidden", false);
        place.hidden = error.code === "unsupported";
        if (error.code !== "unsupported") toast(error.message, true);
        return;
      }
    }
    place.hidden = false;
  }
  refresh();
  const timer = setInterval(() => {
    if (!range && seconds <= 6 * 3600) refresh();
  }, 30000);
  return {
    update() {},
    end() {
      clearInterval(timer);
      all.forEach((chart) => chart.end());
    },
  };
}
