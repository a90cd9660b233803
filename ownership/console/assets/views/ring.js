// ring.js shows the consistent-hash ring of a keyspace: what the planner would
// like, beside what is, and what would happen if workers came or went.

import { attr, h, options, panel, put, say, table, text } from '../dom.js';
import { colour, ink, meet, short, token } from '../colours.js';
import { count, many } from '../words.js';
import { at, dot, tag } from './parts.js';

export const title = 'Ring';

const top = -Math.PI / 2, circle = 2 * Math.PI;

// turn is a position of 16 hexadecimal digits as an angle, clockwise from the
// top. A double is exact enough for a picture.
const turn = (position) => top + (parseInt(position, 16) / 2 ** 64) * circle;

export function mount(root, { store }) {
  let ring = null, plan = null; // what GetRing and SimulateRing last answered
  let pointed = '', kept = '', frame = 0, failed = '', gone = false;

  const canvas = h('canvas', { 'aria-hidden': 'true' });
  const picture = h('div', { class: 'dial', role: 'img' }, canvas);
  const note = h('p', { class: 'muted' });
  const figure = (key, label, cell) => ({ key, label, num: true, value: (m) => m[key], cell: cell ?? ((m) => count(m[key])) });
  const worker = { key: 'worker', label: 'Worker', value: (m) => m.worker, cell: (m) => owner(m.worker, m.draining) };
  const members = table({
    caption: 'Workers on the ring', id: (m) => m.worker, empty: 'No worker is on the ring.', sort: worker, mark: (m) => m.worker === kept && 'kept',
    columns: [worker, figure('arc', 'Of the ring', (m) => `${(100 * m.arc).toFixed(1)} %`), figure('placed', 'Placed'), figure('held', 'Held'),
      figure('fair', 'Fair share', (m) => m.fair.toFixed(1)), figure('most', 'At most'), { key: 'load', label: 'Held of most', value: (m) => m.held / m.most, cell: load }],
  });
  const add = h('input', { type: 'text', id: 'sim-add', placeholder: 'w9, or w9:200', size: 13, autocomplete: 'off', spellcheck: 'false' });
  const remove = h('select', { id: 'sim-remove' });
  const outcome = h('div', { class: 'view', id: 'sim-outcome' });
  const wish = h('form', { class: 'row', onsubmit: simulate },
    h('label', { for: 'sim-add' }, 'add'), add, h('label', { for: 'sim-remove' }, 'take away'), remove,
    h('button', { type: 'submit' }, 'Show the moves'), h('button', { type: 'button', class: 'ghost', onclick: forget }, 'Clear'));
  root.append(h('div', { class: 'rings' },
    panel('Virtual nodes', null, picture, note),
    h('div', { class: 'view' }, panel('Workers', null, members.el), panel('What if', tag('changes nothing'), wish, outcome))));

  // ------------------------------------------------------------------ asking

  let asking = false, again = false;
  async function ask() {
    again = asking;
    if (asking || !store.keyspace) return;
    asking = true;
    const keyspace = store.keyspace;
    try {
      const answer = await store.call('RingService', 'GetRing', { keyspace, points: true });
      failed = '';
      if (keyspace === store.keyspace) take(answer);
    } catch (err) {
      failed = err.message;
    }
    asking = false;
    if (gone) return;
    draw();
    if (again) ask();
  }

  // A point answers for what lies between it and the one before.
  function take({ members = [], points = [] }) {
    const list = members.map(numbers), ends = points.map((p) => turn(p.position));
    ring = { members: list, points: points.map((p, i) => ({ from: i ? ends[i - 1] : ends.at(-1) - circle, to: ends[i], owner: list[p.member ?? 0] })) };
    for (const p of ring.points) p.owner.arc += (p.to - p.from) / circle;
    meet(list.map((m) => m.worker));
  }

  async function simulate(e) {
    e.preventDefault();
    const [id, capacity = 0] = add.value.trim().split(/:(?=\d+$)/), away = remove.value, keyspace = store.keyspace;
    if (!id && !away) return put(outcome, h('p', { class: 'muted' }, 'Name a worker to add, or choose one to take away.'));
    plan = null;
    try {
      const answer = await store.call('RingService', 'SimulateRing', { keyspace, add: id ? [{ id, capacity: Number(capacity) }] : [], remove: away ? [away] : [] });
      if (gone) return;
      const { moves = [], kept: stay = 0, before = [], after = [] } = answer;
      plan = { id, away, moves: moves.map((m, step) => ({ step, partition: 0, from: '', to: '', ...m })), moved: new Set(moves.map((m) => m.partition)).size, stay, before: before.map(numbers), after: after.map(numbers) };
      meet(plan.after.map((m) => m.worker));
      result(plan);
    } catch (err) {
      put(outcome, h('p', { class: 'bad', role: 'alert' }, err.message));
    }
    draw();
  }

  function result({ id, away, moves, moved, stay, before, after }) {
    const words = `If ${[id && `${id} came`, away && `${away} went`].filter(Boolean).join(' and ')}, ${many(moved, 'partition')} would move${moves.length > moved ? `, some twice: ${many(moves.length, 'move')},` : ''} and ${count(stay)} would stay.`;
    const held = (list, w) => list.find((m) => m.worker === w)?.held ?? 0;
    const change = table({
      caption: 'Partitions before and after', id: (m) => m.worker, sort: worker,
      columns: [worker, figure('before', 'Before'), figure('after', 'After'), figure('change', 'Change', (m) => (m.change > 0 ? '+' : '') + count(m.change))],
    });
    const list = table({
      caption: 'The moves, in the order of the planner', id: (m) => m.step, size: 12,
      columns: [
        { key: 'partition', label: 'Partition', value: (m) => m.partition, cell: (m) => h('a', { href: at(store.keyspace, m.partition) }, m.partition) },
        { key: 'from', label: 'From', value: (m) => m.from, cell: (m) => (m.from ? owner(m.from) : 'nobody') },
        { key: 'to', label: 'To', value: (m) => m.to, cell: (m) => (m.to ? owner(m.to) : h('span', { class: 'bad' }, 'nobody can take it')) },
        { key: 'cause', label: 'Cause', value: (m) => m.cause ?? '' },
      ],
    });
    change.update([...new Set([...before, ...after].map((m) => m.worker))].map((w) => ({ worker: w, before: held(before, w), after: held(after, w), change: held(after, w) - held(before, w) })));
    list.update(moves);
    put(outcome, h('p', { role: 'status' }, words), change.el, moves.length && list.el);
    say(words);
  }

  function forget() {
    plan = null;
    add.value = remove.value = '';
    put(outcome);
    draw();
  }

  // ----------------------------------------------------------------- drawing

  function owner(id, draining) {
    return h('button', {
      type: 'button', class: 'owner', title: id, 'aria-pressed': String(kept === id),
      onpointerenter: () => light(id), onpointerleave: () => light(''), onfocus: () => light(id), onblur: () => light(''), onclick: () => keep(id),
    }, dot(colour(id)), id, draining && tag('draining', 'warn'));
  }

  function load(m) {
    const part = (n) => `${Math.min(100, (100 * n) / (m.most || 1)).toFixed(1)}%`;
    return h('div', { class: 'track', role: 'img', 'aria-label': part(m.held) },
      h('i', { style: { width: part(m.held), background: colour(m.worker), opacity: 1 } }), h('b', { style: { left: part(m.fair) }, title: 'fair share' }));
  }

  function light(id) {
    pointed = id;
    soon();
  }

  function keep(id) {
    kept = kept === id ? '' : id;
    draw();
  }

  function draw() {
    const list = ring?.members ?? [], ids = list.map((m) => m.worker);
    members.update(list);
    options(remove, ids, 'nobody');
    text(note, failed ? `The ring cannot be had: ${failed}` : !ring ? store.keyspace || !store.connected ? 'Asking…' : 'There is no keyspace yet.'
      : `Outside, ${many(ring.points.length, 'virtual node')}: each answers for the arc before it. Inside, what is held, in shares. Point at a worker to see its arcs.`);
    attr(picture, 'aria-label', `Ring of ${store.keyspace}: ${list.slice(0, 12).map((m) => `${m.worker} ${(100 * m.arc).toFixed(0)} percent`).join(', ')}`);
    soon();
  }

  function soon() {
    frame ||= requestAnimationFrame(paint);
  }

  const ctx = canvas.getContext('2d');
  let c = 0, outer = 0, width = 0; // centre, radius and breadth of the ring
  function size() {
    const side = Math.min(picture.clientWidth, 520), ratio = devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(side * ratio);
    canvas.style.width = canvas.style.height = `${side}px`;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    [c, outer, width] = [side / 2, side / 2 - 16, Math.max(18, side * 0.075)];
    soon();
  }

  function band(r, w, from, to, id, on) {
    ctx.globalAlpha = !on || on === id ? 1 : 0.15;
    ctx.beginPath();
    ctx.arc(c, c, r, from, to);
    ctx.arc(c, c, r - w, to, from, true);
    ctx.closePath();
    ctx.fillStyle = colour(id);
    ctx.fill();
  }

  function tick(a, from, to, tone) {
    ctx.strokeStyle = tone;
    ctx.beginPath();
    ctx.moveTo(c + Math.cos(a) * from, c + Math.sin(a) * from);
    ctx.lineTo(c + Math.cos(a) * to, c + Math.sin(a) * to);
    ctx.stroke();
  }

  let tones = null; // of the theme: the ground, words, and lesser words
  function paint() {
    frame = 0;
    if (gone || c <= 0) return;
    const on = pointed || kept;
    tones ??= ['--panel', '--text', '--muted'].map(token);
    ctx.clearRect(0, 0, 2 * c, 2 * c);
    if (!ring?.points.length) return;
    for (const p of ring.points) band(outer, width, p.from, p.to, p.owner.worker, on);
    ctx.lineWidth = 1;
    for (const p of ring.points) {
      const mine = on === p.owner.worker;
      ctx.globalAlpha = on && !mine ? 0.25 : 1;
      tick(p.to, outer - width, outer, tones[0]);
      tick(p.to, outer + 3, outer + (mine ? 11 : 7), tones[mine ? 1 : 2]);
    }
    const inner = outer - width - 10, thin = width * 0.62;
    shares(inner, thin, plan ? plan.before : ring.members, on);
    if (plan) shares(inner - thin - 6, thin, plan.after, on, plan.id);
    ctx.globalAlpha = 1;
    middle(on);
  }

  // shares draws an arc per worker, as long as its part of what is held, and
  // outlines that of a worker that is not there yet.
  function shares(r, w, list, on, added) {
    const all = list.reduce((n, m) => n + m.held, 0) || 1;
    let from = top;
    for (const { worker: id, held } of list) {
      const to = from + (held / all) * circle, gap = to - from > 0.02 ? 0.006 : 0, a = (from + to) / 2;
      band(r, w, from + gap, to - gap, id, on);
      if (id === added) {
        ctx.strokeStyle = tones[1];
        ctx.lineWidth = 2;
        ctx.stroke();
      }
      if (to - from > 0.12) label(short(id), c + Math.cos(a) * (r - w / 2), c + Math.sin(a) * (r - w / 2), `600 ${Math.round(w * 0.62)}px`, ink(id));
      from = to;
    }
  }

  function label(words, x, y, font, tone) {
    ctx.font = `${font} system-ui, sans-serif`;
    ctx.fillStyle = tone;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.fillText(words, x, y);
  }

  function middle(on) {
    const m = ring.members.find((x) => x.worker === on), n = ring.members.length;
    const lines = m ? [m.worker, `${(100 * m.arc).toFixed(1)} % of the ring`, `holds ${count(m.held)} of at most ${count(m.most)}`]
      : plan ? [count(plan.moved), `would move, ${count(plan.stay)} stay`, 'inside: before, then after']
        : [count(n), 'on the ring', `${many(ring.members.reduce((sum, x) => sum + x.held, 0), 'partition')} held`];
    lines.forEach((words, i) => label(words, c, c - 16 + (i && 10 + i * 18), i ? '12.5px' : '650 26px', tones[i ? 2 : 1]));
  }

  // under is the worker whose arc the pointer is on.
  function under(e) {
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left - c, y = e.clientY - box.top - c, far = Math.hypot(x, y);
    if (!ring?.points.length || far > outer || far < outer - width) return '';
    const a = (Math.atan2(y, x) - top + circle) % circle + top;
    return (ring.points.find((p) => p.to >= a) ?? ring.points[0]).owner.worker;
  }
  canvas.addEventListener('pointermove', (e) => under(e) !== pointed && light(under(e)));
  canvas.addEventListener('pointerleave', () => light(''));
  canvas.addEventListener('click', (e) => keep(under(e)));

  const watch = new ResizeObserver(size);
  watch.observe(picture);
  const theme = () => {
    tones = null;
    draw();
  };
  addEventListener('themechange', theme);
  // The ring depends on who is there; what is held, on every move.
  let known = '', due = 0;
  const off = store.on('workers', (all) => {
    const now = store.keyspace + all.map((w) => [w.id, w.state, w.draining, w.held, w.capacity]).join(';');
    if (now !== known) due ||= setTimeout(() => { due = 0; ask(); }, 700);
    known = now;
  });
  draw();
  ask();
  return () => {
    gone = true;
    off();
    watch.disconnect();
    removeEventListener('themechange', theme);
    clearTimeout(due);
    cancelAnimationFrame(frame);
  };
}

// numbers reads a member: numbers of 64 bits are strings in JSON, and what is 0
// is left out.
const numbers = (m) => ({ ...m, placed: Number(m.placed ?? 0), held: Number(m.held ?? 0), most: Number(m.most ?? 0), fair: m.fair ?? 0, arc: 0 });
