// actions.js has what an operator can do from here. Each action is a dialog that
// says in figures what will happen, and the command line that does the same;
// whoever may only look gets the command line.
import { h, put, say, text, natural } from './dom.js';
import { many, span } from './words.js';
import { store } from './store.js';

// command is a leasehold command line against this server. Names are letters,
// digits and . _ - : so the shell needs no quotes; one that begins with a dash
// has to come last.
export function command(words, flags = []) {
  const server = store.hello?.cli_server;
  const opts = server ? [...flags, '--server', server] : flags;
  const at = words.findIndex((w) => String(w).startsWith('-'));
  return ['leasehold', ...(at < 0 ? [...words, ...opts] : [...words.slice(0, at), ...opts, '--', ...words.slice(at)])].join(' ');
}

// copy puts a line on the clipboard. Where the browser does not let it (plain
// HTTP from another machine), it selects the line, so that a key is enough.
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return 'Copied';
  } catch {
    getSelection().selectAllChildren(code);
    return 'Selected: press Ctrl+C';
  }
}

// cli shows a command line with a button that copies it. line is a function:
// what it says may change while it is shown; update looks again.
export function cli(line) {
  const code = h('code'), label = 'Copy as CLI';
  const update = () => text(code, line());
  const button = h('button', { type: 'button', class: 'ghost', onclick: async () => {
    update();
    const done = await copy(code);
    button.textContent = done;
    say(`${done}: ${line()}`);
    setTimeout(() => { button.textContent = label; }, 2500);
  } }, label);
  update();
  return { el: h('div', { class: 'cli' }, code, button), update };
}

// failure says what the server had against it, with field, value and limit.
export function failure(err) {
  const d = err.detail ?? {}, message = d.message || err.message;
  const rest = [d.field && !message.includes(d.field) && `${d.field} ${d.value ?? ''}`, d.limit && !message.includes(d.limit) && `want ${d.limit}`].filter(Boolean);
  return rest.length ? `${message} (${rest.join('; ')})` : message;
}

let fading = 0;

// tell says how something ended, to eyes and to ears.
function tell(words) {
  say(words);
  document.querySelector('.toast')?.remove();
  const toast = document.body.appendChild(h('div', { class: 'toast', 'aria-hidden': 'true', text: words }));
  clearTimeout(fading);
  fading = setTimeout(() => toast.remove(), 6000);
}

// ask opens a dialog and resolves to whether the action was carried out.
// verb and what are its title, does() promises lines that say what will happen,
// line() is the command line, field a control, ready() whether the button may be
// pressed, and run() promises what to tell.
function ask({ verb, what, danger, does, line, field, ready = () => true, run }) {
  const may = !!store.hello?.operator;
  const list = h('ul', null, h('li', { class: 'muted', text: 'Looking at what it would do…' }));
  const error = h('p', { class: 'bad', role: 'alert' });
  const shown = cli(line);
  const go = h('button', { type: 'submit', class: danger ? 'danger' : 'main' });
  let busy = false, done = false;
  const changed = () => {
    text(go, busy ? `${verb}…` : verb);
    go.disabled = busy || !ready();
    shown.update();
  };
  async function submit(e) {
    e.preventDefault();
    if (busy || !may || !ready()) return;
    busy = true;
    text(error, '');
    changed();
    try {
      const words = await run();
      done = true;
      dialog.close();
      tell(words);
    } catch (err) {
      text(error, failure(err));
      if (!dialog.open) tell(failure(err));
    }
    busy = false;
    changed();
  }
  const dialog = h('dialog', { class: 'ask', 'aria-labelledby': 'ask-title', 'aria-describedby': 'ask-does', oncancel: (e) => { if (busy) e.preventDefault(); } }, // an answer is on its way
    h('form', { onsubmit: submit, oninput: changed }, h('h2', { id: 'ask-title', text: `${verb} ${what}` }), h('div', { id: 'ask-does' }, list), field,
      h('p', { class: 'muted small', text: may ? 'The same on the command line:' : 'This console may only look. On the command line:' }), shown.el, error,
      h('div', { class: 'row buttons' }, h('button', { type: 'button', class: 'ghost', onclick: () => dialog.close() }, may ? 'Cancel' : 'Close'), may ? go : null)));
  document.body.append(dialog);
  changed();
  dialog.showModal();
  const lines = (all, look) => put(list, all.filter(Boolean).map((l) => h('li', { class: look, text: l })));
  does().then((all) => lines(all), (err) => lines([`What it would do is not known: ${failure(err)}`], 'warn'));
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => { dialog.remove(); resolve(done); });
  });
}

const call = (method, message) => store.call('WorkerService', method, message);
const listed = async () => (await call('ListWorkers', { stale: true })).items ?? [];

// able are those of all workers that could take what is of one of some keyspaces.
const able = (all, keyspaces, besides) => all.filter((w) => w.id !== besides && w.state === 'live' && !w.draining
  && keyspaces.some((k) => w.keyspaces?.includes(k)) && !(w.capacity && Number(w.held ?? 0) >= w.capacity));

const fenced = (k) => k.takeover === 'TAKEOVER_FENCED';

