// SPDX-License-Identifier: Apache-2.0
// All servers as a list, and one of them in full: health, driver, transports, GPUs and who is
// there. Operators take a server out and back here.
import { attempt, field, question } from "./dialog.js";
import { el, facts, keyed, row, setAttr, setText, setVar } from "./dom.js";
import { bytes, count, duration, gpus, moment, percent } from "./format.js";
import { makeCard, serverState, slicesByGpu, updateCard } from "./gpus.js";
import { ranges } from "./now.js";
import { ask, look, now, state } from "./state.js";

const kRowHeight = 52; // as style.css has it
let wanted = "";

export function view(main, words) {
  return words[0] ? one(main, words[0]) : list(main);
}

async function drain(name) {
  const values = await question({
    title: `Drain ${name}?`,
    text: "It gets no new leases. Those that it has go on until they end.",
    fields: [field("Why (users read it)", el("input", { name: "why", maxlength: 200 }))],
    act: "Drain",
  });
  if (!values) return;
  await attempt(`${name} drains.`, () =>
    ask(`servers/${encodeURIComponent(name)}/drain`, { method: "POST", body: { why: values.why } }),
  );
}

async function undrain(name) {
  await attempt(`${name} takes leases again.`, () =>
    ask(`servers/${encodeURIComponent(name)}/undrain`, { method: "POST", body: {} }),
  );
}

function health(detail) {
  if (detail.state === "silent" && detail.silent_since_at !== null)
    return `silent for ${duration(now() - detail.silent_since_at)}`;
  if (detail.draining) return detail.drain_why ? `draining: ${detail.drain_why}` : "draining";
  return detail.state === "up" ? "healthy" : detail.state;
}

// ---- the list: only rows in sight are there ----

function list(main) {
  const filter = el("input", {
    type: "search",
    placeholder: "name, class, silent, draining …",
    "aria-label": "Filter servers",
    value: wanted,
    oninput: () => {
      wanted = filter.value;
      refresh();
    },
  });
  const number = el("span", { class: "count" });
  const body = el("ul", { class: "server-rows" });
  main.append(
    el("div", { class: "head-of-view" }, el("h1", {}, "Servers"), number, filter),
    el("section", { class: "panel", "aria-label": "Servers" }, body),
  );
  let servers = [];

  function makeRow() {
    const link = el("a", { class: "server-name" });
    const chip = el("span", { class: "chip" });
    const what = el("p", { class: "quiet" });
    const meter = el("div", { class: "meter", "aria-hidden": "true" }, el("i"), el("b"));
    const given = el("p", { class: "quiet" });
    const button = el("button", { type: "button" });
    const node = el(
      "li",
      {},
      el("div", { class: "first" }, el("p", {}, link, " ", chip), what),
      el("div", { class: "second" }, meter, given),
      button,
    );
    node.parts = { link, chip, what, meter, given, button };
    button.addEventListener("click", () => (node.drains ? undrain(node.server) : drain(node.server)));
    return node;
  }
  function updateRow(node, { server, at }) {
    const { link, chip, what, meter, given, button } = node.parts;
    const detail = state.details.get(server.n);
    node.server = server.name;
    node.drains = Boolean(server.draining);
    setVar(node, "--top", `${at * kRowHeight}px`);
    setText(link, server.name);
    setAttr(link, "href", `#/servers/${encodeURIComponent(server.name)}`);
    const words = serverState(server);
    setText(chip, words);
    setAttr(chip, "hidden", !words);
    setAttr(chip, "data-state", words);
    const models = detail ? [...new Set(detail.gpus.map((gpu) => gpu.model))].join(", ") : server.classes.join(", ");
    setText(
      what,
      [models, detail?.version && `Tendril ${detail.version}`, detail?.transports.join(", "), detail && words ? health(detail) : ""]
        .filter(Boolean)
        .join(" · "),
    );
    const all = server.given.length;
    const sum = server.given.reduce((total, part) => total + part, 0) / 100;
    const busy = server.busy.filter((part) => part >= 0).reduce((total, part) => total + part, 0) / 100;
    setVar(meter, "--given", `${all ? (sum / all) * 100 : 0}%`);
    setVar(meter, "--busy", `${all ? (busy / all) * 100 : 0}%`);
    setText(given, `${gpus(sum)} of ${count(all, "GPU", "GPUs")} given, ${count(server.leases, "lease", "leases")}`);
    setText(button, server.draining ? "Undrain" : "Drain");
    setAttr(button, "aria-label", `${server.draining ? "Undrain" : "Drain"} ${server.name}`);
    setAttr(button, "hidden", !state.me.may.operate || !state.head?.pool);
  }
  function visible() {
    const begin = Math.max(0, Math.floor((-body.getBoundingClientRect().top - 400) / kRowHeight));
    const end = begin + Math.ceil((window.innerHeight + 800) / kRowHeight);
    return servers.slice(begin, end).map((server, at) => ({ server, at: begin + at }));
  }
  function draw() {
    const rows = visible();
    keyed(body, rows, (each) => each.server.n, makeRow, updateRow);
    look({ servers: true, window: ranges(rows.map((each) => each.server.n)) });
  }
  function refresh() {
    const parts = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    servers = [...state.servers.values()]
      .filter((server) => {
        const text = [server.name, serverState(server), ...server.classes].join("\n").toLowerCase();
        return parts.every((part) => text.includes(part));
      })
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    setText(number, servers.length ? String(servers.length) : "");
    body.style.height = `${servers.length * kRowHeight}px`;
    draw();
  }
  let waiting = false;
  function moved() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }
  window.addEventListener("scroll", moved, { passive: true });
  window.addEventListener("resize", moved);
  refresh();
  return {
    update(changed) {
      if (changed.has("servers") || changed.has("head")) refresh();
      else if (changed.has("details")) draw();
    },
    end() {
      window.removeEventListener("scroll", moved);
      window.removeEventListener("resize", moved);
    },
  };
}

