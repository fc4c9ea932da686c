// The page: topics, and a topic's nodes and channels. All texts of servers are set as text, never as HTML.

const content = document.getElementById('content');
const base = new URL(document.baseURI).pathname;

async function get(path) {
  const response = await fetch(path);
  const answer = await response.json();
  document.getElementById('message').textContent = answer.message;
  if (!response.ok) throw new Error(answer.message);
  return answer;
}

function table(headings, rows) {
  const made = document.createElement('table');
  const head = made.createTHead().insertRow();
  for (const heading of headings) {
    const cell = document.createElement('th');
    cell.textContent = heading;
    head.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const cells = body.insertRow();
    for (const value of row) {
      const cell = cells.insertCell();
      if (value instanceof Node) cell.append(value);
      else cell.textContent = value;
      if (typeof value === 'number') cell.className = 'number';
    }
  }
  content.append(made);
}

function link(path, text) {
  const made = document.createElement('a');
  made.href = path;
  made.textContent = text;
  return made;
}

async function show() {
  const [view, topic] = location.pathname.slice(base.length).split('/').map(decodeURIComponent);
  if (view === 'topics' && topic) {
    const figures = await get(`api/topics/${encodeURIComponent(topic)}`);
    table(['Node', 'Depth', 'Messages'], figures.nodes.map(node => [node.node, node.depth, node.message_count]));
    table(['Channel', 'Depth', 'In flight', 'Messages', 'Clients'], figures.channels.map(channel =>
      [channel.channel_name, channel.depth, channel.in_flight_count, channel.message_count, channel.client_count]));
    return;
  }
  const { topics } = await get('api/topics');
  table(['Topic'], topics.map(name => [link(`topics/${encodeURIComponent(name)}`, name)]));
}

show().catch(error => { document.getElementById('message').textContent = error.message; });
