// SPDX-License-Identifier: Apache-2.0
// How values look. Pure functions.

/** "0.5", "12", "3.25": GPUs. */
export function gpus(count) {
  if (count === null || count === undefined) return "–";
  return Number(count.toFixed(count >= 20 ? 1 : 2)).toString();
}

export function percent(part) {
  return part === null || part === undefined ? "–" : `${Math.round(part * 100)} %`;
}

const kUnits = ["B", "kB", "MB", "GB", "TB", "PB"];
/** Memory in binary units, as GPUs have it, written short: "40 GB". */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let unit = 0;
  let value = count;
  while (value >= 1000 && unit < kUnits.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${kUnits[unit]}`;
}

/** "3 min", "2 h 5 min", "4 d": seconds for people. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor((s % 3600) / 60);
  if (s < 86400) return minutes && hours < 10 ? `${hours} h ${minutes} min` : `${hours} h`;
  const days = Math.floor(s / 86400);
  const rest = Math.floor((s % 86400) / 3600);
  return rest && days < 10 ? `${days} d ${rest} h` : `${days} d`;
}

const kTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const kDay = new Intl.DateTimeFormat(undefined, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});
/** "14:10", or with the day if that is another one. `now` in seconds. */
export function moment(at, now) {
  if (at === null || at === undefined) return "–";
  const date = new Date(at * 1000);
  const same = date.toDateString() === new Date(now * 1000).toDateString();
  return (same ? kTime : kDay).format(date);
}

export function count(number, one, many) {
  return `${number.toLocaleString()} ${number === 1 ? one : many}`;
}

/** A colour of the palette for a name: the same name always has the same one. */
export function colour(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; i += 1) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
  return (hash >>> 0) % 10;
}

export function share(slices, each) {
  return slices === 1 ? gpus(each) : `${slices} × ${gpus(each)}`;
}
