// The columns of tables of consumers.

import { html } from "./html.js";
import { age } from "./format.js";
import { Badge, NodeLink, counted, rated } from "./parts.js";

export const clientKey = (client) => `${client.node} ${client.remote_address}`;

export const clientText = (client) => [client.hostname, client.client_id, client.remote_address, client.user_agent, client.node,
  client.topic_name, client.channel_name].join(" ").toLowerCase();

// The client's id, unless it only repeats the host name.
function id(client) {
  const [own, host] = [(client.client_id ?? "").toLowerCase(), (client.hostname ?? "").toLowerCase()];
  return own === "" || own === host || own === host.split(".")[0] ? "" : ` (${client.client_id})`;
}

// `before` are columns after the client's name. With `hasNode`, a column tells the client's node.
export function clientColumns({ before = [], hasNode = true } = {}) {
  return [
    { key: "client", title: "Consumer", isText: true, value: (row) => row.hostname || row.remote_address,
      cell: (row) => html`<span title=${`remote address ${row.remote_address}`}>${row.hostname || row.remote_address}${id(row)}</span>` },
    ...before,
    ...(hasNode ? [{ key: "at", title: "Node", isText: true, value: (row) => row.node, cell: (row) => html`<${NodeLink} node=${row.node} />` }] : []),
    counted("flight", "In flight", "in_flight_count", "Messages that this consumer has and has not finished"),
    counted("ready", "Ready", "ready_count", "Messages that the consumer takes at a time (RDY)"),
    ...(hasNode ? [rated("done", "Done/s", "done", "Messages finished per second")] : []),
    counted("finished", "Finished", "finish_count"),
    counted("requeued", "Requeued", "requeue_count"),
    counted("messages", "Messages", "message_count"),
    { key: "connected", title: "Connected", value: (row) => row.connected, cell: (row) => age(Number(row.connected) / 1e6) },
    { key: "attributes", title: "Attributes", isText: true, value: (row) => row.user_agent, cell: (row) => html`<${Attributes} client=${row} />` },
    { key: "agent", title: "User agent", isText: true, value: (row) => row.user_agent, cell: (row) => row.user_agent || "–" },
  ];
}

function Attributes({ client }) {
  const tls = client.tls && `${client.tls_version} ${client.tls_cipher_suite} ${client.tls_negotiated_protocol} mutual: ${client.tls_negotiated_protocol_is_mutual}`;
  const isZone = client.topology_zone && client.topology_zone === client.node_topology_zone;
  const isRegion = client.topology_region && client.topology_region === client.node_topology_region;
  const identity = client.auth_identity || "no name";
  const found = [
    client.sample_rate > 0 && html`<${Badge} kind="warn" title="This consumer gets only a part of the messages">sampled ${client.sample_rate}%<//>`,
    client.tls && html`<${Badge} kind="plain" title=${tls}>TLS<//>`,
    client.deflate && html`<${Badge} kind="plain">deflate<//>`,
    client.snappy && html`<${Badge} kind="plain">snappy<//>`,
    client.authed && html`<${Badge} kind="plain" title="Authenticated">${safe(client.auth_identity_url)
      ? html`<a href=${client.auth_identity_url} target="_blank" rel="noreferrer">${identity}</a>` : identity}<//>`,
    client.topology_region && html`<${Badge} kind="plain" title="Region">${client.topology_region}<//>`,
    client.topology_zone && html`<${Badge} kind="plain" title="Zone">${client.topology_zone}<//>`,
    isZone ? html`<${Badge} kind="good">same zone<//>` : isRegion && html`<${Badge} kind="info">same region<//>`,
  ].filter(Boolean);
  return found.length > 0 ? html`<span class="badges">${found}</span>` : "–";
}

// A link that an auth server names may lead to a web page, and nowhere else.
function safe(url) {
  return /^https?:\/\//i.test(url ?? "");
}

