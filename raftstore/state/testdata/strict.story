# A strict lease ends by release or expiry, whatever the leader wants.

create name=strict p=2 ttl=2s
create name=fenced p=4 ttl=2s takeover=fenced
----
1: ok
2: ok
  2 keyspace_create 1
  3 keyspace_create 2

open session=1 worker=w1 inc=0 ks=strict,fenced zone=a
----
session 1 incarnation=3 ttl=2s deadline=2s
  4 session_open w1 session=1

grant ks=1 cause=initial 0:0>1
grant ks=2 cause=initial 0:0>1 1:0>1 2:0>1
----
1: ok
2: ok
  5 grant 1/0 w1 session=1 token=1 cause=initial
  6 grant 2/0 w1 session=1 token=2 cause=initial
  7 grant 2/1 w1 session=1 token=3 cause=initial
  8 grant 2/2 w1 session=1 token=4 cause=initial

revoke ks=1 cause=crash 0#1@1
----
refused: keyspace takeover "strict": strict: fenced; a strict lease ends by release or expiry

revoke ks=2 cause=crash 0#2@1 1#2@1 3#0@1
----
item 2 refused: lease partition "fenced/1": stale token: token 3, not 2 (held by w1, token 3)
item 3 refused: lease partition "fenced/3": not holder: the session that holds it, not 1
  9 revoke 2/0 w1 session=1 token=2 cause=crash

# The session itself lives: only the leases were taken.

keepalive elapsed=0s 1
----
ok ttl=2000ms

evict worker=w1
----
ok
  10 worker_drain w1 cause=drain
  11 session_bar w1 session=1 cause=evicted
  12 revoke 2/1 w1 session=1 token=3 cause=evicted
  13 revoke 2/2 w1 session=1 token=4 cause=evicted

keepalive elapsed=0s 1
----
refused: session session_id "1": evicted: a session that is not barred

# A strict lease of an evicted session outlives it until the worker says so.

show
----
clock=0s token=4
session 1 w1 evicted ttl=2s renewal=7 deadline=2s held=1 keyspaces=[1 2]
worker w1 incarnation=3 session=1 drained=true opens=[0s]
keyspace 1 strict strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=1 session=1 draining=false since=0s previous=
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=2 session=0 draining=false since=0s previous=w1
  1 token=3 session=0 draining=false since=0s previous=w1
  2 token=4 session=0 draining=false since=0s previous=w1

release session=1 cause=ended 1/0#1
----
ok
  14 release 1/0 w1 session=1 token=1 cause=ended

unbar worker=w1
unbar worker=w1
----
1: ok
2: ok
  15 worker_undrain w1 cause=drain

open session=2 worker=w1 inc=3 ks=strict
----
session 2 incarnation=12 ttl=2s deadline=2s
  16 session_open w1 session=2

grant ks=1 cause=join 0:1>2
----
ok
  17 grant 1/0 w1 session=2 token=5 from=w1 cause=join

# A keyspace that becomes fenced lets go of what barred sessions kept.

open session=3 worker=w1 inc=11 ks=strict
----
refused: worker incarnation "11": incarnation: 12, the present one

update name=strict ttl=1s takeover=fenced
----
ok
  18 keyspace_update 1

show
----
clock=0s token=5
session 1 w1 evicted ttl=1s renewal=7 deadline=2s held=0 keyspaces=[1 2]
session 2 w1 live ttl=1s renewal=12 deadline=2s held=1 keyspaces=[1]
worker w1 incarnation=12 session=2 drained=false opens=[0s 0s]
keyspace 1 strict fenced owned=1 draining=0 quarantined=0 deleting=false
  0 token=5 session=2 draining=false since=0s previous=
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=2 session=0 draining=false since=0s previous=w1
  1 token=3 session=0 draining=false since=0s previous=w1
  2 token=4 session=0 draining=false since=0s previous=w1