// facts are what a dialog about a worker speaks of, from the server's state.
async function facts(id) {
  const [ws, ks] = await Promise.all([listed(), store.call('KeyspaceService', 'ListKeyspaces', { stale: true })]);
  const w = ws.find((x) => x.id === id) ?? {};
  const its = (ks.items ?? []).filter((k) => w.keyspaces?.includes(k.name));
  return { others: able(ws, w.keyspaces ?? [], id).length, held: Number(w.held ?? 0), open: !!w.session_id, left: `now in ${span(Number(w.remaining_ms ?? 0))} of ${span(Number(w.ttl_ms ?? 0))}`,
    handoff: span(Math.max(0, ...its.map((k) => Number(k.handoff_timeout_ms ?? 0)))), strict: its.some((k) => !fenced(k)), fenced: its.some(fenced) };
}

const drain = (id) => ask({
  verb: 'Drain', what: id,
  line: () => command(['workers', 'drain', id]),
  does: async () => {
    const f = await facts(id), { others } = f;
    return [
      f.held ? `Hands over ${many(f.held, 'partition')}. Each handler has up to ${f.handoff} to finish; ${id} is the owner until then.` : `${id} holds no partition: nothing moves.`,
      f.held && (others ? `${many(others, 'other live worker')} can take them, about ${Math.ceil(f.held / others)} more each.` : 'No other live worker can take them.'),
      `Nothing new is granted to ${id} until it is undrained, however often it or a server restarts.`,
      f.open && 'Its session stays open.',
    ];
  },
  run: async () => `Worker ${id} gets nothing new, holds ${(await call('DrainWorker', { id })).held ?? 0}.`,
});

const undrain = (id) => ask({
  verb: 'Undrain', what: id,
  line: () => command(['workers', 'undrain', id]),
  does: async () => {
    const f = await facts(id);
    return [`${id} may be granted partitions again; it holds ${f.held} now.`,
      f.open ? 'Partitions without an owner come at once, others a few at a time, if the load is uneven.' : 'It has no session now: partitions come when it joins again.'];
  },
  run: async () => {
    await call('UndrainWorker', { id });
    return `Worker ${id} may have partitions again.`;
  },
});

function evict(id) {
  const input = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', autofocus: true });
  return ask({
    verb: 'Evict', what: id, danger: true,
    line: () => command(['workers', 'evict', id], ['--yes']),
    field: store.hello?.operator ? h('label', null, `Type ${id} to confirm`, input) : null,
    ready: () => input.value.trim() === id,
    does: async () => {
      const f = await facts(id);
      const when = f.strict ? `when it has released them, at the latest when its TTL has run out (${f.left})${f.fenced ? '; those of fenced keyspaces at once' : ''}` : 'at once: the guard at the resource refuses what it still writes';
      return [
        f.open ? `Ends the session of ${id}: it cannot renew any more, and its handlers are stopped.` : `${id} has no session: only its id is drained.`,
        f.held ? `Its ${many(f.held, 'partition')} ${f.held === 1 ? 'moves' : 'move'} ${when}.` : 'It holds no partition.',
        `Nothing is granted to ${id} until it is undrained.`,
        f.open && 'Drain it instead if it still does as it is told: then its handlers can finish.',
      ];
    },
    run: async () => `Worker ${id} is evicted, still holds ${(await call('EvictWorker', { id })).held ?? 0}.`,
  });
}

const one = (method, keyspace, partition, more) => store.call('PartitionService', method, { keyspace, partition, ...more });

async function move(keyspace, n) {
  const p = store.partitions, owner = store.keyspace === keyspace ? p.owners[p.owner[n]] : '';
  const held = (w) => Number(w.held ?? 0), all = await listed().catch(() => []);
  const to = able(all, [keyspace], owner).sort((a, b) => held(a) - held(b) || natural.compare(a.id, b.id));
  const select = h('select', { autofocus: true }, to.map((w) => h('option', { value: w.id }, `${w.id}: holds ${held(w)}${w.capacity ? ` of ${w.capacity}` : ''}${w.zone ? `, ${w.zone}` : ''}`)));
  return ask({
    verb: 'Move', what: `${keyspace}/${n}`,
    line: () => command(['partitions', 'move', keyspace, n], ['--to', select.value || 'WORKER']),
    field: to.length ? h('label', null, 'To', select) : h('p', { class: 'warn', text: 'No other live worker can take it.' }),
    ready: () => to.length > 0,
    does: async () => {
      const [now, ks] = await Promise.all([one('GetPartition', keyspace, n, { stale: true }), store.call('KeyspaceService', 'GetKeyspace', { name: keyspace, stale: true })]);
      return [now.owner ? `${now.owner} is asked to finish and has up to ${span(Number(ks.handoff_timeout_ms ?? 0))}; it is the owner until it has released it.` : 'Nobody owns it: it is granted at once.',
        'The new owner gets it with a new token. No other partition moves.'];
    },
    run: async () => {
      await one('MovePartition', keyspace, n, { to: select.value });
      return `${keyspace}/${n} moves to ${select.value}.`;
    },
  });
}

const retry = (keyspace, n) => ask({
  verb: 'Retry', what: `${keyspace}/${n}`,
  line: () => command(['partitions', 'retry', keyspace, n]),
  does: async () => {
    const { failures } = await one('GetPartition', keyspace, n, { stale: true });
    return [failures ? `Ends the quarantine and forgets that ${many(failures, 'worker')} failed on it.` : 'No failure is counted against it: nothing changes.',
      'It is granted again at once. If handlers go on failing, it is quarantined again.'];
  },
  run: async () => {
    await one('RetryPartition', keyspace, n);
    return `${keyspace}/${n} will be tried again.`;
  },
});

// act is what views offer.
export const act = { drain, undrain, evict, move, retry };
