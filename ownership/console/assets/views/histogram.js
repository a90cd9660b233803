// How many events there were, over time and by kind: a picture from which a
// stretch of time is chosen with the mouse or the keyboard, and its table.
import { h, text, attr, table } from '../dom.js';
import { many, count, clock, stamp } from '../words.js';
import { token } from '../colours.js';
import { col, dot } from './parts.js';

// groups are the kinds of events that the picture tells apart.
export const groups = [
  ['granted', '--good-fill', 'grant'],
  ['asked to finish, released', '--warn-fill', 'drain', 'release'],
  ['expired, revoked, quarantined', '--bad-fill', 'expire', 'revoke', 'quarantine', 'session_expire', 'session_bar'],
  ['sessions and workers', '--odd-fill', 'session_open', 'session_leave', 'session_close', 'session_keyspace', 'worker_drain', 'worker_undrain', 'retry'],
  ['keyspaces and servers', '--dull-fill', 'keyspace_create', 'keyspace_update', 'keyspace_delete', 'keyspace_gone', 'leader', 'token_raise', 'feature_raise', 'restore'],
].map(([name, colour, ...kinds]) => ({ name, colour, kinds }));

const byKind = new Map(groups.flatMap((g, i) => g.kinds.map((k) => [k, i])));

// groupOf is the index into groups of a kind; what a later version has made up
// belongs to the last.
export const groupOf = (kind) => byKind.get(kind) ?? groups.length - 1;

const sizes = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];
const height = 96, foot = 16;

