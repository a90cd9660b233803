// Small pieces that several views show.
import { h, put, attr } from '../dom.js';
import { colour } from '../colours.js';

export const tag = (words, look = '') => h('span', { class: `tag ${look}`, text: words });
export const tags = (...all) => h('span', { class: 'tags' }, all);
export const dot = (background) => h('i', { class: 'swatch', 'aria-hidden': 'true', style: { background } });

// who is a worker: its colour, its id, and the way to its details.
export const who = (id) => h('a', { href: `#/workers?id=${encodeURIComponent(id)}`, class: 'mono', title: id }, dot(colour(id)), id);

// at is the address of a partition's page.
export const at = (keyspace, n) => `#/partition/${encodeURIComponent(keyspace)}/${n}`;

// same draws an element again only when it would say something else.
export function same(el, key, make) {
  key = JSON.stringify(key);
  if (el.dataset.key === key) return;
  el.dataset.key = key;
  put(el, make());
}

// col is a column of a table, called what its heading says.
export const col = (label, value, cell, num = false) => ({ key: label, label, value, cell, num });
// cut is words that may be too long for where they stand.
export const cut = (words) => h('span', { class: 'cut', title: words, text: words });
export const mono = (words) => h('span', { class: 'mono', text: words });

// facts is a list of [name, value, look]; what has no value is left out.
export function facts() {
  const el = h('dl', { class: 'pairs' });
  return { el, update: (pairs) => same(el, pairs, () => pairs.filter(([, v]) => v && v !== '0')
    .map(([k, v, look = '']) => h('div', null, h('dt', { text: k }), h('dd', { class: `mono ${look}`, text: v })))) };
}

// choice is a row of buttons of which one is pressed; options are [label, value].
export function choice(label, options, pressed, pick) {
  const el = h('div', { class: 'seg', role: 'group', 'aria-label': label }, options.map(([words, value]) => h('button', { type: 'button', 'aria-pressed': String(value === pressed), onclick: (e) => {
    for (const b of el.children) attr(b, 'aria-pressed', String(b === e.target));
    pick(value);
  } }, words)));
  return el;
}
