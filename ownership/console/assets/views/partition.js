// One partition: who owns it, why, and who has owned it, with tokens.
import { h, put, text, attr, panel, table, natural } from '../dom.js';
import { many, count, span, clock, stamp, when, because } from '../words.js';
import { colour, ink } from '../colours.js';
import { cli, command, failure } from '../actions.js';
import { at, choice, col, facts, mono, same, tag, who } from './parts.js';

export const title = (params) => `Partition ${params.keyspace}/${params.partition}`;

const every = 4000; // how often the reasons are asked for again: they count down
const page = 1000; // events asked for
const most = 400; // bars drawn, the newest
const looks = { owned: 'good', draining: 'warn', unowned: 'bad', quarantined: 'bad', blocked: 'warn' };
const verdicts = { owner: 'good', eligible: '', full: 'warn', draining: 'warn', drained: 'warn' };
const nobody = () => h('b', { class: 'bad', text: 'nobody' });

// intervals makes of a partition's events, ascending, who owned it from when to
// when: {owner, token, from, to, began, ended, asked}. owner is '' while nobody
// did; from is null where the ledger has forgotten, to where it lasts; asked is
// when the owner was asked to finish. A grant in the log entry of the release
// leaves no time between.
export function intervals(events) {
  const out = [];
  let open = null, now = 0;
  const close = (ended) => {
    if (open && (open.owner || open.from < now)) out.push(Object.assign(open, { to: now, ended }));
  };
  for (const e of events) {
    now = Math.max(now, when(e)); // a new leader's clock may be behind
    const held = { owner: e.worker, token: e.token, from: null, to: null };
    if (e.kind === 'grant') {
      close('');
      open = { ...held, from: now, began: e.cause };
    } else if (e.kind === 'drain') {
      open ??= held;
      open.asked = now;
    } else if (['release', 'revoke', 'expire'].includes(e.kind)) {
      if (!open?.owner) open = held;
      close(`${e.kind}: ${because(e.cause)}`);
      open = { owner: '', token: '', from: now, to: null, began: e.cause };
    }
  }
  return open ? [...out, open] : out;
}

