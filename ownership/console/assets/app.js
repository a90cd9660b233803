// app.js is the shell: which view is seen, what is said above it, the keyspace,
// the theme, and what happens when a view fails.

import { store } from './store.js';
import { act } from './actions.js';
import { attr, h, options, put, say, text } from './dom.js';
import { meet } from './colours.js';

// views in the order of the navigation; those without a label are reached from
// others. A view is loaded when it is first looked at.
const views = {
  overview: 'Overview', partitions: 'Partitions', ring: 'Ring', workers: 'Workers', timeline: 'Timeline', servers: 'Servers', partition: '',
};
const $ = (id) => document.getElementById(id);
const [main, nav, picker, pill, button] = ['main', 'nav', 'keyspace', 'connection', 'theme'].map($);

// -------------------------------------------------------------------- router

let leave = null; // ends the view that is shown
let visit = 0; // counts navigations: a view that is loaded too late is dropped

function navigate(to) {
  const hash = to.startsWith('#') ? to : `#/${to}`;
  if (location.hash === hash) route();
  else location.hash = hash;
}

// read takes an address such as '#/partition/orders/17?x=1' apart. params are
// {query, keyspace}, and of one partition its number.
function read(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [name, keyspace = '', n] = path.split('/').map(decode);
  const params = { query: new URLSearchParams(query) };
  params.keyspace = params.query.get('keyspace') ?? '';
  if (name === 'partition') Object.assign(params, { keyspace, partition: Number(n) });
  if (name === 'partition' && !/^\d+$/.test(n)) return { name: 'partitions', params };
  return { name: Object.hasOwn(views, name) ? name : 'overview', params };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function route() {
  const mine = ++visit;
  const { name, params } = read(location.hash);
  if (params.keyspace && params.keyspace !== store.keyspace) store.watch(params.keyspace);
  for (const a of nav.children) attr(a, 'aria-current', a.dataset.view === (name === 'partition' ? 'partitions' : name) ? 'page' : null);
  nav.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  let view, failure;
  try {
    view = await import(`./views/${name}.js`);
  } catch (err) {
    failure = err;
  }
  if (mine !== visit) return;
  stop();
  const root = h('div', { class: `view ${name}` });
  put(main, root);
  try {
    if (failure) throw failure;
    const label = typeof view.title === 'function' ? view.title(params) : view.title;
    const heading = h('h1', { tabindex: -1 }, label);
    document.title = `${label} · Leasehold`;
    root.append(heading);
    leave = view.mount(root, { store: guarded(root, name), params, navigate, act });
    // Who moves on by keyboard or reader finds the new view, not the old link.
    if (mine > 1) {
      heading.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  } catch (err) {
    broken(root, name, err);
  }
}

function stop() {
  const end = leave;
  leave = null;
  end?.();
}

// guarded is the store as a view sees it: what fails while a view draws news
// takes down that view, not the page and not the others that listen.
function guarded(root, name) {
  const on = (topic, fn) => store.on(topic, (...news) => {
    try {
      fn(...news);
    } catch (err) {
      broken(root, name, err);
    }
  });
  return new Proxy(store, { get: (s, k) => (k === 'on' ? on : s[k]) });
}

function broken(root, name, err) {
  console.error(err);
  stop();
  put(root, h('section', { class: 'panel broken', role: 'alert' },
    h('h1', null, 'This view cannot be shown'),
    h('p', null, `“${name}” failed with: `, h('code', null, err?.message ?? err)),
    h('p', null, 'The cluster is not affected, and the other views go on.'),
    h('button', { type: 'button', onclick: route }, 'Try again')));
}

// --------------------------------------------------------------------- header

for (const [view, label] of Object.entries(views)) if (label) nav.append(h('a', { href: `#/${view}`, dataset: { view } }, label));

const facts = Object.fromEntries(['cluster', 'server', 'leader', 'version'].map((name) => [name, h('dd')]));
$('facts').append(...Object.entries(facts).map(([name, dd]) => h('div', null, h('dt', null, name), dd)));

function headline() {
  const { hello, cluster: c } = store;
  const fact = (name, value, look) => {
    text(facts[name], value || '–');
    facts[name].className = look || '';
  };
  fact('cluster', hello?.cluster_id?.slice(0, 8));
  attr(facts.cluster, 'title', hello?.cluster_id);
  fact('server', c?.server || hello?.server);
  fact('leader', c && (c.leader ? `${c.leader} · term ${c.term}` : 'none'), c && !c.leader && 'bad');
  const mixed = c?.versions?.length > 1;
  fact('version', mixed ? c.versions.join(', ') : hello?.version, mixed && 'warn');
}

const staleAfter = 3000; // ms: servers hear from a leader several times a second
const seconds = (ms) => `${Math.floor(ms / 1000)} s`;
let lost = Date.now(); // when the feed broke
let told = 0; // when the server last said how old its state is

function connection() {
  const c = store.cluster;
  let words = 'live', look = 'good';
  if (!store.connected) {
    lost ||= Date.now();
    [words, look] = [`${c ? 're' : ''}connecting… ${seconds(Date.now() - lost)}`, 'warn'];
  } else {
    lost = 0;
    const why = !c ? '' : !c.leader ? 'no leader' : c.ready === false ? c.not_ready_reason || 'not ready' : '';
    if (why || c?.age_ms > staleAfter) [words, look] = [`stale for ${seconds(c.age_ms + Date.now() - told)}${why && `: ${why}`}`, 'bad'];
  }
  text(pill, words);
  attr(pill, 'title', store.problem || null);
  pill.className = `pill ${look}`;
  document.body.classList.toggle('stale', look !== 'good' && !!c);
}

function keyspaces() {
  const names = store.keyspaces.map((k) => k.name);
  options(picker, names);
  picker.value = store.keyspace;
  picker.disabled = names.length < 2 && names.includes(store.keyspace) || !names.length; // what is watched may be gone
}

picker.addEventListener('change', () => {
  store.watch(picker.value);
  say(`Keyspace ${picker.value}`);
  if (read(location.hash).name === 'partition') navigate('#/partitions');
});

// ---------------------------------------------------------------------- theme

const themes = { auto: '◐', light: '☀', dark: '☾' };
const key = 'leasehold.theme';

// guard does without a storage that the browser denies.
function guard(use) {
  try {
    return use();
  } catch {
    return null;
  }
}

function theme(name) {
  if (name === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  text(button, themes[name]);
  attr(button, 'aria-label', `Theme: ${name}. Change`);
  button.title = `Theme: ${name}`;
  button.value = name;
  changed();
}

// changed tells pictures, which read their colours once.
const changed = () => dispatchEvent(new Event('themechange'));

button.addEventListener('click', () => {
  const names = Object.keys(themes), next = names[(names.indexOf(button.value) + 1) % names.length];
  guard(() => localStorage.setItem(key, next));
  theme(next);
  say(`Theme ${next}`);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);

// ---------------------------------------------------------------------- start

const remembered = guard(() => localStorage.getItem(key));
theme(Object.hasOwn(themes, remembered) ? remembered : 'auto');
$('skip').addEventListener('click', (e) => {
  e.preventDefault(); // the address belongs to the router
  main.focus();
});
store.on('cluster', () => { told = Date.now(); });
store.on('workers', (all) => meet(all.map((w) => w.id)));
for (const t of ['connection', 'hello', 'cluster', 'keyspaces']) {
  store.on(t, () => {
    headline();
    connection();
    keyspaces();
  });
}
setInterval(connection, 1000);
addEventListener('hashchange', route);
route();
