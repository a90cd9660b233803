// heatmap.js is a map of many cells on a canvas. It draws a cell again only
// when its look has changed, and nothing at all while nothing does.

import { attr, calm, h } from './dom.js';
import { token } from './colours.js';

const largest = 22, least = 3; // pixels of a cell
const gutter = 46; // for the number of a row's first cell
const fade = 900; // ms that a change is seen for

// heatmap makes a map. It tells
//   onpoint(p, x, y)  what the pointer is over, -1 for nothing
//   onmove(p)         where the cursor is now, by key or click, -1 for nowhere
//   onopen(p)         that a cell is to be opened
export function heatmap({ help, onpoint, onmove, onopen }) {
  const canvas = h('canvas', { 'aria-hidden': 'true' }), cursor = h('div', { class: 'cursor', hidden: true });
  const el = h('div', { class: 'heat', tabindex: 0, role: 'application', 'aria-roledescription': 'map of partitions', 'aria-describedby': help }, canvas, cursor);
  const ctx = canvas.getContext('2d', { alpha: false });

  let n = 0, bucket = [], mark = []; // what is
  let drawn = new Int32Array(0); // what can be seen
  let looks = [], lit = null; // which buckets stand out; null: none does
  let size = largest, gap = 1, cols = 1, rows = 1, ground = '', faint = '', glow = '';
  let at = -1, frame = 0;
  const flashes = new Map(); // cell → when it changed
  const stats = { cells: 0, last: 0, worst: 0 }; // drawn, and ms of a frame

  function layout() {
    const width = el.clientWidth - gutter, tall = Math.min(460, Math.max(240, innerHeight * 0.48));
    if (width <= 0) return;
    // The largest cells with which all fit; rows of a round number of cells
    // are easier to count along.
    for (size = largest; ; size--) {
      cols = Math.floor(width / size);
      if (cols > 32) cols -= cols % 8;
      if (size === least || Math.ceil(n / cols) * size <= tall) break;
    }
    cols = Math.max(1, Math.min(cols, n));
    rows = Math.ceil(n / cols);
    gap = size >= 6 ? 1 : 0;
    const ratio = devicePixelRatio || 1, [w, t] = [gutter + cols * size, rows * size];
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(t * ratio);
    canvas.style.width = `${w}px`;
    canvas.style.height = `${t}px`;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    colours();
  }

  // colours reads the theme and draws all of it again.
  function colours() {
    [ground, faint, glow] = ['--panel', '--muted', '--text'].map(token);
    drawn.fill(-1);
    ctx.fillStyle = ground;
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = faint;
    ctx.font = '10px ui-monospace, "DejaVu Sans Mono", monospace';
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    for (let r = 0; r < rows; r += Math.ceil(14 / size)) ctx.fillText(r * cols, gutter - 8, Math.max(6, r * size + size / 2 + 0.5));
    place();
    ask();
  }

  function ask() {
    frame ||= requestAnimationFrame(paint);
  }

  function paint(now) {
    const start = performance.now();
    frame = 0;
    for (let p = 0; p < n; p++) {
      const look = (bucket[p] << 4) | (mark[p] << 1) | (lit && !lit[bucket[p]] ? 1 : 0), since = flashes.get(p);
      if (look === drawn[p] && since === undefined) continue;
      drawn[p] = look;
      draw(p, look & 1);
      stats.cells++;
      const left = 1 - (now - since) / fade;
      if (left > 0) {
        ctx.globalAlpha = Math.min(1, left) * 0.75;
        ctx.fillStyle = glow;
        box(p, gap);
        ctx.globalAlpha = 1;
      } else flashes.delete(p);
    }
    if (flashes.size) ask();
    stats.last = performance.now() - start;
    stats.worst = Math.max(stats.worst, stats.last);
  }

  const left = (p) => gutter + (p % cols) * size, upper = (p) => Math.floor(p / cols) * size;
  const box = (p, gap) => ctx.fillRect(left(p), upper(p), size - gap, size - gap);

  function draw(p, dim) {
    const { fill, ink } = looks[bucket[p]], state = mark[p];
    ctx.fillStyle = ground;
    if (dim || gap) box(p, 0);
    ctx.globalAlpha = dim ? 0.17 : 1;
    ctx.fillStyle = fill;
    box(p, gap);
    if (state !== 1 && size >= 5) glyph(left(p), upper(p), size - gap, state, ink);
    ctx.globalAlpha = 1;
  }

  // glyph says a state without colour: unowned is struck through, draining has
  // lost a corner, quarantined is crossed out, blocked is barred.
  function glyph(x, y, w, state, ink) {
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.lineWidth = Math.max(1.5, w / 7);
    ctx.beginPath();
    const line = (a, b, c, d) => {
      ctx.moveTo(x + a * w, y + b * w);
      ctx.lineTo(x + c * w, y + d * w);
    };
    if (state === 2) {
      line(1, 0.35, 1, 1);
      ctx.lineTo(x + w * 0.35, y + w);
      return ctx.fill();
    }
    if (state === 4) line(0, 0.5, 1, 0.5);
    else line(0, 1, 1, 0);
    if (state === 3) line(0, 0, 1, 1);
    ctx.stroke();
  }

  function place() {
    cursor.hidden = at < 0;
    Object.assign(cursor.style, { left: `${left(at)}px`, top: `${upper(at)}px`, width: `${size - gap}px`, height: `${size - gap}px` });
  }

  function move(p) {
    at = Math.max(-1, Math.min(n - 1, p));
    place();
    if (at >= 0) cursor.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    onmove(at);
  }

  function under(e) {
    const r = canvas.getBoundingClientRect(), c = Math.floor((e.clientX - r.left - gutter) / size), p = Math.floor((e.clientY - r.top) / size) * cols + c;
    return c >= 0 && c < cols && p >= 0 && p < n ? p : -1;
  }

  const row = () => at - (at % cols), down = (by) => (at + by * cols < n ? at + by * cols : at), up = (by) => (at >= by * cols ? at - by * cols : at);
  const steps = {
    ArrowLeft: () => at - 1, ArrowRight: () => at + 1, ArrowUp: () => up(1), ArrowDown: () => down(1), PageUp: () => up(10), PageDown: () => down(10),
    Home: (e) => (e.ctrlKey ? 0 : row()), End: (e) => (e.ctrlKey ? n - 1 : row() + cols - 1),
  };
  el.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && at >= 0) return onopen(at);
    if (e.key === 'Escape') return move(-1);
    if (!steps[e.key] || e.altKey || e.metaKey) return;
    e.preventDefault();
    move(at < 0 ? 0 : Math.max(0, steps[e.key](e)));
  });
  canvas.addEventListener('pointermove', (e) => onpoint(under(e), e.clientX, e.clientY));
  canvas.addEventListener('pointerleave', () => onpoint(-1));
  canvas.addEventListener('click', (e) => move(under(e)));
  canvas.addEventListener('dblclick', (e) => under(e) >= 0 && onopen(under(e)));

  const watch = new ResizeObserver(layout);
  watch.observe(el);
  addEventListener('themechange', colours);

  return {
    el, stats,
    get cursor() { return at; },
    // middle is where a cell is, in pixels of the window.
    middle(p) {
      const r = canvas.getBoundingClientRect();
      return [r.left + left(p) + size / 2, r.top + upper(p) + size / 2];
    },
    // show takes new cells: a bucket and a state each, and for each bucket its
    // {fill, ink}. The arrays are read when the next frame is drawn.
    show(cells) {
      const other = cells.n !== n;
      ({ n, bucket, mark, looks } = cells);
      if (other) {
        drawn = new Int32Array(n).fill(-1);
        flashes.clear();
        at = -1;
        layout();
      }
      ask();
    },
    // repaint forgets what was drawn: looks mean something else now.
    repaint() {
      drawn.fill(-1);
      ask();
    },
    light(on) {
      lit = on;
      ask();
    },
    flash(p) {
      if (calm()) return;
      flashes.set(p, performance.now());
      ask();
    },
    label: (words) => attr(el, 'aria-label', words),
    stop() {
      watch.disconnect();
      removeEventListener('themechange', colours);
      cancelAnimationFrame(frame);
    },
  };
}