export function mount(root, { store, params, act }) {
  const { keyspace, partition: n } = params;
  let missing = 'Its history is being asked for.', looking = false;
  let events = [], whole = true, back = 0, ended = false, asking = false;
  const lasted = (i) => Math.max(0, (i.to ?? store.now()) - i.from);

  const now = h('div', { class: 'now' }), pairs = facts(), trouble = h('p', { class: 'bad', role: 'alert' });
  const move = h('button', { type: 'button', onclick: () => act.move(keyspace, n).then(refresh) }, 'Move');
  const retry = h('button', { type: 'button', hidden: true, onclick: () => act.retry(keyspace, n).then(refresh) }, 'Retry');
  const before = n > 0 ? h('a', { class: 'mono', href: at(keyspace, n - 1) }, `‹ ${n - 1}`) : null;
  const after = h('a', { class: 'mono', href: at(keyspace, n + 1) }, `${n + 1} ›`);

  const reasons = h('ol', { class: 'reasons' });
  const candidates = table({
    caption: 'Workers in the order of preference for this partition', id: (c) => c.worker, sort: { key: 'choice', down: false }, empty: 'Nobody known: no worker takes part, or the leader, who knows, was not reached.',
    columns: [col('choice', (c) => c.rank ?? 0), col('worker', (c) => c.worker, (c) => who(c.worker)), col('holds', (c) => Number(c.held ?? 0), (c) => `${count(c.held ?? 0)} of ${count(c.most ?? 0)}`, true),
      col('verdict', (c) => c.verdict, (c) => tag(c.verdict, verdicts[c.verdict] ?? 'bad')), col('note', (c) => c.note || '–')],
  });

  const lanes = h('div', { class: 'lanes', role: 'img' }), sum = h('p', { class: 'muted small' });
  const grid = table({
    caption: 'Owners, newest first', id: (i) => `${i.from} ${i.token}`, size: 25, sort: { key: 'from (UTC)', down: true }, mark: (i) => (i.owner ? '' : 'gap'), empty: 'Nothing is told about this partition.',
    columns: [col('from (UTC)', (i) => i.from ?? 0, (i) => mono(i.from === null ? 'before the ledger' : stamp(i.from))), col('until', (i) => i.to ?? Infinity, (i) => mono(i.to === null ? 'now' : stamp(i.to).slice(11))),
      col('owner', (i) => i.owner, (i) => (i.owner ? who(i.owner) : nobody())), col('token', (i) => Number(i.token), (i) => i.token || '–', true), col('for', lasted, (i) => (i.from === null ? '–' : span(lasted(i))), true),
      col('began', (i) => because(i.began)), col('ended', (i) => i.ended ?? '')],
  });

  root.append(trouble, panel('Now', h('div', { class: 'row' }, before, after, move, retry), now, pairs.el),
    panel('Why', null, reasons, h('details', { class: 'under' }, h('summary', { text: 'Who else could have it' }), candidates.el), cli(() => command(['partitions', 'show', `${keyspace}/${n}`], ['--why'])).el),
    panel('Who owned it', choice('How far back', [['5 min', 300_000], ['1 h', 3_600_000], ['all', 0]], 0, (ms) => { back = ms; history(); }), lanes, sum, grid.el, cli(() => command(['events'], ['--keyspace', keyspace, '--partition', n])).el));

  function show({ partition: p = {}, reasons: why = [], candidates: all = [] }) {
    const state = (p.state ?? '').replace('PARTITION_STATE_', '').toLowerCase();
    same(now, [p.owner, state, p.target], () => [p.owner ? who(p.owner) : nobody(), tag(state, looks[state]), p.target ? h('span', { class: 'muted small' }, 'moving to ', who(p.target)) : null]);
    move.hidden = false;
    retry.hidden = !p.failures && state !== 'quarantined';
    pairs.update([['token', p.token], ['held for', p.owner && span(Number(p.held_ms ?? 0))], ['last cause', because(p.cause)], ['endpoint', p.endpoint], ['session', p.session_id],
      ['failed on', p.failures && many(p.failures, 'worker')], ['hash range', `${p.range_first} to ${p.range_last}`]]);
    same(reasons, why, () => (why.length ? why.map((r) => h('li', null, r.text, r.next ? h('div', { class: 'muted', text: r.next }) : null)) : h('li', { class: 'muted', text: p.reason || 'The server gives no reason.' })));
    candidates.update(all);
  }

  async function explain(stale) {
    try {
      return await store.call('PartitionService', 'ExplainPartition', { keyspace, partition: n, stale });
    } catch (err) {
      if (stale || err.detail?.reason === 'not_found') throw err;
      return explain(true); // without a leader there is still what this server knows
    }
  }

  async function refresh() {
    if (asking || ended || document.hidden) return;
    asking = true;
    let got, failed = '';
    try {
      got = await explain(false);
    } catch (err) {
      failed = failure(err);
      if (err.code === 'not_found') {
        same(now, 'none', () => tag('does not exist', 'bad'));
        move.hidden = after.hidden = true;
      }
    }
    asking = false;
    if (ended) return;
    text(trouble, failed);
    if (got) show(got);
  }

  async function past() {
    if (looking || document.hidden) return;
    looking = true;
    try {
      const got = (await store.call('EventService', 'ListEvents', { keyspace, partition: n, limit: page })).items ?? [];
      whole = got.length < page;
      missing = '';
      if (!ended) add(got);
    } catch (err) {
      missing = `Its history cannot be had: ${failure(err)}.`;
      if (!ended) history();
    }
    looking = false;
  }

  // add takes what is news about this partition, and tells whether there was any.
  function add(items) {
    const by = new Map(events.map((e) => [e.revision, e]));
    for (const e of items) if (e.keyspace === keyspace && e.partition === n) by.set(e.revision, e);
    const news = by.size > events.length;
    if (news) events = [...by.values()].sort((a, b) => a.revision - b.revision);
    history();
    return news;
  }

  function history() {
    const all = intervals(events), end = store.now();
    const from = back ? end - back : Math.min(end - 60_000, ...all.map((i) => i.from ?? i.asked ?? i.to ?? end));
    const some = all.filter((i) => (i.to ?? end) >= from).slice(-most);
    const x = (t) => (100 * (Math.max(from, t ?? from) - from)) / (end - from);
    const bar = (look, i, since, says) => h('i', { class: look, title: says, style: { left: `${x(since)}%`, width: `max(3px, ${x(i.to ?? end) - x(since)}%)`, ...(look === 'lease' ? { background: colour(i.owner), color: ink(i.owner) } : {}) } }, look === 'lease' && x(i.to ?? end) - x(since) > 10 ? i.token : '');
    const line = (owner) => h('div', { class: 'lane' }, h('span', { class: owner ? 'mono' : 'bad', text: owner || 'nobody' }), h('div', null, some.filter((i) => i.owner === owner).map((i) => [
      bar(owner ? 'lease' : 'gap', i, i.from, `${owner || 'nobody'}${i.token ? `, token ${i.token}` : ''}\n${i.from === null ? '…' : stamp(i.from)} to ${i.to === null ? 'now' : stamp(i.to)}${i.ended ? `\n${i.ended}` : ''}`),
      i.asked >= from ? bar('asked', i, i.asked, '') : null])));
    // Nobody's line is the first: '' sorts before any name.
    put(lanes, [...new Set(some.map((i) => i.owner))].sort(natural.compare).map(line),
      h('div', { class: 'lane axis', 'aria-hidden': 'true' }, h('span'), h('div', null, [0, 0.25, 0.5, 0.75, 1].map((f) => h('span', { text: f === 1 ? 'now' : clock(from + f * (end - from)) })))));
    const gaps = all.filter((i) => !i.owner);
    const words = !all.length ? 'No lease of it is told of' : `${many(all.length - gaps.length, 'lease')}, ${gaps.length ? `${many(gaps.length, 'time')} unowned, ${span(gaps.reduce((s, i) => s + lasted(i), 0))} in all` : 'never unowned'}`;
    const told = missing ? `${missing} Of the last events: ${words}.` : `${words}, as far back as ${whole ? 'the ledger goes' : `the last ${count(page)} events`}.`;
    text(sum, `${told} Hatched dark: asked to finish.`);
    attr(lanes, 'aria-label', `${told} The table below has the times.`);
    grid.update(all);
  }

  // noticed looks whether the feed says something new of this partition.
  let seen;
  function noticed() {
    const p = store.partitions;
    if (store.keyspace !== keyspace || n >= p.n) return;
    after.hidden = n + 1 >= p.n;
    const is = `${p.owner[n]} ${p.state[n]}`;
    if (seen !== undefined && seen !== is) refresh();
    seen = is;
  }

  const off = [store.on('partitions', noticed), store.on('events', (_, news) => { if (add(news ?? store.events)) refresh(); })];
  addEventListener('themechange', history);
  const timer = setInterval(() => { refresh(); if (missing) past(); history(); }, every);
  add(store.events);
  noticed();
  refresh();
  past();
  return () => {
    ended = true;
    clearInterval(timer);
    removeEventListener('themechange', history);
    off.forEach((f) => f());
  };
}
