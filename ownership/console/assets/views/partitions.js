// partitions.js shows every partition of a keyspace as a cell, and as a row.

import { attr, h, natural, options, panel, put, say, table, text } from '../dom.js';
import { colour, dark, ink, meet, token } from '../colours.js';
import { heatmap } from '../heatmap.js';
import { ago, count, many } from '../words.js';
import { at, choice, tag, who } from './parts.js';

export const title = 'Partitions';

// states by their code in the feed; those without an owner come first in the
// legends of owners and ages.
const states = ['unowned', 'owned', 'draining', 'quarantined', 'blocked'];
const tones = { unowned: '--bad-fill', owned: '--good-fill', draining: '--warn-fill', quarantined: '--odd-fill', blocked: '--dull-fill' };
const tags = { unowned: 'bad', draining: 'warn', quarantined: 'bad', blocked: 'warn' };
const ownerless = ['unowned', 'quarantined', 'blocked'];

const ages = [[10e3, 'under 10 s'], [60e3, '10 s to 1 min'], [600e3, '1 to 10 min'], [3600e3, '10 min to 1 h'], [864e5, '1 h to 1 day'], [Infinity, 'over a day']];
const churns = [[1, 'none'], [2, '1'], [4, '2 or 3'], [8, '4 to 7'], [16, '8 to 15'], [Infinity, '16 and more']];

const modes = {
  owner: 'Each cell is a partition in the colour of its owner.',
  age: 'The stronger the colour, the more recently the owner has changed.',
  churn: 'Changes of owner in the last ten minutes: the stronger, the more.',
  state: 'Each cell is a partition in the colour of its state.',
};

// ramp is a colour on a scale of one hue from 0 to 1, the strong end for what
// wants looking at.
function ramp(part, hue) {
  const [pale, strong] = dark() ? [0.33, 0.82] : [0.91, 0.47], l = pale + (strong - pale) * part;
  return { fill: `oklch(${l.toFixed(3)} ${(0.01 + 0.14 * part).toFixed(3)} ${hue})`, ink: l > 0.62 ? '#111' : '#fff' };
}

const stateBucket = (s) => ({ key: s, state: true, fill: token(tones[s]), ink: s === 'draining' ? '#222' : '#fff' });

// schemes turn a mode into buckets, and into a function from partition to
// bucket.
const schemes = {
  owner(ps) {
    const ids = ps.owners.map((id, i) => [id, i]).filter(([, i]) => ps.owner.includes(i)).sort(([a], [b]) => natural.compare(a, b));
    const slot = [];
    ids.forEach(([, i], at) => { slot[i] = at + 3; });
    return [[...ownerless.map(stateBucket), ...ids.map(([id]) => ({ key: id, fill: colour(id), ink: ink(id) }))], (p) => slot[ps.owner[p]] ?? without(ps.state[p])];
  },
  age(ps, now) {
    return [[...ownerless.map(stateBucket), ...ages.map(([, key], i) => ({ key, ...ramp(1 - i / 5, 255) }))],
      (p) => (ps.owner[p] < 0 ? without(ps.state[p]) : 3 + ages.findIndex(([limit]) => now - ps.since[p] < limit))];
  },
  churn: (ps) => [churns.map(([, key], i) => ({ key, ...ramp(i / 5, 45) })), (p) => churns.findIndex(([limit]) => ps.churn[p] < limit)],
  state: (ps) => [states.map(stateBucket), (p) => ps.state[p]],
};
const without = (state) => Math.max(0, state - 2);

