// The abilities of nsqds beyond nsqd 1.3.0: pauses with an end, and emptied messages that come back.

import { useEffect, useState } from "./html.js";
import { ask } from "./api.js";

// Asks what the nodes of `topic` can do, or all nodes without a topic. Returns null until the answer is there, and then
// {pauseTerms, undo, topicUndo}: each has `all`, `any`, `without`, the nodes that cannot, and `isUnknown`, true if no node has
// answered.
export function useAbilities(topic, isWanted = true) {
  const [abilities, setAbilities] = useState(null);
  useEffect(() => {
    if (!isWanted) return undefined;
    const cancel = new AbortController();
    const query = topic ? `?topic=${encodeURIComponent(topic)}` : "";
    // Without an answer, the dialog offers what every nsqd can do.
    ask(`api/abilities${query}`, { signal: cancel.signal }).then(({ nodes }) => setAbilities(summary(nodes ?? [])),
      () => setAbilities(summary([])));
    return () => cancel.abort();
  }, [topic, isWanted]);
  return abilities;
}

export function summary(nodes) {
  const of = (name) => {
    const without = nodes.filter((node) => !node[name]).map((node) => node.node);
    return { all: nodes.length > 0 && without.length === 0, any: without.length < nodes.length, without, isUnknown: nodes.length === 0 };
  };
  return { pauseTerms: of("pause_terms"), undo: of("undo"), topicUndo: of("topic_undo") };
}
