// The workers, those that need somebody first: what they hold against what they
// may, and how much of their lease is left.
import { h, text, attr, panel, table, natural } from '../dom.js';
import { many, count, span, clock, stamp, when, happened, because } from '../words.js';
import { colour, token } from '../colours.js';
import { cli, command } from '../actions.js';
import { at, col, cut, dot, facts, same, tag, tags } from './parts.js';

export const title = 'Workers';

const keep = 120_000; // how much of a margin's past is drawn
const chips = 240; // partitions shown of a worker before somebody asks for all

// past has the lease margins seen since the console was opened, by worker:
// [time, margin]. It outlives the view, so that coming back shows it.
const past = new Map();

function remember(workers, now) {
  for (const w of workers) {
    if (!w.ttl_ms) continue;
    if (!past.has(w.id)) past.set(w.id, []);
    past.get(w.id).push([now, w.margin]);
  }
  for (const [id, line] of past) {
    while (line.length && line[0][0] < now - keep) line.shift();
    if (!line.length) past.delete(id);
  }
}

// needs is how much a worker needs somebody, 0 to 3, and why. Nothing here
// decides anything: states are the server's words.
export function needs(w) {
  const why = [];
  let level = 0;
  const say = (on, l, words) => {
    if (!on) return;
    level = Math.max(level, l);
    if (words) why.push(words);
  };
  const open = w.ttl_ms > 0;
  say(w.draining || w.state === 'leaving', 1, w.draining && (w.held ? 'draining' : 'drained'));
  say(!open && w.held, 3, `still holds ${w.held}`);
  say(w.state === 'evicted' || w.state === 'superseded', w.held ? 3 : 2);
  say(open && w.margin < 0.5, w.margin < 0.25 ? 3 : 2, w.margin < 0.25 ? 'lease nearly over' : 'keep-alives late');
  say(open && w.attached === false, 2, 'not connected');
  say(w.gossip === 'dead' || w.gossip === 'suspect', w.gossip === 'dead' ? 3 : 2);
  say(w.overruns || w.fencing_rejections || w.longest_pause_ms > w.ttl_ms / 4, 2);
  return { level, why };
}

const looks = ['', 'warn', 'warn', 'bad'];

function spark(canvas, line, now, [dull, bright]) {
  const [w, tall, ratio] = [84, 22, devicePixelRatio || 1];
  [canvas.width, canvas.height] = [w * ratio, tall * ratio];
  const c = canvas.getContext('2d');
  c.scale(ratio, ratio);
  const y = (m) => 1 + (1 - m) * (tall - 2);
  c.fillStyle = dull;
  for (let x = 0; x < w; x += 4) c.fillRect(x, y(0.25), 1, 1);
  c.strokeStyle = bright;
  c.beginPath();
  let before = -Infinity;
  for (const [t, m] of line) {
    c[t - before > 8000 ? 'moveTo' : 'lineTo'](w - ((now - t) / keep) * w, y(m));
    before = t;
  }
  c.stroke();
}

function meter() {
  const fill = h('i'), mark = h('b', { hidden: true }), words = h('span');
  const el = h('div', { class: 'meter', role: 'img' }, h('div', { class: 'track' }, fill, mark), words);
  return { el, mark, update(part, says, label, look = '') {
    fill.style.width = `${100 * Math.min(1, part || 0)}%`;
    fill.className = look;
    text(words, says);
    attr(el, 'aria-label', label);
    attr(el, 'title', label);
  } };
}

