// overview.js is the first look: is everything owned, and what needs somebody.

import { h, panel, text } from '../dom.js';
import { at, same, tag } from './parts.js';
import { because, clock, count, happened, many, serious, span, stamp, when } from '../words.js';

export const title = 'Overview';

// parts of a keyspace's bar, in the order they are drawn.
const parts = ['owned', 'draining', 'unowned', 'quarantined', 'blocked'];

const minutes = 30; // of the picture of moves
const lowMargin = 0.3; // of a lease: below it a worker is close to losing all
const together = 10_000; // ms in which events of one kind are told as one

export function mount(root, { store }) {
  const number = h('b'), verdict = h('p', { class: 'muted' }), strips = h('div', { class: 'strips' });
  const needs = h('ul', { class: 'needs' }), facts = h('dl', { class: 'stats' }), last = h('ol', { class: 'last' });
  const total = h('span', { class: 'muted' }), rate = h('div', { class: 'rate' });
  root.append(
    h('div', { class: 'home' },
      h('section', { class: 'panel hero', 'aria-label': 'Partitions without an owner' }, h('div', { class: 'tally' }, number, h('div', null, h('h2', null, 'unowned'), verdict)), strips),
      panel('What needs you', null, needs)),
    h('div', { class: 'home' },
      panel('What happened last', h('a', { href: '#/timeline' }, 'Timeline'), last),
      h('div', { class: 'view' }, panel('Cluster', null, facts), panel('Changes of owner', total, rate))));

  function draw() {
    frame = 0;
    hero(store.keyspaces.map(split));
    renew(needs, trouble(store), ([how, what, more, to]) => h('li', null, tag({ bad: 'now', warn: 'soon', good: 'fine' }[how], how), to ? h('a', { href: to }, what) : what, h('span', { class: 'muted' }, more)));
    cluster();
    renew(last, recent(store.events, 8), ([e, n, few]) => {
      const words = happened(n > 1 ? { ...e, partition: null, keyspace: `${few ? 'at least ' : ''}${count(n)} partitions of ${e.keyspace}` } : e), why = because(e.cause);
      return h('li', null, h('time', { class: 'num muted', datetime: e.time, title: stamp(when(e)) }, clock(when(e))), h('i', { class: `dot ${serious(e)}` }),
        h('span', null, e.partition == null || n > 1 ? words : h('a', { href: at(e.keyspace, e.partition) }, words), why && h('span', { class: 'muted' }, `: ${why}`)));
    });
    moves();
  }

  function hero(all) {
    const without = sum(all, (k) => k.unowned + k.quarantined + k.blocked), n = sum(all, (k) => k.partitions);
    text(number, store.cluster ? count(without) : '–');
    number.className = !store.cluster ? 'muted' : without ? 'bad' : 'good';
    text(verdict, !store.cluster ? 'Waiting for the cluster…' : !all.length ? 'There is no keyspace yet.' : without ? `of ${many(n, 'partition')}: nobody works on ${without === 1 ? 'it' : 'them'}` : `Each of ${many(n, 'partition')} has an owner.`);
    renew(strips, all, (k) => {
      const shown = parts.filter((p) => k[p] > 0);
      return h('div', { class: 'strip' },
        h('div', { class: 'row' }, h('b', null, k.name), h('span', { class: 'muted' }, `${k.takeover}, TTL ${k.ttl_ms / 1000} s`)),
        h('div', { class: 'bar', 'aria-hidden': 'true' }, shown.map((p) => h('i', { class: p, style: { 'flex-grow': k[p] } }))),
        h('div', { class: 'row muted' }, shown.map((p) => h('span', null, h('i', { class: `swatch ${p}` }), `${count(k[p])} ${p}`))));
    });
  }

  function cluster() {
    const c = store.cluster ?? {}, led = store.events.findLast((e) => e.kind === 'leader');
    const old = c.age_ms > 1000;
    renew(facts, [
      ['leader', c.leader || 'none', c.leader && `term ${c.term}${led ? `, since ${clock(when(led))}` : ''}`],
      ['state', !store.connected ? 'as last told' : old ? `${span(c.age_ms)} old` : 'current', `revision ${count(c.state_revision ?? 0)}`],
      ['servers', count(store.servers.length), tally(store.servers, (x) => (x.leader ? 'leads' : x.voter ? 'follow' : 'without a vote'))],
      ['workers', count(store.workers.filter((w) => w.state === 'live').length), tally(store.workers, (w) => (w.draining ? 'draining' : w.state))],
    ], ([name, value, more]) => h('div', null, h('dt', null, name), h('dd', null, h('b', null, value), h('span', { class: 'muted' }, more))));
  }

  // moves draws when partitions got the owner they have: complete, where the
  // events that a page keeps are not.
  function moves() {
    const { since, owner, churn, n } = store.partitions, per = new Array(minutes).fill(0), now = store.now();
    for (let p = 0; p < n; p++) {
      const back = Math.floor((now - since[p]) / 60_000);
      if (owner[p] >= 0 && back >= 0 && back < minutes) per[minutes - 1 - back]++;
    }
    const top = Math.max(1, ...per);
    text(total, `${count(churn.reduce((sum, x) => sum + x, 0))} moves in 10 min`);
    renew(rate, [per], () => [
      h('div', { class: 'bars', role: 'img', 'aria-label': `Partitions by the minute of their last change of owner; the last five minutes: ${per.slice(-5).join(', ')}` },
        per.map((x) => h('i', { class: x ? 'some' : null, style: { height: `${(100 * x) / top}%` } }))),
      h('div', { class: 'row muted' }, h('span', null, `${minutes} min ago`), h('span', null, `most ${count(top)} a minute`), h('span', null, 'now'))]);
  }

  let frame = 0;
  const later = () => { frame ||= requestAnimationFrame(draw); };
  const off = ['cluster', 'keyspaces', 'workers', 'servers', 'events', 'partitions', 'connection'].map((t) => store.on(t, later));
  draw();
  return () => {
    off.forEach((f) => f());
    cancelAnimationFrame(frame);
  };
}

