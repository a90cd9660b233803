// dom.js makes elements. Data only ever becomes text: there is no way through
// here for markup that somebody hid in a worker's name.

// h makes an element. Props: text, dataset and style take what their names say,
// functions named on… become listeners, true and false switch an attribute on
// and off; the rest are attributes. Children are nodes, strings, numbers, or
// arrays of those; null, false and '' are left out.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v == null || v === false) continue;
    if (k === 'text') el.textContent = v;
    else if (k === 'dataset') Object.assign(el.dataset, v);
    else if (k === 'style') for (const [p, x] of Object.entries(v)) el.style.setProperty(p, x);
    else if (typeof v === 'function') el.addEventListener(k.slice(2).toLowerCase(), v);
    else if (k === 'value') el.value = v;
    else el.setAttribute(k, v === true ? '' : v);
  }
  el.append(...nodes(children));
  return el;
}

const nodes = (children) => children.flat(Infinity).filter((c) => c != null && c !== false && c !== '').map((c) => (c instanceof Node ? c : String(c)));

// put replaces what is in el.
export function put(el, ...children) {
  el.replaceChildren(...nodes(children));
  return el;
}

// text writes only what has changed, so that nothing is announced or laid out
// again for nothing.
export function text(el, value) {
  if (el.textContent !== String(value)) el.textContent = value;
}

// attr is text for attributes; null takes it away.
export function attr(el, name, value) {
  if (value == null) el.removeAttribute(name);
  else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, value);
}

// panel is a section under a heading, with things beside the heading.
export function panel(title, aside, ...children) {
  const id = `p-${title.toLowerCase().replace(/\W+/g, '-')}`;
  return h('section', { class: 'panel', 'aria-labelledby': id }, h('div', { class: 'head' }, h('h2', { id }, title), aside), children);
}

// options fills a select with names, after one for none of them if that has a
// label, and keeps what was chosen.
export function options(select, names, none) {
  const was = select.value, all = names.join('\n');
  if (select.dataset.names === all) return;
  select.dataset.names = all;
  put(select, none && h('option', { value: '' }, none), names.map((n) => h('option', null, n)));
  if (names.includes(was)) select.value = was;
}

// say tells those who listen instead of looking.
export const say = (words) => text(document.getElementById('live'), words);

// calm says whether the user asked for less motion.
export const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// table is sorted, paged and updated in place. Columns have
//   key    what it is called in code
//   label  its heading
//   num    whether it is a number: set to the right, largest first
//   value  (row) => what to sort by; without it there is no sorting
//   cell   (row) => text or node; value without it
// id(row) tells rows apart; mark(row) gives a row a class. Cells are made again
// only where what they say has changed. It returns {el, update(rows)}.
export function table({ caption, columns, id, size = 100, sort: by = null, mark, empty = 'Nothing here.' }) {
  let rows = [], page = 0, drawn = new Map();
  const body = h('tbody'), pager = h('div', { class: 'pager' });
  const heads = columns.map((c) => h('th', { scope: 'col', class: c.num && 'num' },
    c.value ? h('button', { type: 'button', onclick: () => order(c) }, c.label) : c.label));
  const el = h('div', { class: 'table' },
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
      h('table', null, h('caption', { class: 'hush' }, caption), h('thead', null, h('tr', null, heads)), body)),
    pager);

  function order(c) {
    by = by?.key === c.key ? { key: c.key, down: !by.down } : { key: c.key, down: !!c.num };
    turn(0);
  }
  function sorted() {
    const c = columns.find((c) => c.key === by?.key), way = by?.down ? -1 : 1;
    return c ? rows.map((r) => [c.value(r), r]).sort(([a], [b]) => way * compare(a, b)).map(([, r]) => r) : rows;
  }
  function draw() {
    columns.forEach((c, i) => attr(heads[i], 'aria-sort', by?.key === c.key ? (by.down ? 'descending' : 'ascending') : null));
    const pages = Math.max(1, Math.ceil(rows.length / size));
    page = Math.min(page, pages - 1);
    const shown = sorted().slice(page * size, (page + 1) * size), next = new Map();
    for (const r of shown) {
      const k = String(id(r));
      const tr = drawn.get(k) ?? h('tr', null, columns.map((c) => h('td', { class: c.num && 'num' })));
      next.set(k, tr);
      tr.className = mark?.(r) ?? '';
      columns.forEach((c, i) => cell(tr.children[i], (c.cell ?? c.value)(r)));
    }
    drawn = next;
    if (shown.length) arrange(body, [...next.values()]);
    else put(body, h('tr', null, h('td', { class: 'none', colspan: columns.length }, empty)));
    pager.hidden = pages < 2;
    const back = pager.contains(document.activeElement) && document.activeElement.ariaLabel;
    const go = (label, name, to) => h('button', { type: 'button', class: 'ghost', 'aria-label': name, disabled: to < 0 || to >= pages, onclick: () => turn(to) }, label);
    put(pager, go('‹', 'Previous page', page - 1), h('span', null, `${page * size + 1}–${page * size + shown.length} of ${rows.length}`), go('›', 'Next page', page + 1));
    if (back) (pager.querySelector(`[aria-label="${back}"]:enabled`) ?? pager.querySelector('button:enabled'))?.focus();
  }
  function turn(n) {
    page = n;
    draw();
  }
  return { el, update(next) { rows = next; draw(); } };
}

// cell leaves alone what says the same, so that a selection and the focus
// survive the next message. Buttons are renewed: theirs is a newer row.
function cell(td, value) {
  if (!(value instanceof Node)) return text(td, value ?? '–');
  if (td.firstChild === value) return; // a view that keeps its elements
  const busy = td.contains(document.activeElement) || value.querySelector('button,input,select') == null && !value.matches('button,input,select');
  if (!busy || !td.firstChild?.isEqualNode(value)) td.replaceChildren(value);
}

// arrange puts rows in order and moves only those that are out of place: a row
// that is moved loses the focus.
function arrange(body, trs) {
  const wanted = new Set(trs);
  for (const c of [...body.children]) if (!wanted.has(c)) c.remove();
  trs.forEach((tr, i) => body.children[i] !== tr && body.insertBefore(tr, body.children[i] ?? null));
}

const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : natural.compare(String(a ?? ''), String(b ?? '')));

// natural puts w2 before w10.
export const natural = new Intl.Collator('en', { numeric: true });