export function mount(root, { store, params, act }) {
  let chosen = params.query.get('id') ?? '';
  let most = 1, share = 0; // of what any holds, and an even share
  const rows = new Map();
  const search = h('input', { type: 'search', value: params.query.get('q') ?? '', placeholder: 'id, zone, state, endpoint', 'aria-label': 'Filter workers', oninput: draw });
  const summary = h('span', { class: 'muted', role: 'status' });
  const note = h('p', { class: 'muted small' });

  // parts are what a worker's row keeps: a button is still there when a finger
  // comes down on it.
  function parts(w) {
    let r = rows.get(w.key);
    if (!r) {
      const button = (label, look, on) => h('button', { type: 'button', class: `ghost ${look}`, onclick: () => on(r.w) }, label);
      r = { load: meter(), margin: meter(), canvas: h('canvas', { class: 'margins', role: 'img' }),
        open: h('button', { type: 'button', class: 'open', title: w.id, 'aria-controls': 'worker', onclick: () => { chosen = chosen === w.id ? '' : w.id; draw(); details.scrollIntoView({ block: 'nearest' }); } }, dot(colour(w.id)), w.id),
        drain: button('', '', (x) => (x.draining ? act.undrain : act.drain)(x.id)), evict: button('Evict', 'bad', (x) => act.evict(x.id)) };
      r.lease = h('div', { class: 'lease' }, r.margin.el, r.canvas);
      r.acts = h('div', { class: 'acts' }, r.drain, r.evict);
      rows.set(w.key, r);
    }
    if (r.w === w) return r;
    r.w = w;
    attr(r.open, 'aria-expanded', String(chosen === w.id));
    const limit = w.capacity || most;
    r.load.update(w.held / limit, w.capacity ? `${count(w.held)} of ${count(w.capacity)}` : count(w.held), `holds ${w.held}${w.capacity ? ` of at most ${w.capacity}` : ''}`);
    r.load.mark.hidden = !share || share > limit;
    r.load.mark.style.left = `${(100 * share) / limit}%`;
    const left = Math.round(100 * w.margin);
    r.lease.hidden = !w.ttl_ms;
    r.margin.update(w.margin, `${left} %`, `${left} percent: ${span(w.remaining_ms)} of ${span(w.ttl_ms)} left`, w.margin < 0.25 ? 'bad' : w.margin < 0.5 ? 'warn' : '');
    text(r.drain, w.draining ? 'Undrain' : 'Drain');
    for (const b of [r.drain, r.evict]) attr(b, 'aria-label', `${b.textContent} ${w.id}`);
    r.evict.hidden = !w.ttl_ms;
    attr(r.canvas, 'aria-label', `lowest in the last two minutes: ${Math.round(100 * Math.min(1, ...(past.get(w.id) ?? []).map(([, m]) => m)))} percent`);
    return r;
  }

  const grid = table({
    caption: 'Workers, those that need attention first', id: (w) => w.key, sort: { key: 'state', down: true }, empty: 'No worker here. One joins with ownership/worker, or with: leasehold run',
    mark: (w) => (w.need.level > 1 ? `needs-${looks[w.need.level]}` : w.ttl_ms ? '' : 'muted'),
    columns: [
      col('worker', (w) => w.id, (w) => parts(w).open), col('zone', (w) => w.zone, (w) => (w.zone ? cut(w.zone) : '–')),
      col('state', (w) => w.need.level + (w.ttl_ms ? 0.5 : 0), (w) => tags(tag(w.state, { live: 'good', gone: '' }[w.state] ?? 'warn'), w.need.why.map((t) => tag(t, looks[w.need.level])))),
      col('load', (w) => w.held, (w) => parts(w).load.el), col('running', (w) => w.running ?? -1, (w) => (w.running === undefined ? '–' : count(w.running)), true),
      col('lease margin, last 2 min', (w) => w.margin, (w) => parts(w).lease), col('gossip', (w) => w.gossip, (w) => (w.gossip ? tag(w.gossip, { alive: 'good', off: '', dead: 'bad' }[w.gossip] ?? 'warn') : '–')),
      col('trouble', (w) => (w.overruns ?? 0) + (w.fencing_rejections ?? 0), (w) => tags(w.overruns ? tag(many(w.overruns, 'overrun'), 'warn') : null, w.fencing_rejections ? tag(many(w.fencing_rejections, 'rejection'), 'warn') : null,
        w.longest_pause_ms > w.ttl_ms / 20 ? tag(`paused ${span(w.longest_pause_ms)}`, w.longest_pause_ms > w.ttl_ms / 4 ? 'warn' : '') : null)),
      col('version', (w) => w.version || '–'), col('endpoint', (w) => w.endpoint, (w) => (w.endpoint ? cut(w.endpoint) : '–')), col(h('span', { class: 'hush', text: 'actions' }), null, (w) => parts(w).acts),
    ],
  });

  // ------------------------------------------------------------ one worker
  const owns = h('div', { class: 'chips' }), owned = h('h3'), lines = h('ol', { class: 'lines' }), session = facts(), name = h('b', { class: 'mono' });
  let all = '';
  const details = h('div', { id: 'worker', hidden: true }, panel('Its work', name, h('div', { class: 'cols' },
    h('section', null, owned, owns), h('section', null, h('h3', { text: 'Last events' }), lines), h('section', null, h('h3', { text: 'Session' }), session.el))));

  function unfold() {
    const w = (store.workers ?? []).find((x) => x.id === chosen);
    details.hidden = !w;
    if (!w) return;
    text(name, w.id);
    const p = store.partitions, index = p.owners.indexOf(w.id), mine = [];
    for (let i = 0; index >= 0 && i < p.n; i++) if (p.owner[i] === index) mine.push(i);
    text(owned, p.omitted ? `Partitions of ${store.keyspace}: too many to show` : `${many(mine.length, 'partition')} of ${store.keyspace}`);
    const some = all === w.id ? mine : mine.slice(0, chips);
    same(owns, [store.keyspace, w.id, mine.length, some.map((i) => [i, p.state[i] === 2])], () => [
      some.map((i) => h('a', { class: p.state[i] === 2 ? 'chip warn' : 'chip', href: at(store.keyspace, i), title: p.state[i] === 2 ? 'draining' : null }, i)),
      mine.length > some.length ? h('button', { type: 'button', class: 'ghost', onclick: () => { all = w.id; unfold(); } }, `and ${count(mine.length - some.length)} more`) : null]);
    const own = store.events.filter((e) => e.worker === w.id || e.from === w.id).slice(-8).reverse();
    same(lines, [w.id, own[0]?.revision], () => (own.length ? own.map((e) => h('li', null, h('time', { class: 'mono muted', title: stamp(when(e)), text: clock(when(e)) }), ` ${happened(e)} `, h('span', { class: 'muted', text: because(e.cause) })))
      : h('li', { class: 'muted', text: 'none among the last events' })));
    session.update([['session', w.session_id], ['opened from', w.addr], ['TTL', w.ttl_ms && span(w.ttl_ms)]]);
  }

  // ------------------------------------------------------------------ draw
  function draw() {
    const list = store.workers ?? [], q = search.value.trim().toLowerCase(), seen = new Map();
    const live = list.filter((w) => w.state === 'live'), able = live.filter((w) => !w.draining);
    const held = list.reduce((s, w) => s + w.held, 0);
    most = 1.25 * Math.max(1, ...list.map((w) => w.held));
    share = able.length ? held / able.length : 0;
    const shown = list.map((w) => {
      // A worker's older session that still holds something is a row of its own.
      seen.set(w.id, (seen.get(w.id) ?? 0) + 1);
      return { ...w, key: `${w.id} ${seen.get(w.id)}`, need: needs(w) };
    }).filter((w) => !q || [w.id, w.zone, w.state, w.endpoint, w.version, ...w.need.why].join(' ').toLowerCase().includes(q)).sort((a, b) => natural.compare(a.key, b.key));
    for (const key of rows.keys()) if (!shown.some((w) => w.key === key)) rows.delete(key);
    grid.update(shown);
    const late = shown.filter((w) => w.need.level > 1).length;
    text(summary, `${many(list.length, 'worker')}, ${live.length} live, ${list.filter((w) => w.draining).length} drained; they hold ${many(held, 'partition')}${late ? `; ${late} to look at` : ''}${q ? `; ${shown.length} shown` : ''}`);
    text(note, `The mark in a load bar is the even share of the live workers. Margin: what is left of the TTL; dotted: a quarter.${store.cluster && !store.cluster.leading ? ` What workers say of themselves (running, trouble, version) the leader's console tells.` : ''}`);
    unfold();
    paint();
  }

  function paint() {
    const now = Date.now(), inks = [token('--muted'), token('--accent')];
    for (const r of rows.values()) if (r.canvas.isConnected) spark(r.canvas, past.get(r.w.id) ?? [], now, inks);
  }

  root.append(panel('Who does the work', h('div', { class: 'row' }, summary, search), grid.el, note, cli(() => command(['workers', 'ls'], ['-o', 'wide'])).el), details);
  addEventListener('themechange', paint);
  const fresh = () => { remember(store.workers ?? [], Date.now()); draw(); };
  const off = [store.on('workers', fresh), store.on('cluster', draw), store.on('partitions', unfold), store.on('events', unfold)];
  fresh();
  return () => {
    off.forEach((f) => f());
    removeEventListener('themechange', paint);
  };
}