// ---- one server ----

function one(main, name) {
  const chip = el("span", { class: "chip" });
  const button = el("button", { type: "button", hidden: true });
  const place = el("div");
  const gpuRows = el("tbody");
  const windows = el("ul", { class: "reasons" });
  const card = makeCard();
  card.classList.add("alone");
  const none = el("p", { class: "empty" }, "Looking …");
  const content = el(
    "div",
    { class: "columns", hidden: true },
    el("div", {}, card),
    el("section", { class: "panel" }, el("h2", {}, "Server"), place, windows),
    el(
      "section",
      { class: "panel wide scrolls", tabindex: 0, role: "region", "aria-label": "GPUs" },
      el("h2", {}, "GPUs"),
      el(
        "table",
        {},
        el("thead", {}, row(["GPU", "Model", "Class", "Given", "Busy", "Memory used", "promised", "of", "State"], "th")),
        gpuRows,
      ),
    ),
  );
  main.append(
    el(
      "div",
      { class: "head-of-view" },
      el("h1", {}, name),
      chip,
      el("div", { class: "actions" }, button),
    ),
    none,
    content,
  );
  let drains = false;
  button.addEventListener("click", () => (drains ? undrain(name) : drain(name)));
  look({ servers: true });

  function draw(server, detail) {
    drains = detail.draining;
    const words = serverState(server);
    setText(chip, words || "up");
    setAttr(chip, "data-state", words || "up");
    setText(button, drains ? "Undrain" : "Drain");
    setAttr(button, "hidden", !state.me.may.operate || !state.head?.pool);
    updateCard(card, server, slicesByGpu());
    const shown = facts([
      ["Health", health(detail)],
      ["Leases", String(detail.leases)],
      ["Tendril", detail.version],
      ["Driver", detail.driver],
      ["Address", detail.endpoint],
      ["Transports", detail.transports.join(", ")],
      ["Labels", detail.labels.join(" ")],
    ]);
    if (place.textContent !== shown.textContent) place.replaceChildren(shown);
    keyed(
      windows,
      detail.maintenance,
      (each) => `${each.from_at}`,
      (each) =>
        el("li", {}, `Maintenance from ${moment(each.from_at, now())} to ${moment(each.to_at, now())}: ${each.why}`),
      () => {},
    );
    keyed(
      gpuRows,
      detail.gpus.map((gpu, at) => ({ ...gpu, busy: server.busy[at] })),
      (gpu) => gpu.index,
      () => row(Array.from({ length: 9 }, () => el("span"))),
      (node, gpu) => {
        const state = [
          gpu.packed ? "packed" : "",
          gpu.temperature_c === null ? "" : `${gpu.temperature_c} °C`,
          gpu.power_w === null ? "" : `${gpu.power_w} W`,
        ];
        [
          String(gpu.index),
          gpu.type === "gpu" ? gpu.model : `${gpu.model} (${gpu.type})`,
          gpu.class || "–",
          percent(gpu.given),
          gpu.busy === undefined || gpu.busy < 0 ? "–" : `${gpu.busy} %`,
          bytes(gpu.memory_used_bytes),
          bytes(gpu.memory_promised_bytes),
          bytes(gpu.memory_bytes),
          state.filter(Boolean).join(", ") || "–",
        ].forEach((text, at) => setText(node.children[at], text));
      },
    );
  }
  return {
    update(changed) {
      const server = [...state.servers.values()].find((each) => each.name === name);
      if (server) look({ servers: true, window: String(server.n) });
      const detail = server && state.details.get(server.n);
      setAttr(content, "hidden", !detail);
      setAttr(none, "hidden", Boolean(detail));
      if (!server && changed.has("time")) setText(none, "There is no such server.");
      if (detail) draw(server, detail);
    },
    end() {},
  };
}