// histogram makes the picture. chosen(range) hears which stretch [from, to) in
// Unix milliseconds is chosen, or null. It returns {el, stop(), update(times,
// kinds, from, to)}: kinds as groupOf has them.
export function histogram(chosen) {
  let bins = [], size = 1000; // [start, [count of each group], total]
  let data = [[], [], 0, 1];
  let anchor = null, cursor = null; // starts of the first and the last bin chosen
  let range = null, dragged = false;

  const canvas = h('canvas', { tabindex: 0, role: 'img', class: 'bins', 'aria-describedby': 'bins-help' });
  const words = h('span', { class: 'muted small', 'aria-live': 'polite' });
  const reset = h('button', { type: 'button', class: 'ghost', hidden: true, onclick: () => { clear(); canvas.focus(); } }, 'Clear');
  const grid = table({
    caption: 'Events over time', id: (b) => b[0], size: 20, sort: { key: 'from', down: true }, empty: 'No events.',
    columns: [col('from', (b) => b[0], (b) => h('time', { class: 'mono', title: stamp(b[0]), text: clock(b[0]) })), ...groups.map((g, i) => col(g.name, (b) => b[1][i], null, true)), col('all', (b) => b[2], null, true)],
  });
  const under = h('details', { class: 'under', ontoggle: tabulate }, h('summary', { text: 'As a table' }), grid.el);
  const el = h('div', null, canvas, h('div', { class: 'row key small muted' }, groups.map((g) => h('span', null, dot(`var(${g.colour})`), g.name)), h('span', { class: 'push' }), words, reset),
    h('p', { class: 'hush', id: 'bins-help', text: 'Left and right choose a stretch of time, with Shift they widen it, Escape clears it.' }), under);

  function tabulate() {
    if (under.open) grid.update(bins.filter((b) => b[2]));
  }

  // bin puts the events into equal stretches of time, at least 8 pixels wide.
  function bin() {
    const [times, kinds, from, to] = data;
    const most = Math.max(20, Math.floor((canvas.clientWidth || 800) / 8));
    size = 1000 * (sizes.find((s) => (to - from) / 1000 / s < most) ?? sizes.at(-1));
    const first = Math.floor(from / size) * size;
    bins = Array.from({ length: Math.max(1, Math.min(4 * most, Math.floor((to - first) / size) + 1)) }, (_, i) => [first + i * size, groups.map(() => 0), 0]);
    times.forEach((t, i) => {
      const b = bins[Math.floor((t - first) / size)];
      if (!b) return;
      b[1][kinds[i]]++;
      b[2]++;
    });
  }

  function draw() {
    const width = canvas.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    const c = canvas.getContext('2d');
    c.scale(ratio, ratio);
    const inks = groups.map((g) => token(g.colour));
    const w = width / bins.length, room = height - foot, most = Math.max(1, ...bins.map((b) => b[2]));
    if (range) {
      const [x0, x1] = range.map((t) => Math.max(0, Math.min(width, ((t - bins[0][0]) / size) * w)));
      c.fillStyle = token('--accent');
      c.globalAlpha = 0.18;
      c.fillRect(x0, 0, Math.max(2, x1 - x0), room);
      c.globalAlpha = 1;
    }
    bins.forEach((b, i) => {
      let y = room;
      b[1].forEach((v, g) => {
        if (!v) return;
        const tall = Math.max(1.5, (v / most) * (room - 14));
        c.fillStyle = inks[g];
        c.fillRect(i * w + 0.5, y -= tall, Math.max(1, w - 1), tall);
      });
    });
    c.fillStyle = token('--line');
    c.fillRect(0, room, width, 1);
    c.fillStyle = token('--muted');
    c.font = '11px system-ui, sans-serif';
    c.textBaseline = 'top';
    for (let i = 0; i * w < width - 50; i += Math.ceil(110 / w)) c.fillText(clock(bins[i][0]), i * w, room + 3);
    const unit = size < 60_000 ? `${size / 1000} s` : size < 3_600_000 ? `${size / 60_000} min` : `${size / 3_600_000} h`;
    c.fillText(`${count(most)} in ${unit}`, 2, 1);
    const sum = (from, to) => many(bins.reduce((s, b) => s + (b[0] >= from && b[0] < to ? b[2] : 0), 0), 'event');
    attr(canvas, 'aria-label', `${sum(0, Infinity)} from ${clock(bins[0][0])} to ${clock(data[3])}, at most ${most} in ${unit}; the table below has them`);
    text(words, range ? `${clock(range[0])} to ${clock(range[1])}: ${sum(...range)}` : 'Drag over the picture to choose a stretch of time.');
    reset.hidden = !range;
    tabulate();
  }

  function choose(from, to) {
    [anchor, cursor] = [from, to];
    range = from === null ? null : [Math.min(from, to), Math.max(from, to) + size];
    draw();
    chosen(range);
  }
  const clear = () => choose(null, null);
  const within = (i) => bins[Math.max(0, Math.min(bins.length - 1, i))][0];
  const binAt = (e) => within(Math.floor(((e.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth) * bins.length));

  canvas.addEventListener('pointerdown', (e) => {
    if (e.button) return;
    canvas.setPointerCapture(e.pointerId);
    dragged = true;
    choose(binAt(e), binAt(e));
  });
  canvas.addEventListener('pointermove', (e) => {
    if (dragged && binAt(e) !== cursor) choose(anchor, binAt(e));
  });
  for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, () => { dragged = false; });
  canvas.addEventListener('keydown', (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[e.key];
    if (!step && !(e.key === 'Escape' && range)) return;
    e.preventDefault();
    if (!step) return clear();
    const from = cursor === null ? (step < 0 ? bins.length : -1) : Math.round((cursor - bins[0][0]) / size);
    const to = within(from + step);
    choose(e.shiftKey && anchor !== null ? anchor : to, to);
  });
  const watch = new ResizeObserver(() => { if (bins.length) { bin(); draw(); } });
  watch.observe(canvas);
  addEventListener('themechange', draw);

  return {
    el,
    update(...news) {
      data = news;
      bin();
      draw();
    },
    stop() {
      watch.disconnect();
      removeEventListener('themechange', draw);
    },
  };
}