// renew makes the children of el again if what they tell has changed.
const renew = (el, list, make) => same(el, list, () => list.map(make));

// split parts the numbers of a keyspace: those of the feed hold one another.
const split = (k) => ({ ...k, owned: k.owned - k.draining, unowned: k.unowned - k.quarantined - k.blocked });

const sum = (list, of) => list.reduce((n, x) => n + Number(of(x) || 0), 0);

// tally says how many of a list are what: "2 live, 1 gone".
const tally = (list, of) => Object.entries(Object.groupBy(list, of)).map(([k, l]) => `${count(l.length)} ${k}`).join(', ');

// recent is the newest events, [event, how many, whether there may be more],
// where one happening to many partitions counts once.
function recent(events, most) {
  const groups = new Map();
  for (const e of events.toReversed()) {
    const key = e.partition == null ? e.revision : [e.kind, e.keyspace, e.worker, e.from, e.cause].join();
    const g = groups.get(key);
    if (g && when(g[0]) - when(e) < together) g.splice(1, 2, g[1] + 1, when(e));
    else if (groups.size === most) break;
    else groups.set(g ? e.revision : key, [e, 1, when(e)]);
  }
  // The page is told the newest events only: what begins at a gap may be cut.
  const gaps = events.filter((e, i) => Number(e.revision) - Number(events[i - 1]?.revision ?? 0) > 1).map(when);
  return [...groups.values()].map(([e, n, first]) => [e, n, gaps.some((t) => Math.abs(first - t) < 1000)]);
}

// trouble is what needs somebody, the worst first: [how bad, what, more, where].
function trouble({ cluster: c, keyspaces, workers, connected }) {
  const list = [];
  const add = (how, is, what, more, to) => is && list.push([how, what, more, to]);
  const of = (how, found, what, more = '') => add(how, found.length, what(found.length), more + found.slice(0, 3).map((x) => x.id).join(', ') + (found.length > 3 ? ` and ${found.length - 3} more` : ''), '#/workers');
  add('bad', c && !connected, 'This server does not answer', 'what is shown is what it told last');
  add('bad', connected && c && !c.leader, 'No leader', 'no grants, no moves; owners stop at their deadlines', '#/servers');
  add('bad', c?.leader && c.ready === false, 'This server is not ready', c?.not_ready_reason, '#/servers');
  for (const k of keyspaces.map(split)) {
    for (const [state, why] of [['unowned', ''], ['quarantined', ': handlers failed on too many workers'], ['blocked', ': nobody can take them']]) {
      add('bad', k[state], many(k[state], `${state} partition`), k.name + why, `#/partitions?keyspace=${encodeURIComponent(k.name)}&state=${state}`);
    }
  }
  const live = workers.filter((w) => w.state === 'live'), bad = (key) => workers.filter((w) => w[key] > 0);
  of('bad', live.filter((w) => w.margin < lowMargin), (n) => `${many(n, 'worker')} close to the end of a lease`);
  of('bad', live.filter((w) => ['suspect', 'dead'].includes(w.gossip)), (n) => `${many(n, 'worker')} unreachable in gossip`);
  of('warn', c?.leader ? live.filter((w) => w.attached === false) : [], (n) => `${many(n, 'worker')} without a stream to the leader`);
  of('warn', bad('overruns'), () => many(sum(workers, (w) => w.overruns), 'overrun'), 'handlers that did not stop in time: ');
  of('warn', bad('fencing_rejections'), () => many(sum(workers, (w) => w.fencing_rejections), 'fencing rejection'), 'stale writers were stopped: ');
  add('warn', c?.versions?.length > 1, 'Servers of different versions', c?.versions?.join(', '), '#/servers');
  add('good', !list.length && connected, 'Nothing', `Everything is owned${c?.leading === false ? `; of what workers complain, only the leader ${c.leader} knows.` : ', and nobody complains.'}`);
  return list;
}
