// words.js says times, numbers and events the same way in every view.

const grouped = new Intl.NumberFormat('en');

// count is 12,345; 64-bit numbers come as strings in JSON, and all of ours are
// below 2^53.
export const count = (n) => grouped.format(Number(n));

// many is "1 worker", "3 workers".
export const many = (n, one, more = `${one}s`) => `${count(n)} ${Number(n) === 1 ? one : more}`;

// span says a duration of so many milliseconds, in at most two units.
export function span(ms) {
  if (!(ms >= 0)) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 10) return `${(ms / 1000).toFixed(1)} s`;
  return s < 60 ? `${s} s` : long(s);
}

function long(s) {
  const [a, b, unit, sub] = s < 3600 ? [60, 1, 'min', 's'] : s < 86400 ? [3600, 60, 'h', 'min'] : [86400, 3600, 'd', 'h'];
  const rest = Math.floor((s % a) / b);
  return `${Math.floor(s / a)} ${unit}${rest ? ` ${rest} ${sub}` : ''}`;
}

// ago is how long a Unix time in milliseconds is past, in whole seconds.
export function ago(at, now = Date.now()) {
  if (!at) return '–';
  const ms = Math.max(0, now - at);
  return ms < 10_000 ? `${Math.floor(ms / 1000)} s` : span(ms);
}

// bytes is an amount of data: "3.4 MiB".
export function bytes(n) {
  n = Number(n ?? 0);
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
}

// clock is the time of day where the viewer is, to the second.
export const clock = (at) => new Date(at).toLocaleTimeString('en-GB');

// stamp is for titles: date and time with milliseconds, UTC.
export const stamp = (at) => new Date(at).toISOString().replace('T', ' ');

// when is an event's time in Unix milliseconds, by the leader's clock.
export const when = (ev) => (ev.time ? Date.parse(ev.time) : 0);

// place is "orders/17", or the keyspace.
export const place = (ev) => (ev.partition == null ? ev.keyspace ?? '' : `${ev.keyspace}/${ev.partition}`);

// causes are the ledger's words, in ours.
export const causes = {
  initial: 'the keyspace is new', join: 'a worker joined', leave: 'its worker left', restart: 'its worker restarted',
  expired: 'the session ran out', crash: 'the worker crashed', drain: 'its worker is drained', balance: 'evening out',
  operator: 'an operator moved it', superseded: 'a newer session took over', evicted: 'the worker was evicted',
  drained: 'handed over', yield: 'the worker gave it up', failed: 'the handler failed', ended: 'the context had ended',
  claim_refused: 'the resource refused the claim', refused: 'the worker refused it', timeout: 'the handoff took too long',
  deleted: 'the keyspace was deleted', closed: 'the session was closed', retry: 'tried again',
};

// because says a cause in words; causes of later versions as they are.
export const because = (cause) => (!cause || cause === 'none' ? '' : causes[cause] ?? cause.replaceAll('_', ' '));

const sentences = {
  grant: (e, p) => (!e.from ? `${e.worker} was given ${p}` : e.from === e.worker ? `${e.worker} got ${p} back` : `${p} went from ${e.from} to ${e.worker}`),
  release: (e, p) => `${e.worker} released ${p}`,
  revoke: (e, p) => `${e.worker}'s lease of ${p} was revoked`,
  expire: (e, p) => `${e.worker}'s lease of ${p} ran out`,
  drain: (e, p) => `${e.worker} was asked to hand over ${p}`,
  quarantine: (e, p) => `${p} is quarantined: too many workers failed on it`,
  retry: (e, p) => `${p} will be tried again`,
  session_open: (e) => `${e.worker} joined`,
  session_leave: (e) => `${e.worker} is leaving`,
  session_close: (e) => `${e.worker}'s session ended in order`,
  session_expire: (e) => `${e.worker}'s session ran out`,
  session_bar: (e) => `${e.worker}'s session was barred`,
  session_keyspace: (e) => `${e.worker} takes part in ${e.keyspace}`,
  worker_drain: (e) => `${e.worker} is to be drained`,
  worker_undrain: (e) => `${e.worker} may own partitions again`,
  keyspace_create: (e) => `keyspace ${e.keyspace} was created`,
  keyspace_update: (e) => `keyspace ${e.keyspace} was changed`,
  keyspace_delete: (e) => `keyspace ${e.keyspace} is being deleted`,
  keyspace_gone: (e) => `keyspace ${e.keyspace} is gone`,
  leader: (e) => `${e.worker || 'a server'} leads`,
  token_raise: () => 'tokens were raised',
  feature_raise: (e) => `feature level ${e.token}`,
  restore: () => 'the cluster was restored from a backup',
};

// happened says an event in one sentence without its time and cause.
export const happened = (ev) => sentences[ev.kind]?.(ev, place(ev)) ?? [ev.kind.replaceAll('_', ' '), place(ev), ev.worker].filter(Boolean).join(' ');

// serious says how an event looks: bad, warn, good or plain.
export function serious(ev) {
  if (['quarantine', 'expire', 'session_expire'].includes(ev.kind)) return 'bad';
  if (['revoke', 'drain', 'session_bar', 'leader', 'worker_drain', 'restore'].includes(ev.kind)) return 'warn';
  if (ev.kind === 'grant' && ['expired', 'crash', 'failed', 'evicted'].includes(ev.cause)) return 'warn';
  return ['grant', 'session_open'].includes(ev.kind) ? 'good' : 'plain';
}
