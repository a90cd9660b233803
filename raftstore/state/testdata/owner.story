# Sessions remember who opened them, from level 3 on.

create name=strict p=2 ttl=2s
create name=fenced p=2 ttl=2s takeover=fenced
level 2
open session=1 worker=w1 ks=strict owner=worker/w1
lease session=7 ttl=5 owner=worker/w1
cred id=abc123abc123 name=ci role=worker
revokecred id=abc123abc123
keyring version=0 0123456789abcdef
open session=1 worker=w1 ks=strict
----
1: ok
2: ok
3: ok
4: refused: cluster feature_level "2": feature: 3, which it has when all of its servers know credentials and owners
5: refused: cluster feature_level "2": feature: 3, which it has when all of its servers know credentials and owners
6: refused: cluster feature_level "2": feature: 3, which it has when all of its servers know credentials and owners
7: refused: cluster feature_level "2": feature: 3, which it has when all of its servers know credentials and owners
8: refused: cluster feature_level "2": feature: 3, which it has when all of its servers know credentials and owners
9: session 1 incarnation=2 ttl=2s deadline=2s
  2 keyspace_create 1
  3 keyspace_create 2
  4 feature_raise token=2
  5 session_open w1 session=1

# Who has opened before there were owners is nobody in particular: the next may be somebody.

level 3
open session=2 worker=w1 inc=2 ks=strict,fenced owner=worker/w1
----
1: ok
2: session 2 incarnation=3 ttl=2s deadline=2s
  6 feature_raise token=3
  7 session_bar w1 session=1 cause=superseded
  8 session_open w1 session=2

show
----
clock=0s token=0
session 1 w1 superseded ttl=2s renewal=2 deadline=2s held=0 keyspaces=[1]
session 2 w1 live ttl=2s renewal=3 deadline=2s held=0 keyspaces=[1 2] owner=worker/w1
worker w1 incarnation=3 session=2 drained=false opens=[0s 0s]
keyspace 1 strict strict owned=0 draining=0 quarantined=0 deleting=false
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false

# Nobody else gets the id while its session lives, whatever they know of it.

open session=3 worker=w1 inc=3 ks=strict owner=worker/w2
open session=3 worker=w1 inc=3 ks=strict
open session=3 worker=w1 inc=9 ks=strict owner=worker/w2
open session=2 worker=w1 inc=3 ks=strict owner=worker/w2
open session=2 worker=w1 inc=3 ks=strict owner=worker/w1
----
1: refused: worker worker_id "w1": permission denied: an id that nobody else uses
2: refused: worker worker_id "w1": permission denied: an id that nobody else uses
3: refused: worker worker_id "w1": permission denied: an id that nobody else uses
4: refused: worker worker_id "w1": permission denied: an id that nobody else uses
5: session 2 incarnation=3 ttl=2s deadline=2s

# Its owner does, and so does everybody once it is barred or has ended.

open session=4 worker=w1 inc=3 ks=strict owner=worker/w1
evict worker=w1
open session=5 worker=w1 inc=5 ks=strict owner=worker/w2
----
1: session 4 incarnation=5 ttl=2s deadline=2s
2: ok
3: session 5 incarnation=5 ttl=2s deadline=2s
  9 session_bar w1 session=2 cause=superseded
  10 session_open w1 session=4
  11 worker_drain w1 cause=drain
  12 session_bar w1 session=4 cause=evicted
  13 session_open w1 session=5

close session=5
open session=6 worker=w1 inc=5 ks=strict owner=worker/w3
----
1: ok
2: session 6 incarnation=6 ttl=2s deadline=2s
  14 session_close w1 session=5 cause=closed
  15 session_open w1 session=6
