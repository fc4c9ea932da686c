// What the emptying of a channel frees on disk. Files stay as long as another channel owes messages of them.

import { useEffect, useState } from "./html.js";
import { api, ask } from "./api.js";
import { plus } from "./exact.js";
import { many, size } from "./format.js";

// Asks the nodes of a channel. Returns null until the answer is there, or without `place`, and then a sentence, or "" if no node tells.
export function useDiskUse(place) {
  const [sentence, setSentence] = useState(null);
  useEffect(() => {
    if (!place) return undefined;
    const cancel = new AbortController();
    ask(api("disk", place.topic, place.channel), { signal: cancel.signal }).then(({ nodes }) => setSentence(sentenceOf(nodes ?? [])), () => setSentence(""));
    return () => cancel.abort();
  }, [place?.topic, place?.channel]);
  return sentence;
}

export function sentenceOf(nodes) {
  if (nodes.length === 0) return "";
  const sum = (key) => nodes.reduce((total, node) => plus(total, node[key]), 0);
  const [all, alone] = [sum("bytes"), sum("alone_bytes")];
  if (String(all) === String(alone)) return size(alone);
  const names = [...new Set(nodes.flatMap((node) => node.shared_with))];
  // Each node tells the first names only.
  const more = Math.max(0, ...nodes.map((node) => Number(node.shared_count) - node.shared_with.length));
  const who = [...(names.length > 0 ? [`${names.join(", ")}${more > 0 ? ` and ${many(more, "other channel", "other channels")}` : ""}`] : []),
    ...(nodes.some((node) => node.shared_with_topic) ? ["the topic itself, for messages that wait in it or can be brought back"] : [])];
  return `${size(alone)} of ${size(all)}. The rest stays, because the same files are needed by ${who.join(", and by ")}`;
}
