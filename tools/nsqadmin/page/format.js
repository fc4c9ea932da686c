// Figures as people read them.

// What stands for a figure that nobody knows.
export const UNKNOWN = "–";

// "1,234,567", exactly, also for a BigInt.
export function count(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

// A rate per second, also of a BigInt: "0", "0.25", "3.5", "1,234". A negative rate has a sign.
export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const number = Number(value);
  const size = Math.abs(number);
  if (size < 0.005) return "0";
  const text = size < 10 ? String(Number(size.toPrecision(2))) : count(Math.round(size));
  return number < 0 ? `−${text}` : text;
}

// A change per second, with a sign: "+12", "−3.5", "0".
export function growth(value) {
  return value > 0 && rate(value) !== "0" ? `+${rate(value)}` : rate(value);
}

// An age in milliseconds: "0", "850 ms", "5.1 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
export function age(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return UNKNOWN;
  const ms = Number(milliseconds);
  if (ms === 0) return "0";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Math.floor(ms / 100) / 10} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 3600) return pair(seconds, 60, "min", 1, "s");
  if (seconds < 86_400) return pair(seconds, 3600, "h", 60, "min");
  return pair(seconds, 86_400, "d", 3600, "h");
}

function pair(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${largeName}` + (rest ? ` ${rest} ${smallName}` : "");
}

// A number of bytes: "950 B", "1.2 kB", "905 GB".
export function size(bytes) {
  if (bytes === null || bytes === undefined) return UNKNOWN;
  let [value, unit] = [Number(bytes), 0];
  for (; value >= 999.5 && unit < 5; unit += 1) value /= 1000;
  return `${value < 9.95 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

// A duration in nanoseconds, as NSQ's tools show them: "672.06ms", "3m29s", "1h2m3s", "5m0s", "0ns".
export function duration(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined) return UNKNOWN;
  const ns = Number(nanoseconds);
  const minutes = Math.floor(ns / 60e9);
  if (minutes > 0) {
    const hours = Math.floor(minutes / 60);
    // Whole seconds: next to minutes, no one reads a fraction.
    return (hours ? `${hours}h` : "") + `${minutes % 60}m${Math.floor((ns % 60e9) / 1e9)}s`;
  }
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toFixed(2))}${unit}`;
  }
  return `${Math.round(ns)}ns`;
}

// The name of a quantile: 0.99 is "99th", 0.999 is "99.9th", 1 is "100th".
export function percentile(quantile) {
  const value = Number((Number(quantile) * 100).toFixed(4));
  const last = String(value).at(-1);
  const isTeen = Number.isInteger(value) && value % 100 >= 11 && value % 100 <= 13;
  const suffix = { 1: "st", 2: "nd", 3: "rd" }[last];
  return `${value}${!suffix || isTeen ? "th" : suffix}`;
}

// "1 message", "12 messages".
export function many(value, one, several = `${one}s`) {
  return `${count(value)} ${value == 1 ? one : several}`;
}

// "03:04:05" in the browser's time zone.
export function clock(date) {
  return date.toTimeString().slice(0, 8);
}

// "14:10", with the date if that is another day: "2026-11-25 14:10". In the browser's time zone.
export function moment(milliseconds) {
  const [date, now] = [new Date(Number(milliseconds)), new Date()];
  const time = date.toTimeString().slice(0, 5);
  const pad = (number) => String(number).padStart(2, "0");
  return date.toDateString() === now.toDateString() ? time : `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${time}`;
}

// "host:port" with brackets around an IPv6 host.
export function address(host, port) {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]:${port}` : `${host}:${port}`;
}
