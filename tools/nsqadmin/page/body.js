// Bodies of messages as people read them: JSON with indents, text, hex.

// The ways to show a body. "auto" is JSON if it is JSON, else text, else hex.
export const FORMS = { auto: "As it is", json: "JSON", text: "Text", hex: "Hex" };

// The deepest level that is indented further. Otherwise a small body with thousands of brackets becomes megabytes of spaces.
const LEVELS_MAX = 32;

// The text of a JSON document whose structure can be indented, or null for anything else. Numbers and strings stay as they are
// written, so that no digit is lost.
export function indented(text) {
  try {
    if (typeof JSON.parse(text) !== "object") return null;
  } catch {
    return null;
  }
  let [out, depth] = ["", 0];
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  tokens.forEach((token, index) => {
    const line = () => `\n${"  ".repeat(Math.min(depth, LEVELS_MAX))}`;
    const isEmpty = (token === "}" && tokens[index - 1] === "{") || (token === "]" && tokens[index - 1] === "[");
    if (token === "}" || token === "]") {
      depth -= 1;
      out += isEmpty ? token : line() + token;
    } else {
      if (tokens[index - 1] === "{" || tokens[index - 1] === "[") out += line();
      if (token === "{" || token === "[") depth += 1;
      out += token === ":" ? ": " : token;
      if (token === ",") out += line();
    }
  });
  return out;
}

// Sixteen bytes a line: the place, the bytes, and their characters.
export function hex(bytes) {
  const lines = [];
  for (let place = 0; place < bytes.length; place += 16) {
    const part = [...bytes.subarray(place, place + 16)];
    const numbers = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const characters = part.map((byte) => byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".").join("");
    lines.push(`${place.toString(16).padStart(6, "0")}  ${numbers}  ${characters}`);
  }
  return lines.join("\n");
}

function bytesOf({ encoding, body }) {
  return encoding === "base64" ? Uint8Array.from(atob(body), (character) => character.charCodeAt(0)) : new TextEncoder().encode(body);
}

// Returns {text, isHex, note}: the body of a message in a form of FORMS, and what is to be said about it.
export function shownBody(message, form) {
  const isText = message.encoding === "text";
  if (form === "hex" || (!isText && form === "auto")) return { text: hex(bytesOf(message)), isHex: true };
  const text = isText ? message.body : new TextDecoder().decode(bytesOf(message));
  const note = isText ? undefined : "This is no UTF-8.";
  if (form === "text") return { text, note };
  const json = indented(text);
  if (json !== null) return { text: json };
  return { text, note: note ?? (form === "json" ? (message.is_cut ? "Not the whole body is here, so it is no JSON." : "This is no JSON document.") : undefined) };
}
