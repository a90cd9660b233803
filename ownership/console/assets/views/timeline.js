// What happened, newest first, as it happens: grants, releases, sessions and
// leaders, each with its cause, token and place in the log.
import { h, text, attr, panel } from '../dom.js';
import { many, count, clock, stamp, when, place, happened, because, causes } from '../words.js';
import { cli, command, failure } from '../actions.js';
import { groups, groupOf, histogram } from './histogram.js';
import { at, choice, dot, same } from './parts.js';

export const title = 'Timeline';

const page = 1000; // events asked for at a time
const cap = 20_000; // kept in the browser
const row = 30; // pixels, as views.css has it
const spans = { '5m': 300_000, '1h': 3_600_000 };
const spaced = (word) => word.replaceAll('_', ' ');

export function mount(root, { store, params }) {
  let all = [], shown = [], waiting = []; // known, ascending; let through, descending; come in while paused
  let newest = 0, fetching = 0; // counts questions: an answer to an older one is dropped
  let range = null, span = '', paused = false;
  let whole = false; // the ledger has no more than what is known

  // --------------------------------------------------------------- filters
  const option = (value, label = value) => h('option', { value }, label);
  const keyspace = h('select', { 'aria-label': 'Keyspace' });
  const kind = h('select', { 'aria-label': 'Kind' }, option('', 'every kind'), groups.map((g, i) => h('optgroup', { label: g.name }, option(`=${i}`, `${g.name}: all`), g.kinds.map((k) => option(k, spaced(k))))));
  const cause = h('select', { 'aria-label': 'Cause' }, option('', 'every cause'), Object.keys(causes).map((c) => option(c, spaced(c))));
  const worker = h('input', { type: 'search', list: 'worker-ids', placeholder: 'worker', 'aria-label': 'Worker' });
  const ids = h('datalist', { id: 'worker-ids' });
  const partition = h('input', { type: 'number', min: 0, placeholder: 'partition', 'aria-label': 'Partition number' });
  const filters = { keyspace, kind, cause, worker, partition };
  const hold = h('button', { type: 'button', onclick: () => { paused = !paused; take(); } });
  const reset = h('button', { type: 'button', class: 'ghost', onclick: () => { for (const f of Object.values(filters)) f.value = ''; changed(true); } }, 'Clear filters');

  function names() {
    const had = keyspace.value, all = [...new Set([...store.keyspaces.map((k) => k.name), params.query.get('keyspace') ?? ''])].filter(Boolean);
    same(keyspace, all, () => [option('', 'every keyspace'), all.map((k) => option(k))]);
    keyspace.value = had;
    same(ids, store.workers.map((w) => w.id), () => store.workers.map((w) => option(w.id)));
  }

  // changed starts again with what the server filters; the rest is done here.
  function changed(server) {
    partition.disabled = !keyspace.value;
    if (partition.disabled) partition.value = '';
    scroller.scrollTop = 0;
    if (server) load(page);
    draw();
  }
  for (const f of [keyspace, cause, partition]) f.addEventListener('change', () => changed(true));
  for (const f of [kind, worker]) f.addEventListener('input', () => changed(false));

  const matches = (e) => (!keyspace.value || e.keyspace === keyspace.value) && (!cause.value || e.cause === cause.value)
    && (!kind.value || e.kind === kind.value || kind.value === `=${groupOf(e.kind)}`)
    && (!worker.value.trim() || e.worker === worker.value.trim() || e.from === worker.value.trim())
    && (partition.value === '' || e.partition === Number(partition.value));

  // ---------------------------------------------------------------- events
  async function load(limit) {
    const mine = ++fetching, message = { limit };
    if (keyspace.value) message.keyspace = keyspace.value;
    if (cause.value) message.cause = cause.value;
    if (partition.value !== '') message.partition = Number(partition.value);
    more.disabled = true;
    let got = [], failed = '';
    try {
      got = (await store.call('EventService', 'ListEvents', message)).items ?? [];
    } catch (err) {
      failed = `Older events cannot be had: ${failure(err)}`;
    }
    if (mine !== fetching) return;
    whole = !failed && got.length < limit;
    text(trouble, failed);
    more.disabled = false;
    merge(got);
    newest = Math.max(newest, Number(all.at(-1)?.revision ?? 0));
    draw();
  }

  function merge(items) {
    const by = new Map([...all, ...items].map((e) => [e.revision, e]));
    all = [...by.values()].sort((a, b) => a.revision - b.revision).slice(-cap);
  }

  // live takes what the feed has brought. After a break the feed begins anew
  // with the last events: what lies between is fetched.
  function live() {
    const news = store.events.filter((e) => Number(e.revision) > newest);
    if (!news.length) return;
    const gap = newest > 0 && news.length === store.events.length;
    newest = Number(news.at(-1).revision);
    waiting = waiting.concat(news).slice(-cap);
    if (gap) load(page);
    take();
  }

  function take() {
    if (!paused && waiting.length) merge(waiting.splice(0));
    draw();
  }

  // -------------------------------------------------------------- the list
  const head = ['time', 'what happened', 'why', 'partition', '#token', '#index'];
  const space = () => h('tr', { 'aria-hidden': 'true' }, h('td', { colspan: head.length }));
  const above = space(), below = space();
  const list = h('table', { class: 'events' }, h('caption', { class: 'hush', text: 'Events, newest first' }),
    h('thead', null, h('tr', null, head.map((t) => h('th', { scope: 'col', class: t[0] === '#' ? 'num' : null }, t.replace('#', ''))))), h('tbody', null, above, below));
  const scroller = h('div', { class: 'window', tabindex: 0, role: 'region', 'aria-label': 'Events, newest first', onscroll: () => requestAnimationFrame(rows) }, list);
  const more = h('button', { type: 'button', onclick: () => load(Math.min(cap, Math.max(page, all.length) + page)) }, 'Load older events');
  const sum = h('span', { class: 'muted small' });
  const trouble = h('p', { class: 'bad', role: 'alert' });
  const drawn = new Map();

  function make(e) {
    const t = when(e), num = (v) => h('td', { class: 'num', text: Number(v ?? 0) ? v : '–' });
    return h('tr', null, h('td', { class: 'mono' }, h('time', { title: stamp(t), text: `${clock(t)}.${stamp(t).slice(20, 23)}` })), h('td', null, dot(`var(${groups[groupOf(e.kind)].colour})`), happened(e)),
      h('td', { class: 'muted', title: e.cause, text: because(e.kind.startsWith('worker_') ? '' : e.cause) }), h('td', { class: 'mono' }, e.partition == null ? '–' : h('a', { href: at(e.keyspace, e.partition), text: place(e) })), num(e.token), num(e.index));
  }

  // rows keeps only those in the document that can be seen, and some around.
  function rows() {
    const first = Math.max(0, Math.min(shown.length - 1, Math.floor(scroller.scrollTop / row) - 10));
    const last = Math.min(shown.length, first + Math.ceil((scroller.clientHeight || 500) / row) + 20);
    const keep = new Set();
    let before = above;
    for (let i = first; i < last; i++) {
      const e = shown[i];
      if (!drawn.has(e.revision)) drawn.set(e.revision, make(e));
      const tr = drawn.get(e.revision);
      attr(tr, 'aria-rowindex', i + 2);
      keep.add(e.revision);
      if (before.nextSibling !== tr) before.after(tr);
      before = tr;
    }
    for (const [rev, tr] of drawn) if (!keep.has(rev)) { tr.remove(); drawn.delete(rev); }
    for (const [tr, n] of [[above, first], [below, shown.length - last]]) {
      tr.firstChild.style.height = `${n * row}px`;
      tr.hidden = n <= 0;
    }
  }

  const picture = histogram((r) => { range = r; scroller.scrollTop = 0; draw(true); });

  function draw(fromPicture = false) {
    const now = store.now(), oldest = span ? now - spans[span] : 0;
    const fit = all.filter((e) => when(e) >= oldest && matches(e));
    if (!fromPicture) {
      const times = fit.map(when);
      picture.update(times, fit.map((e) => groupOf(e.kind)), oldest || times.reduce((a, b) => Math.min(a, b), now - 60_000), now);
    }
    const was = shown[0];
    shown = (range ? fit.filter((e) => when(e) >= range[0] && when(e) < range[1]) : fit).reverse();
    // Whoever reads further down does not have the lines pushed away.
    if (was && scroller.scrollTop > row) scroller.scrollTop += Math.max(0, shown.indexOf(was)) * row;
    attr(list, 'aria-rowcount', shown.length + 1);
    text(hold, paused ? `Resume${waiting.length ? ` (${count(waiting.length)} new)` : ''}` : 'Pause');
    attr(hold, 'aria-pressed', String(paused));
    text(sum, shown.length ? `${many(shown.length, 'event')}${shown.length < all.length ? ` of ${count(all.length)} loaded` : ''}, back to ${stamp(when(shown.at(-1))).slice(0, 19)} UTC${whole ? '; the ledger has no older ones' : ''}` : 'No event matches.');
    more.hidden = whole || all.length >= cap;
    tell.update();
    rows();
  }

  const tell = cli(() => {
    const flags = paused ? [] : ['-f'];
    for (const f of ['keyspace', 'partition', 'cause']) if (filters[f].value !== '') flags.push(`--${f}`, filters[f].value);
    return command(['events'], span ? [...flags, '--since', span] : flags);
  });

  root.append(panel('When', choice('How far back', [['5 min', '5m'], ['1 h', '1h'], ['all', '']], '', (s) => { span = s; draw(); }), picture.el),
    panel('What happened', h('div', { class: 'row' }, Object.values(filters), ids, reset, hold), trouble, scroller, h('div', { class: 'row' }, more, sum), tell.el));
  names();
  for (const [name, f] of Object.entries(filters)) if (params.query.get(name)) f.value = params.query.get(name);

  const off = [store.on('events', live), store.on('keyspaces', names), store.on('workers', names)];
  merge(store.events);
  newest = Number(all.at(-1)?.revision ?? 0);
  const beat = setInterval(() => { if (!paused && !document.hidden) draw(); }, 5000);
  changed(true);
  return () => {
    fetching = -1;
    clearInterval(beat);
    picture.stop();
    off.forEach((f) => f());
  };
}
