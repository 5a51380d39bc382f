// SPDX-License-Identifier: Apache-2.0
// A server as a card: each GPU a bar of its slices. A slice is as wide as what was asked; the strip
// below it as long as what was had of that. The thin line is memory: promised and used.
import { el, keyed, setAttr, setText, setVar } from "./dom.js";
import { bytes, colour, gpus, percent } from "./format.js";
import { state } from "./state.js";

export const kCardHead = 46; // pixels, as style.css has them
export const kGpuHeight = 42;
export const kCardGap = 14;

/** The leases that are shown, by server's name and GPU. */
export function slicesByGpu() {
  const found = new Map();
  for (const lease of state.leases.values()) {
    if (lease.standing === "parked") continue; // others may have its part of the GPU
    lease.slices.forEach((slice, number) => {
      const key = `${slice.server}\n${slice.gpu}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push({ key: `${lease.id}/${number}`, lease, slice });
    });
  }
  for (const list of found.values()) list.sort((a, b) => a.lease.id - b.lease.id);
  return found;
}

export function leaseName(lease) {
  return lease.owner || lease.account || `lease ${lease.id}`;
}

export function serverState(server) {
  if (server.state === "silent") return "silent";
  if (server.state === "joining") return "joining";
  return server.draining ? "draining" : "";
}

function had(lease) {
  const asked = lease.slices.reduce((sum, slice) => sum + slice.share, 0);
  return lease.use.had === null || asked === 0 ? null : Math.min(lease.use.had / asked, 1);
}

function sliceLabel({ lease, slice }) {
  const part = had(lease);
  const words = [
    `${leaseName(lease)}, lease ${lease.id}`,
    `asked for ${gpus(slice.share)} of the GPU`,
    part === null ? "" : `had ${percent(part)} of that`,
    `${bytes(slice.memory_bytes)} of memory`,
    lease.paused ? "paused" : "",
    lease.standing === "granted" ? "" : lease.standing,
    lease.idle_since_at === null ? "" : "idle",
  ];
  return words.filter(Boolean).join(", ");
}

function makeSlice() {
  const strip = el("span", { class: "had" });
  const name = el("span", { class: "name" });
  const node = el("a", { class: "slice" }, name, strip);
  node.parts = { name, strip };
  return node;
}

function updateSlice(node, row) {
  const { lease, slice } = row;
  setVar(node, "--asked", `${Math.min(slice.share, 1) * 100}%`);
  setAttr(node, "data-colour", colour(lease.owner || lease.account || String(lease.id)));
  setAttr(node, "href", `#/leases/${lease.id}`);
  const label = sliceLabel(row);
  setAttr(node, "aria-label", label);
  setAttr(node, "title", label);
  setAttr(node, "data-idle", lease.idle_since_at !== null || lease.paused);
  setText(node.parts.name, `${leaseName(lease)} ${gpus(slice.share)}`);
  const part = had(lease);
  setVar(node.parts.strip, "--had", part === null ? "0%" : `${part * 100}%`);
}

function makeGpu() {
  const index = el("span", { class: "index" });
  const bar = el("div", { class: "bar" });
  const memory = el("div", { class: "memory", "aria-hidden": "true" }, el("i"), el("b"));
  const node = el("li", { class: "gpu" }, index, bar, memory);
  node.parts = { index, bar, memory };
  return node;
}

function updateGpu(node, { gpu, slices, busy }) {
  const { index, bar, memory } = node.parts;
  setText(index, String(gpu.index));
  const words = `${gpu.type === "gpu" ? "GPU" : gpu.type} ${gpu.index}: ${gpu.model}, ${percent(gpu.given)} given` +
    (busy === undefined || busy < 0 ? "" : `, ${busy} % busy`) +
    `, ${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_bytes)} used`;
  setAttr(index, "title", words);
  setAttr(node, "aria-label", words);
  keyed(bar, slices, (row) => row.key, makeSlice, updateSlice);
  const whole = gpu.memory_bytes || 1;
  setVar(memory, "--promised", `${Math.min(gpu.memory_promised_bytes / whole, 1) * 100}%`);
  setVar(memory, "--used", `${Math.min(gpu.memory_used_bytes / whole, 1) * 100}%`);
}

export function makeCard() {
  const name = el("a", { class: "server-name" });
  const chip = el("span", { class: "chip" });
  const note = el("span", { class: "quiet note" });
  const list = el("ul", { class: "gpus" });
  const node = el("section", { class: "card" }, el("header", {}, name, chip, note), list);
  node.parts = { name, chip, note, list };
  return node;
}

export function updateCard(node, server, slices) {
  const { name, chip, note, list } = node.parts;
  const detail = state.details.get(server.n);
  setText(name, server.name);
  setAttr(name, "href", `#/servers/${encodeURIComponent(server.name)}`);
  setAttr(name, "title", server.name);
  const words = serverState(server);
  setText(chip, words);
  setAttr(chip, "hidden", words === "");
  setAttr(chip, "data-state", words);
  const models = detail ? [...new Set(detail.gpus.map((gpu) => gpu.model))].join(", ") : "";
  setText(note, models || server.classes.filter(Boolean).join(", "));
  const rows = server.given.map((given, at) => ({
    gpu: detail?.gpus[at] ?? {
      index: at,
      model: "",
      type: "gpu",
      given: given / 100,
      memory_bytes: 0,
      memory_used_bytes: 0,
      memory_promised_bytes: 0,
    },
    busy: server.busy[at],
    slices: slices.get(`${server.name}\n${detail?.gpus[at]?.index ?? at}`) ?? [],
  }));
  setAttr(node, "aria-label", `server ${server.name}`);
  keyed(list, rows, (row) => row.gpu.index, makeGpu, updateGpu);
}
