# An operator's drain of a worker outlives its sessions; records do not pile up.

create name=orders p=2 ttl=2s
open session=1 worker=w1 inc=0 ks=orders
----
1: ok
2: session 1 incarnation=2 ttl=2s deadline=2s
  2 keyspace_create 1
  3 session_open w1 session=1

bar worker=w1
bar worker=w1
bar worker=nobody
evict worker=nobody
bar worker=a/b
----
1: ok
2: ok
3: refused: worker id "nobody": not found: a worker that has had a session within the last hour
4: refused: worker id "nobody": not found: a worker that has had a session within the last hour
5: refused: worker id "a/b": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
  4 worker_drain w1 cause=drain

grant ks=1 cause=initial 0:0>1
----
item 1 refused: session session_id "1": conflict: a worker that is not drained

close session=1
----
ok
  5 session_close w1 session=1 cause=closed

open session=2 worker=w1 inc=2 ks=orders
grant ks=1 cause=initial 0:0>2
----
1: session 2 incarnation=6 ttl=2s deadline=2s
2: item 1 refused: session session_id "2": conflict: a worker that is not drained
  6 session_open w1 session=2

unbar worker=w1
grant ks=1 cause=initial 0:0>2
----
1: ok
2: ok
  7 worker_undrain w1 cause=drain
  8 grant 1/0 w1 session=2 token=1 cause=initial

# Joining a keyspace lowers the TTL, and a lower setting reaches the session; the deadline stays.

create name=fast p=1 ttl=1s
join session=2 ks=fast
join session=2 ks=fast
join session=2 ks=none
update name=fast ttl=600ms
keepalive elapsed=0s 2
----
1: ok
2: session 2 incarnation=6 ttl=1s deadline=2s
3: session 2 incarnation=6 ttl=1s deadline=2s
4: refused: keyspace name "none": not found: a keyspace that exists
5: ok
6: ok ttl=600ms
  9 keyspace_create 2
  10 session_keyspace 2 w1 session=2
  11 keyspace_update 2

show
----
clock=0s token=1
session 2 w1 live ttl=600ms renewal=8 deadline=2s held=1 keyspaces=[1 2]
worker w1 incarnation=6 session=2 drained=false opens=[0s 0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=1 session=2 draining=false since=0s previous=
keyspace 2 fast strict owned=0 draining=0 quarantined=0 deleting=false

# A leaving session renews but receives and joins nothing; saying it twice is no news.

create name=other p=1
leave session=2
leave session=2
keepalive elapsed=0s 2
join session=2 ks=other
grant ks=1 cause=balance 1:0>2
----
1: ok
2: ok
3: ok
4: ok ttl=600ms
5: refused: session session_id "2": conflict: a session that is not leaving
6: item 1 refused: session session_id "2": conflict: a session that is not leaving
  12 keyspace_create 3
  13 session_leave w1 session=2 cause=leave

# An hour after its last session a worker is forgotten, unless it is drained; it may come back as new.

open session=5 worker=w5 inc=0 ks=other
open session=6 worker=w6 inc=0 ks=other
bar worker=w6
close session=5
close session=6
----
1: session 5 incarnation=10 ttl=10s deadline=10s
2: session 6 incarnation=10 ttl=10s deadline=10s
3: ok
4: ok
5: ok
  14 session_open w5 session=5
  15 session_open w6 session=6
  16 worker_drain w6 cause=drain
  17 session_close w5 session=5 cause=closed
  18 session_close w6 session=6 cause=closed

wait 59m
show
----
clock=59m0s token=1
session 2 w1 leaving ttl=600ms renewal=9 deadline=2s held=1 keyspaces=[1 2]
worker w1 incarnation=6 session=2 drained=false opens=[0s 0s]
worker w5 incarnation=10 session=0 drained=false opens=[0s]
worker w6 incarnation=10 session=0 drained=true opens=[0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=1 session=2 draining=false since=0s previous=
keyspace 2 fast strict owned=0 draining=0 quarantined=0 deleting=false
keyspace 3 other strict owned=0 draining=0 quarantined=0 deleting=false

wait 62s
show
----
clock=1h0m2s token=1
session 2 w1 leaving ttl=600ms renewal=9 deadline=2s held=1 keyspaces=[1 2]
worker w1 incarnation=6 session=2 drained=false opens=[0s 0s]
worker w6 incarnation=10 session=0 drained=true opens=[0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=1 session=2 draining=false since=0s previous=
keyspace 2 fast strict owned=0 draining=0 quarantined=0 deleting=false
keyspace 3 other strict owned=0 draining=0 quarantined=0 deleting=false

open session=7 worker=w5 inc=9 ks=other
open session=7 worker=w5 inc=0 ks=other
----
1: refused: worker incarnation "9": incarnation: 0, the present one
2: session 7 incarnation=1812 ttl=10s deadline=1h0m12s
  19 session_open w5 session=7
