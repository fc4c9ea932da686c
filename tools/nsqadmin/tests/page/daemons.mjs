// What the checks ask of the daemons themselves.

import { connect } from "node:net";

async function ask(address, target, method = "GET", body) {
  const answer = await fetch(`http://${address}${target}`, { method, body });
  if (!answer.ok) throw new Error(`${address}${target}: ${answer.status} ${await answer.text()}`);
  const text = await answer.text();
  return text.startsWith("{") ? JSON.parse(text) : text;
}

// The topics that nsqlookupd knows.
export async function topicsAt(lookupd) {
  return (await ask(lookupd, "/topics")).topics;
}

// The addresses of the nsqds that nsqlookupd names for a topic.
export async function producersOf(lookupd, topic) {
  const { producers } = await ask(lookupd, `/lookup?topic=${encodeURIComponent(topic)}`);
  return producers.map((one) => `${one.broadcast_address}:${one.http_port}`).sort();
}

// The topic's object in the nsqd's statistics, or undefined.
export async function topicAt(nsqd, topic) {
  return (await ask(nsqd.http, `/stats?format=json&topic=${encodeURIComponent(topic)}`)).topics?.[0];
}

// The channel's object in the nsqd's statistics, or undefined.
export async function channelAt(nsqd, topic, channel) {
  return (await topicAt(nsqd, topic))?.channels.find((one) => one.channel_name === channel);
}

// Makes a topic with channels on each nsqd, and publishes `messages` there.
export async function make(nsqds, topic, channels, messages) {
  for (const { http } of nsqds) {
    await ask(http, `/topic/create?topic=${topic}`, "POST");
    for (const channel of channels) await ask(http, `/channel/create?topic=${topic}&channel=${encodeURIComponent(channel)}`, "POST");
    await publish(http, topic, messages);
  }
}

export async function publish(http, topic, messages) {
  if (messages > 0) await ask(http, `/mpub?topic=${topic}`, "POST", Array(messages).fill("body").join("\n"));
}

// Publishes one message: a text or bytes, deferred by `deferMs`.
export async function publishBody(http, topic, body, deferMs = 0) {
  await ask(http, `/pub?topic=${topic}&defer=${deferMs}`, "POST", body);
}

// Publishes a message with a publisher's number, for a topic whose rule has the key `publisher`.
export async function publishNumbered(http, topic, publisher, number) {
  await ask(http, `/pub?topic=${topic}&publisher=${publisher}&number=${number}`, "POST", "body");
}

// Publishes texts, each without a line break.
export async function publishBodies(http, topic, texts) {
  await ask(http, `/mpub?topic=${topic}`, "POST", texts.join("\n"));
}

// Opens a connection that has said who it is. Ends the process's hold on it with the function that it returns.
async function connection(nsqd, identity) {
  const [host, port] = nsqd.tcp.split(":");
  const socket = connect(Number(port), host);
  // The nsqd that a check kills closes its connections.
  socket.on("error", () => {});
  await new Promise((resolve) => socket.on("connect", resolve));
  const text = JSON.stringify({ feature_negotiation: false, heartbeat_interval: 60_000, ...identity });
  socket.write(Buffer.concat([Buffer.from("  V2IDENTIFY\n"), sized(Buffer.from(text))]));
  // Nobody answers the heartbeats. Without any command, nsqd would close the connection after two of them.
  const alive = setInterval(() => socket.write("NOP\n"), 30_000);
  socket.on("close", () => clearInterval(alive));
  return socket;
}

function sized(bytes) {
  const size = Buffer.alloc(4);
  size.writeUInt32BE(bytes.length);
  return Buffer.concat([size, bytes]);
}

// Deletes a topic on each nsqd.
export async function remove(nsqds, topic) {
  for (const { http } of nsqds) await ask(http, `/topic/delete?topic=${topic}`, "POST");
}

export async function pause(nsqds, topic, channel, note = "") {
  for (const { http } of nsqds) await ask(http, `/channel/pause?topic=${topic}&channel=${channel}&note=${encodeURIComponent(note)}`, "POST");
}

// Empties a channel, or with an empty name the topic itself. What was emptied can come back for the time `undo`.
export async function empty(nsqds, topic, channel, undo) {
  const target = channel ? `/channel/empty?topic=${topic}&channel=${channel}` : `/topic/empty?topic=${topic}`;
  for (const { http } of nsqds) await ask(http, `${target}&undo=${undo}`, "POST");
}

// Tells an nsqd which nsqlookupds it registers with, by their TCP addresses.
export async function registerAt(nsqd, addresses) {
  await ask(nsqd.http, "/config/nsqlookupd_tcp_addresses", "PUT", JSON.stringify(addresses));
}

// Calls `act` `perSecond` times in a second. What a busy machine has missed comes later, at once. Returns the timer.
function repeat(perSecond, act) {
  let due = performance.now() + 500 / perSecond;
  return setInterval(() => {
    for (; performance.now() >= due; due += 1000 / perSecond) act();
  }, 1000 / perSecond);
}

// A producer that publishes `perSecond` messages. Returns the function that ends it.
export async function produce(nsqd, topic, perSecond, clientId = "shop") {
  const socket = await connection(nsqd, { client_id: clientId, hostname: "host-p", user_agent: "page-test/1.0" });
  socket.resume();
  const timer = repeat(perSecond, () => socket.write(Buffer.concat([Buffer.from(`PUB ${topic}\n`), sized(Buffer.from("body"))])));
  return () => {
    clearInterval(timer);
    socket.destroy();
  };
}

// Calls `take` with the id and the body of each message that comes.
function onMessage(socket, take) {
  let input = Buffer.alloc(0);
  socket.on("data", (data) => {
    input = Buffer.concat([input, data]);
    while (input.length >= 4 && input.length >= 4 + input.readUInt32BE(0)) {
      const size = input.readUInt32BE(0);
      // A frame of type 2 has a message: time, attempts, id, body.
      if (input.readUInt32BE(4) === 2) take(input.subarray(18, 34).toString(), input.subarray(34, 4 + size));
      input = input.subarray(4 + size);
    }
  });
}

// A consumer that finishes `perSecond` messages. It requeues those whose body has the text `poison`, if there is one. `place` has its
// zone and region. Returns the function that ends it.
export async function finish(nsqd, topic, channel, perSecond, { agent = "page-test/1.0", poison, place = {} } = {}) {
  const socket = await connection(nsqd, { client_id: "worker", hostname: "host-w", user_agent: agent, ...place });
  const ids = [];
  onMessage(socket, (id, body) => {
    if (poison && body.includes(poison)) socket.write(`REQ ${id} 300\n`);
    else ids.push(id);
  });
  socket.write(`SUB ${topic} ${channel}\nRDY ${perSecond < 100 ? 4 : 100}\n`);
  const timer = repeat(perSecond, () => ids.length > 0 && socket.write(`FIN ${ids.shift()}\n`));
  return () => {
    clearInterval(timer);
    socket.destroy();
  };
}

// A consumer that takes `ready` messages and never finishes one. It requeues once the one with the body `retry`. Returns the function
// that ends it.
export async function consume(nsqd, topic, channel, ready, { retry } = {}) {
  const socket = await connection(nsqd, { client_id: "consumer-7", hostname: "host-c", user_agent: "page-test/1.0" });
  let left = retry === undefined ? 0 : 1;
  onMessage(socket, (id, body) => {
    if (left === 0 || body.toString() !== retry) return;
    left -= 1;
    socket.write(`REQ ${id} 0\n`);
  });
  socket.write(`SUB ${topic} ${channel}\nRDY ${ready}\n`);
  return () => socket.destroy();
}
