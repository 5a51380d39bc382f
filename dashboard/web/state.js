// SPDX-License-Identifier: Apache-2.0
// What the page knows: rows that the server's stream keeps up to date. The stream tells what has
// changed since a version; when a view looks at something else, the stream is opened again from
// there.

export const state = {
  me: null,
  head: null,
  at: 0,
  servers: new Map(), // by number: short rows
  details: new Map(), // by number: those in the window
  leases: new Map(), // by id: those in the window, and the one that is looked at
  queue: new Map(),
  accounts: new Map(),
  events: [],
  trouble: "",
  connected: false,
};

const kEventsMax = 2000;
const listeners = new Set();
let source = null;
let wish = "";
let opened = "";
let epoch = "";
const kTopics = ["servers", "queue", "accounts"];
let seen = {}; // of each topic: the version up to which its rows are known
let receivedAt = 0;
let fresh = false;
let timer = 0;

/** Calls `listener(changed)` after each message; returns what ends that. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(changed) {
  for (const listener of [...listeners]) listener(changed);
}

/** The server's clock, in seconds. */
export function now() {
  return receivedAt ? state.at + (performance.now() - receivedAt) / 1000 : Date.now() / 1000;
}

export class Refusal extends Error {
  constructor(status, answer) {
    super(answer.error ?? `the server answered ${status}`);
    this.status = status;
    this.code = answer.code ?? "";
  }
}

/** A request to the interface. Throws a Refusal. */
export async function ask(path, { method = "GET", body = undefined } = {}) {
  const headers = {};
  if (method !== "GET") headers["X-Tendril-Page"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(`/api/v1/${path}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "same-origin",
  });
  const text = await answer.text();
  let json = {};
  try {
    json = JSON.parse(text);
  } catch {
    json = { error: text.slice(0, 200) };
  }
  if (!answer.ok) throw new Refusal(answer.status, json);
  return json;
}

/** What the view looks at: members of the stream's query. */
export function look(interest) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(interest)) {
    if (value !== "" && value !== false && value !== null) query.set(name, value === true ? 1 : value);
  }
  wish = query.toString();
  if (wish === opened && source) return;
  clearTimeout(timer);
  timer = setTimeout(open, source ? 120 : 0);
}

/** Whether a message has come since the view said what it looks at. */
export function answered() {
  return opened === wish && !fresh;
}

function topics() {
  return kTopics.filter((topic) => opened.includes(topic));
}

function open() {
  source?.close();
  opened = wish;
  fresh = true;
  const known = topics().map((topic) => seen[topic] ?? 0);
  const since = known.length ? Math.min(...known) : 0;
  const from = epoch && since ? `&epoch=${epoch}&since=${since}` : "";
  source = new EventSource(`/api/v1/stream?${wish}${from}`);
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onopen = () => setConnected(true);
  source.onerror = () => setConnected(false);
  source.addEventListener("trouble", (event) => {
    state.trouble = JSON.parse(event.data).error;
    fresh = true;
    tell(new Set(["trouble"]));
  });
  source.addEventListener("signed-out", () => {
    stop();
    tell(new Set(["signed-out"]));
  });
}

export function stop() {
  clearTimeout(timer);
  source?.close();
  source = null;
  opened = "";
  epoch = "";
  seen = {};
}

function setConnected(connected) {
  if (state.connected === connected) return;
  state.connected = connected;
  if (!connected) fresh = true;
  tell(new Set(["connection"]));
}

function put(map, rows, key) {
  for (const row of rows ?? []) map.set(row[key], row);
}
function drop(map, keys) {
  for (const key of keys ?? []) map.delete(key);
}

function take(message) {
  const changed = new Set();
  state.connected = true;
  state.at = message.at;
  receivedAt = performance.now();
  if (state.trouble) changed.add("trouble");
  state.trouble = "";
  if (message.epoch !== epoch) {
    seen = {};
    state.events = [];
    for (const topic of kTopics) state[topic].clear();
  }
  for (const topic of topics()) {
    if (message.whole) state[topic].clear();
    seen[topic] = message.version;
  }
  if (fresh) {
    state.details.clear();
    state.leases.clear();
    changed.add("leases").add("details");
  }
  fresh = false;
  epoch = message.epoch;
  if (message.head) state.head = message.head;
  put(state.servers, message.servers, "n");
  drop(state.servers, message.servers_gone);
  drop(state.details, message.servers_gone);
  put(state.details, message.details, "n");
  put(state.leases, message.leases, "id");
  drop(state.leases, message.leases_gone);
  put(state.queue, message.queue, "id");
  drop(state.queue, message.queue_gone);
  put(state.accounts, message.accounts, "name");
  drop(state.accounts, message.accounts_gone);
  if (message.events) {
    const last = state.events.length ? state.events[0].number : 0;
    const news = message.events.filter((event) => event.number > last).reverse();
    state.events = [...news, ...state.events].slice(0, kEventsMax);
  }
  for (const name of ["head", "servers", "details", "leases", "queue", "accounts", "events"]) {
    if (message[name] || message[`${name}_gone`]) changed.add(name);
  }
  changed.add("time");
  tell(changed);
}
