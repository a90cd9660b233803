// The servers: the Raft group, the asked one's log and disk, and whom it sees in
// gossip. A server measures only itself; the others' consoles are a link away.
import { h, text, attr, panel, table } from '../dom.js';
import { ago, bytes, count, many, span } from '../words.js';
import { cli, command, failure } from '../actions.js';
import { col, facts, same, tag, tags } from './parts.js';

export const title = 'Servers';

const every = 3000; // how often the asked server is asked for its measurements
const n = (v) => Number(v ?? 0);
const ms = (v) => `${v.toFixed(v < 10 ? 2 : v < 100 ? 1 : 0)} ms`;
const alive = (s) => tag(s || 'unknown', { alive: 'good', dead: 'bad', leaving: 'warn' }[s]);

// visit is a link to another server's console, or nothing: what it advertises
// may be nonsense, or not HTTP.
function visit(s, words) {
  let url;
  try {
    url = new URL(`${location.protocol}//${s.http_addr}/ui/#/servers`);
  } catch {
    return null;
  }
  return s.http_addr && url.host === s.http_addr.toLowerCase() ? h('a', { href: url.href, target: '_blank', rel: 'noopener', 'aria-label': `Console of ${s.id}` }, words) : null;
}

export function mount(root, { store }) {
  let ended = false;
  const asked = () => store.cluster?.server ?? '';
  // Only the leader knows how far the others are.
  const known = () => !!store.cluster?.leading;
  const behind = (s) => Math.max(0, ...store.servers.map((x) => x.last_index - s.last_index));
  const role = (s) => (s.leader ? 'leader' : s.voter ? 'voter' : 'non-voter');

  const lead = h('span');
  const raft = table({
    caption: 'Servers of the Raft group', id: (s) => s.id, sort: { key: 'server', down: false }, empty: 'This server knows of no Raft group yet.',
    columns: [
      col('server', (s) => s.id, (s) => tags(h('b', { class: 'mono', text: s.id }), s.id === asked() ? tag('asked') : visit(s, 'its console'))),
      col('role', role, (s) => tag(role(s), s.leader ? 'good' : s.voter ? '' : 'warn')),
      col('gossip', (s) => s.gossip, (s) => alive(s.gossip)),
      col('log end', (s) => s.last_index, (s) => (s.last_index ? count(s.last_index) : '–'), true),
      col('behind', behind, (s) => (s.last_index && known() ? count(behind(s)) : '–'), true),
      col('last contact', (s) => s.last_contact_ms, (s) => (s.leader || !known() ? '–' : s.last_contact_ms < 0 ? 'not known' : span(s.last_contact_ms)), true),
      col('version', (s) => s.version), col('feature level', (s) => s.feature, (s) => s.feature || '–', true), col('Raft address', (s) => s.raft_addr), col('note', (s) => s.note || '–'),
    ],
  });

  const name = h('span'), trouble = h('p', { class: 'bad', role: 'status', hidden: true });
  const log = facts(), disk = facts(), self = facts();

  const whose = h('p', { class: 'muted' }), compare = h('p', { class: 'muted small' });
  const members = table({
    caption: 'Members of gossip as the asked server sees them', id: (m) => `${m.role}/${m.id}`, sort: { key: 'member', down: false }, mark: (m) => (m.status === 'dead' ? 'needs-bad' : ''), empty: 'Gossip sees nobody.',
    columns: [
      col('member', (m) => `${m.role} ${m.id}`, (m) => h('b', { class: 'mono', text: m.id })), col('role', (m) => m.role), col('seen as', (m) => m.status, (m) => alive(m.status)),
      col('for', (m) => -m.since_ms, (m) => ago(m.since_ms), true), col('address', (m) => m.addr),
    ],
  });

  root.append(
    panel('Raft', lead, raft.el, cli(() => command(['raft', 'peers'])).el),
    panel('The asked server', name, trouble, h('div', { class: 'cols' },
      h('section', null, h('h3', { text: 'Log' }), log.el),
      h('section', null, h('h3', { text: 'Disk' }), disk.el),
      h('section', null, h('h3', { text: 'Process' }), self.el)), cli(() => command(['doctor'])).el),
    panel('Gossip: whom the asked server sees', compare, whose, members.el));

  function draw() {
    const c = store.cluster;
    text(lead, c?.leader ? `${c.leader} leads in term ${c.term}; ${many(store.servers.filter((s) => s.voter).length, 'voter')}${known() ? '' : '; how far the others are it tells in its console'}` : 'no leader: nothing is granted, and owners stop at their deadline');
    attr(lead, 'class', c?.leader ? 'muted' : 'bad');
    raft.update(store.servers);
    const seen = {};
    for (const m of store.gossip) seen[m.status] = (seen[m.status] ?? 0) + 1;
    text(whose, `${asked()} sees ${Object.entries(seen).map(([s, x]) => `${x} ${s}`).join(', ') || 'nobody'}. A server tells only what it sees itself, and all must agree. Gossip is a hint: sessions decide who may own.`);
    members.update(store.gossip);
    const others = store.servers.filter((s) => s.id !== asked());
    same(compare, others.map((s) => [s.id, s.http_addr]), () => (others.length ? ['Compare with what is seen by ', others.map((s, i) => [i ? ', ' : '', visit(s, s.id) ?? s.id])] : []));
  }

  function measured(s, x) {
    text(name, `${s.server_id}: ${s.raft_state}, ${s.ready ? 'ready' : `not ready: ${s.not_ready_reason || 'no reason given'}`}`);
    attr(name, 'class', s.ready ? 'muted' : 'warn');
    const last = n(x.log_last_index), commit = n(s.commit_index), applied = n(s.applied_index), snap = n(x.snapshot_index);
    const togo = (v, d) => (d > 0 ? `${count(v)} (${count(d)} to go)` : count(v));
    log.update([
      ['term', count(s.term)], ['log end', count(last)], ['committed', togo(commit, last - commit)], ['applied', togo(applied, commit - applied), commit - applied > 5000 ? 'bad' : ''], ['begins at', count(n(x.log_first_index))],
      ['snapshot', snap ? `${ago(Date.now() - n(x.snapshot_age_ms))} ago, ${bytes(x.snapshot_bytes)}, at ${count(snap)}` : 'none yet'], ['since the snapshot', many(Math.max(0, last - snap), 'entry', 'entries')],
      ['heard from a leader', s.raft_state === 'leader' ? 'it leads' : `${span(n(s.age_ms))} ago`], ['leader changes seen', count(n(x.leader_changes))],
    ]);
    const memory = !x.data_dir, free = n(x.disk_free_bytes), size = n(x.disk_size_bytes);
    disk.update(memory ? [['kept in', 'memory only: gone when it ends', 'warn']] : [
      ['fsync, half within', ms(n(x.fsync_p50_ms))], ['fsync, 99 % within', ms(n(x.fsync_p99_ms)), n(x.fsync_p99_ms) > 100 ? 'warn' : ''], ['fsync, worst', ms(n(x.fsync_max_ms))],
      ['storage', x.storage_poisoned && 'poisoned: a write failed, replace the disk', 'bad'], ['kept in', x.data_dir], ['its data', bytes(x.data_bytes)], ['disk free', `${bytes(free)} of ${bytes(size)}`, free < size / 10 ? 'bad' : ''],
      ['last backup from here', x.last_backup ? `${ago(Date.parse(x.last_backup))} ago` : 'none since it runs']]);
    self.update([
      ['version', x.version], ['feature level', `${n(s.feature_level)} of ${n(s.max_feature_level)}`], ['up for', ago(Date.now() - n(x.uptime_ms))], ['memory', bytes(x.resident_bytes)],
      ['open files', `${count(n(x.open_files))} of ${count(n(x.max_open_files))}`], ['election timeout', span(n(s.election_timeout_ms))],
    ]);
  }

  async function ask() {
    if (document.hidden) return;
    let got, err;
    try {
      got = await Promise.all([store.call('ClusterService', 'GetStatus'), store.call('ClusterService', 'GetHealth')]);
    } catch (e) {
      err = e;
    }
    if (ended) return;
    trouble.hidden = !err;
    if (err) text(trouble, `The server does not tell its measurements: ${failure(err)}. What is shown is the last it said.`);
    else measured(...got);
  }

  const off = ['servers', 'cluster', 'gossip'].map((t) => store.on(t, draw));
  const timer = setInterval(ask, every);
  draw();
  ask();
  return () => {
    ended = true;
    clearInterval(timer);
    off.forEach((f) => f());
  };
}
