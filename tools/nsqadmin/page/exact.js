// JSON with exact integers. A JavaScript number holds integers up to 2^53 exactly. Larger ones become a BigInt here.
// Counters of NSQ are signed 64-bit integers.

// A string, which is left alone, or a number.
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

// Parses JSON. Throws a SyntaxError as JSON.parse does.
export function parse(text) {
  // Few answers have an integer that may be too large, and native parsing is several times faster.
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let mark = "exact:";
  while (text.includes(mark)) mark += ":";
  const marked = text.replace(TOKEN, (token) => isTooLarge(token) ? `"${mark}${token}"` : token);
  return JSON.parse(marked, (key, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value);
}

function isTooLarge(token) {
  return /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token));
}

// Returns a + b. The sum is a BigInt if it does not fit into a number. A missing part counts as 0.
export function plus(a, b) {
  if (typeof a === "number" && typeof b === "number" && Number.isSafeInteger(a + b)) return a + b;
  const sum = wide(a) + wide(b);
  return Number.isSafeInteger(Number(sum)) ? Number(sum) : sum;
}

// Returns the largest of some numbers, or undefined without any. Math.max(...values) fails if they are more than the stack has room for.
export function largest(values) {
  return values.reduce((most, value) => most === undefined || value > most ? value : most, undefined);
}

// Returns a - b as a number, which is exact if the difference is below 2^53.
export function difference(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return Number(wide(a) - wide(b));
}

function wide(value) {
  return typeof value === "bigint" ? value : BigInt(Math.trunc(value || 0));
}