export function mount(root, { store, params, navigate }) {
  let mode = params.query.get('state') ? 'state' : 'owner';
  let pinned = params.query.get('state') || params.query.get('owner') || ''; // key of a bucket
  let pointed = ''; // the same, while it is pointed at
  let buckets = [], bucket = new Int16Array(0), seen = null, known = '', rank = [];

  const ps = () => store.partitions;
  const now = () => store.now();
  const stateOf = (p) => states[ps().state[p]] ?? 'unknown';
  const ownerOf = (p) => ps().owners[ps().owner[p]] ?? '';
  const address = (p) => at(store.keyspace, p);
  const open = (p) => navigate(address(p));
  const churn = (p) => (ps().churn[p] ? `${many(ps().churn[p], 'change')} of owner in 10 min` : '');
  const inWords = (p) => `${stateOf(p)}${ownerOf(p) && ` by ${ownerOf(p)}`} for ${ago(ps().since[p], now())}`;

  const heading = h('h2', { id: 'map-title' }), help = h('p', { class: 'muted', id: 'map-help' });
  const legend = h('div', { class: 'legend', role: 'group', 'aria-label': 'Legend: point to highlight, press to keep' });
  const chosen = h('p', { class: 'chosen' }), tip = h('div', { class: 'tip', hidden: true });
  const map = heatmap({ help: 'map-help', onpoint, onmove, onopen: open });
  const seg = choice('Colour by', Object.keys(modes).map((m) => [m, m]), mode, choose);
  const number = h('input', { type: 'search', placeholder: '17, or 10-20', 'aria-label': 'Partition number or range', size: 12, oninput: rows });
  const byOwner = h('select', { 'aria-label': 'Owner', onchange: rows });
  const byState = h('select', { 'aria-label': 'State', onchange: rows }, h('option', { value: '' }, 'any state'), states.map((s) => h('option', null, s)));
  const matching = h('span', { class: 'muted', role: 'status' });
  const list = table({
    caption: 'Partitions', id: (p) => p, size: 50, empty: 'No partition matches.', sort: { key: 'partition' },
    columns: [
      { key: 'partition', label: 'Partition', value: (p) => p, cell: (p) => h('a', { href: address(p) }, p) },
      { key: 'owner', label: 'Owner', value: (p) => rank[ps().owner[p]] ?? Infinity, cell: (p) => ownerOf(p) && who(ownerOf(p)) },
      { key: 'state', label: 'State', value: (p) => ps().state[p], cell: (p) => tag(stateOf(p), tags[stateOf(p)]) },
      { key: 'since', label: 'Since', num: true, value: (p) => ps().since[p], cell: (p) => ago(ps().since[p], now()) },
      { key: 'churn', label: 'Churn, 10 min', num: true, value: (p) => ps().churn[p], cell: (p) => count(ps().churn[p]) },
    ],
  });
  root.append(
    h('section', { class: 'panel', 'aria-labelledby': 'map-title' },
      h('div', { class: 'head' }, heading, h('div', { class: 'row muted' }, 'colour by', seg)),
      h('div', { class: 'mapped' }, h('div', null, map.el, chosen), legend), help),
    panel('As a table', h('div', { class: 'row' }, number, byOwner, byState, matching), list.el),
    tip);

  function choose(m) {
    mode = m;
    pinned = pointed = '';
    draw();
    rows();
  }

  // draw works out every cell's bucket; the map finds out which have changed.
  function draw() {
    const { n, state, owner, owners, omitted, total } = ps();
    text(heading, omitted ? `${store.keyspace}: ${many(total, 'partition')}, too many for a picture` : n ? `${store.keyspace}: ${many(n, 'partition')}` : !store.connected ? 'Waiting for partitions' : store.keyspace ? `There is no keyspace ${store.keyspace}` : 'There is no keyspace yet');
    meet([...store.workers.map((w) => w.id), ...owners]);
    const [next, of] = schemes[mode](ps(), now());
    if (bucket.length !== n) bucket = new Int16Array(n);
    const totals = next.map(() => 0);
    for (let p = 0; p < n; p++) totals[bucket[p] = of(p)]++;
    const look = mode + next.map((b) => b.key + b.fill);
    if (look !== known) map.repaint();
    known = look;
    buckets = next;
    map.show({ n, bucket, mark: state, looks: buckets });
    // What has another owner than when last looked at lights up.
    if (seen?.length === n && seen.owners === owners) for (let p = 0; p < n; p++) if (seen[p] !== owner[p]) map.flash(p);
    seen = Object.assign(owner.slice(), { owners });
    text(help, `${modes[mode]} Stroke: unowned; missing corner: draining; cross: quarantined; bar: blocked. Arrow keys move, Enter opens.`);
    map.label(`Map of ${many(n, 'partition')} of ${store.keyspace} by ${mode}: ${buckets.map((b, i) => totals[i] && `${b.key} ${totals[i]}`).filter(Boolean).slice(0, 12).join(', ')}`);
    key(totals);
    light();
    selection(map.cursor);
  }

  function key(totals) {
    const shown = buckets.map((b, i) => [b, totals[i]]).filter(([b, c]) => c || !b.state || b.key === pinned);
    const names = shown.map(([b]) => b.key + b.fill).join();
    if (legend.dataset.names !== names) {
      legend.dataset.names = names;
      put(legend, shown.map(([{ key: k, state, fill }]) => h('button', {
        type: 'button', dataset: { key: k }, onclick: () => pin(k), onpointerenter: () => light(k), onpointerleave: () => light(''), onfocus: () => light(k), onblur: () => light(''),
      }, h('i', { class: `swatch ${state ? k : ''}`, style: { 'background-color': fill } }), h('span', { title: k }, k), h('span', { class: 'num' }))));
    }
    shown.forEach(([b, c], i) => {
      text(legend.children[i].lastChild, count(c));
      attr(legend.children[i], 'aria-pressed', b.key === pinned);
    });
  }

  function pin(k) {
    pinned = pinned === k ? '' : k;
    say(pinned ? `Only ${k}` : 'All');
    draw();
    rows();
  }

  function light(k = pointed) {
    pointed = k;
    k ||= pinned;
    map.light(buckets.some((b) => b.key === k) ? buckets.map((b) => b.key === k) : null);
  }

  function onpoint(p, x, y) {
    tip.hidden = p < 0;
    if (p < 0) return;
    put(tip, h('b', null, `${store.keyspace}/${p}`), h('div', null, inWords(p)), h('div', { class: 'muted' }, churn(p)));
    tip.style.left = `${x + 16 + tip.offsetWidth > innerWidth ? Math.max(4, x - tip.offsetWidth - 12) : x + 16}px`;
    tip.style.top = `${Math.min(y + 14, innerHeight - tip.offsetHeight - 4)}px`;
  }

  function onmove(p) {
    selection(p);
    if (p >= 0) say(`Partition ${p}, ${inWords(p)}`);
  }

  function selection(p) {
    const words = p < 0 ? '' : [inWords(p), churn(p)].filter(Boolean).join(', ');
    if (chosen.dataset.words === p + words) return;
    chosen.dataset.words = p + words;
    put(chosen, p < 0 ? h('span', { class: 'muted' }, 'No partition is selected: click one, or use the arrow keys.')
      : [h('b', { class: 'mono' }, `${store.keyspace}/${p}`), ` ${words}. `, h('a', { href: address(p) }, 'Open its history')]);
  }

  // rows fills the table, only while it can be seen.
  let visible = false, due = 0;
  function rows() {
    clearTimeout(due);
    due = 0;
    const { n, owner, owners } = ps(), order = [...owners].sort(natural.compare), here = order.filter((id) => owner.includes(owners.indexOf(id)));
    rank = owners.map((id) => order.indexOf(id));
    options(byOwner, here, 'any owner');
    const [, from = 0, to = number.value ? from : n] = /^\s*(\d+)\s*(?:-\s*(\d+))?/.exec(number.value) ?? [];
    const only = buckets.findIndex((b) => b.key === pinned), found = [];
    for (let p = Number(from); p < n && p <= Number(to); p++) {
      if ((only < 0 || bucket[p] === only) && (!byOwner.value || ownerOf(p) === byOwner.value) && (!byState.value || stateOf(p) === byState.value)) found.push(p);
    }
    text(matching, found.length === n ? '' : `${count(found.length)} of ${count(n)}${only < 0 ? '' : `: ${pinned}`}`);
    list.update(found);
  }
  const sight = new IntersectionObserver(([e]) => {
    visible = e.isIntersecting;
    if (visible) rows();
  });
  sight.observe(list.el);

  const off = store.on('partitions', () => {
    draw();
    if (visible) due ||= setTimeout(rows, 1000);
  });
  addEventListener('themechange', draw);
  const tick = setInterval(() => (mode === 'age' ? draw() : selection(map.cursor)), 1000);
  draw();
  rows();
  root.heatmap = map; // for tests, which look at pixels
  return () => {
    off();
    removeEventListener('themechange', draw);
    clearInterval(tick);
    clearTimeout(due);
    sight.disconnect();
    map.stop();
  };
}
