// store.js is what the page knows: the server's feed, kept up to date, and a way
// to ask the API. store.on(topic, fn) calls fn(value, change) and returns what ends
// that. Of partitions, change has the numbers that differ (null: all may); of
// events, the new ones.

const KEPT = 1000; // events
const DEAF = 15_000; // ms without a word: the server says something every 5 s
const PATIENCE = 30_000; // ms for an answer
const UNSEEN = 60_000; // ms out of sight
const SILENT = 'the server does not answer';
const WAITS = [500, 1000, 2000, 4000, 8000]; // ms between tries

const listeners = new Map();

export const store = {
  connected: false,
  problem: '', // why it is not connected
  hello: null,
  at: 0, // of the last message, by the server's clock
  keyspace: '', // '': the first there is
  cluster: null,
  keyspaces: [],
  workers: [],
  servers: [],
  gossip: [],
  partitions: table({}),
  events: [], // newest last

  on(topic, fn) {
    if (!listeners.has(topic)) listeners.set(topic, new Set());
    listeners.get(topic).add(fn);
    return () => listeners.get(topic).delete(fn);
  },

  watch(keyspace) {
    store.keyspace = keyspace;
    tries = 0;
    connect();
  },

  // now is the time by the server's clock: the viewer's may be wrong.
  now: () => (store.at ? clock + performance.now() : Date.now()),

  // A refusal is thrown as an Error with code and detail, and so is silence.
  async call(service, method, message = {}) {
    const url = new URL(`../leasehold.v1.${service}/${method}`, import.meta.url);
    const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(message), signal: AbortSignal.timeout(PATIENCE) })
      .catch(() => { throw refusal('unavailable', SILENT); });
    const text = await response.text().catch(() => '');
    let answer = null;
    try {
      answer = JSON.parse(text);
    } catch {
      // not of the API
    }
    if (response.ok && answer) return answer;
    throw refusal(answer?.code ?? 'unknown', answer?.message || text || `the server says ${response.status}`, answer?.details?.[0]?.debug);
  },
};

function refusal(code, message, detail = {}) {
  return Object.assign(new Error(message), { code, detail });
}

function table({ n = 0, owners = [], owner = [], state = [], since = [], churn = [] }) {
  return { n, owners, owner: Int32Array.from(owner), state: Uint8Array.from(state), since: Float64Array.from(since), churn: Uint16Array.from(churn) };
}

function tell(topic, value, change) {
  for (const fn of [...(listeners.get(topic) ?? [])]) {
    try {
      fn(value, change);
    } catch (err) {
      reportError(err);
    }
  }
}

let stream = null; // ends the connection
let tries = 0;
let retry = 0; // timer
let heard = 0; // when
let seq = 0;
let clock = 0; // of the server, less performance.now()

async function connect() {
  stream?.abort();
  clearTimeout(retry);
  const mine = (stream = new AbortController());
  heard = performance.now();
  const url = new URL('feed', import.meta.url);
  if (store.keyspace) url.searchParams.set('keyspace', store.keyspace);
  let why = 'the server has ended the connection';
  try {
    const response = await fetch(url, { signal: mine.signal, cache: 'no-store', headers: { accept: 'text/event-stream' } });
    if (!response.ok) throw refusal('', (await response.text()).trim());
    await read(response.body);
  } catch (err) {
    why = err.name === 'TypeError' ? SILENT : err.message;
  }
  if (mine !== stream) return; // another has taken its place
  stream = null;
  lost(why);
}

// Events of the stream are parted by an empty line.
async function read(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard = performance.now();
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const found = /^event: (\w+)\ndata: /.exec(part);
      if (found) take(found[1], JSON.parse(part.slice(found[0].length)));
    }
  }
}

function lost(why) {
  store.problem = why;
  if (store.connected) {
    store.connected = false;
    tries = 0;
  }
  tell('connection', false);
  const wait = WAITS[Math.min(tries++, WAITS.length - 1)];
  retry = setTimeout(connect, wait * (0.75 + Math.random() / 2)); // not all pages at once
}

setInterval(() => {
  if (stream && performance.now() - heard > DEAF) {
    stream.abort();
    stream = null;
    lost('the server has fallen silent');
  }
}, 1000);

// A page that nobody sees gives its place to others.
let unseen = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(unseen);
  if (document.hidden) {
    unseen = setTimeout(() => {
      clearTimeout(retry);
      const open = stream;
      stream = null;
      open?.abort();
    }, UNSEEN);
  } else if (!stream) {
    tries = 0;
    connect();
  }
});

function take(kind, m) {
  if (kind === 'hello') {
    // Another cluster at this address: nothing of what is known is of it.
    if (store.hello?.cluster_id && store.hello.cluster_id !== m.cluster_id) return location.reload();
    store.hello = m;
    tell('hello', m);
    return;
  }
  if (kind === 'delta' && m.seq !== seq + 1) throw new Error('a message is missing'); // connects anew
  seq = m.seq;
  store.at = m.at;
  clock = m.at - performance.now();
  if (kind === 'full') begin(m);
  for (const topic of ['cluster', 'keyspaces', 'workers', 'servers', 'gossip']) {
    if (!m[topic]) continue;
    store[topic] = m[topic];
    tell(topic, store[topic]);
  }
  if (m.partitions) tell('partitions', store.partitions, kind === 'full' ? null : change(m.partitions));
  if (m.events) tell('events', store.events, append(m.events));
}

function begin(m) {
  const fresh = !store.connected, p = m.partitions;
  store.keyspace = m.keyspace;
  store.connected = true;
  store.problem = '';
  tries = 0;
  store.partitions = p.omitted ? { ...table({}), total: p.n, omitted: true } : table(p);
  if (fresh) tell('connection', true);
}

// change returns the numbers of the partitions in a delta.
function change({ owners, changed }) {
  const p = store.partitions;
  if (owners) p.owners.push(...owners);
  for (const [i, owner, state, since, churn] of changed) {
    p.owner[i] = owner;
    p.state[i] = state;
    p.since[i] = since;
    p.churn[i] = churn;
  }
  return changed.map((c) => c[0]);
}

// append returns the events that were not known. A list that goes back behind what
// is known is of a cluster that was restored: it counts.
function append(events) {
  const last = Number(store.events.at(-1)?.revision ?? 0);
  const newest = Number(events.at(-1)?.revision ?? 0);
  if (newest < last) store.events = [];
  const fresh = newest < last ? events : events.filter((e) => Number(e.revision) > last);
  store.events = store.events.concat(fresh).slice(-KEPT);
  return fresh;
}

queueMicrotask(() => stream ?? connect());
