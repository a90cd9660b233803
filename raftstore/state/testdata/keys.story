# Keys of sessions. Below the level at which all servers know keys, nothing about them is done.

put a 1
----
refused: cluster feature_level "1": feature: 2, which it has when all of its servers know keys

lease session=7 ttl=5
----
refused: cluster feature_level "1": feature: 2, which it has when all of its servers know keys

level 2
----
ok
  2 feature_raise token=2

# O-09: a key belongs to the session of its last put, and to none if that names none.

lease session=7 ttl=5
----
session 7 incarnation=0 ttl=5s deadline=5s

lease session=8 ttl=5
----
session 8 incarnation=0 ttl=5s deadline=5s

put k 1 lease=7
----
ok succeeded=true revision=2
  @2 put k=1 create=2 version=1 lease=7

put k 2 lease=8
----
ok succeeded=true revision=3
  @3 put k=2 create=2 version=2 lease=8

revokelease session=7
----
ok

show
----
clock=0s token=0
lease 8 ttl=5s remaining=5s renewal=6
  keys of 8: ["k"]
keys at revision 3, compacted at 0
  k=2 create=2 version=2 lease=8

revokelease session=8
----
ok
  @4 delete k, was 2

lease session=7 ttl=5
----
session 7 incarnation=0 ttl=5s deadline=5s

put k 1 lease=7
----
ok succeeded=true revision=5
  @5 put k=1 create=5 version=1 lease=7

put k 2
----
ok succeeded=true revision=6
  @6 put k=2 create=5 version=2

revokelease session=7
----
ok

show
----
clock=0s token=0
keys at revision 6, compacted at 0
  k=2 create=5 version=2

# The same session again; a delete, too, ends the bond.

lease session=7 ttl=5
----
session 7 incarnation=0 ttl=5s deadline=5s

put k 3 lease=7
----
ok succeeded=true revision=7
  @7 put k=3 create=5 version=3 lease=7

put k 4 lease=7
----
ok succeeded=true revision=8
  @8 put k=4 create=5 version=4 lease=7

put l 1 lease=7
----
ok succeeded=true revision=9
  @9 put l=1 create=9 version=1 lease=7

del k
----
ok succeeded=true revision=10
  @10 delete k, was 4

show
----
clock=0s token=0
lease 7 ttl=5s remaining=5s renewal=15
  keys of 7: ["l"]
keys at revision 10, compacted at 0
  l=1 create=9 version=1 lease=7

# O-58: keys go with a session that ran out, in the order of keys, at one revision, once.

put b 1 lease=7
----
ok succeeded=true revision=11
  @11 put b=1 create=11 version=1 lease=7

put a 1 lease=7
----
ok succeeded=true revision=12
  @12 put a=1 create=12 version=1 lease=7

tick
----
ok

expire 7@24 elapsed=2s
----
refused: session renewal "24": conflict: 15, the last one

keepalive 7
----
ok ttl=5000ms

restart
tick elapsed=2s
----
ok

tick elapsed=2s
----
ok

expire 7@24 elapsed=999ms
----
refused: session deadline "7s": conflict: reached; the clock is at 6.999s

expire 7@24 elapsed=1ms
----
ok ttl=5000ms
  @13 delete a, was 1
  @13 delete b, was 1
  @13 delete l, was 1

expire 7@24
----
refused: session session_id "7": not found: a session that has not ended

show
----
clock=7s token=0
keys at revision 13, compacted at 0

# A lease that does not exist, and an id that is taken.

put x 1 lease=7
----
refused: requested lease not found

revokelease session=7
----
refused: requested lease not found

lease session=9 ttl=0
----
session 9 incarnation=0 ttl=2s deadline=9s

lease session=9 ttl=60
----
refused: lease session_id "9": exists: an id that no session uses

lease session=10 ttl=9000000001
----
refused: lease ttl "9000000001": invalid: at most 9000000000 seconds

lease session=0 ttl=5
----
refused: lease session_id "0": invalid: an id that is not 0

# Nine thousand million seconds: more than the clock can tell, as long as it is renewed.

lease session=11 ttl=9000000000
----
session 11 incarnation=0 ttl=2500000h0m0s deadline=2500000h0m7s

keepalive 11 elapsed=2s
----
ok ttl=9000000000000ms

restart
show
----
clock=9s token=0
lease 9 ttl=2s remaining=2s renewal=32
lease 11 ttl=9000000000s remaining=2500000h0m0s renewal=37
keys at revision 13, compacted at 0

revokelease session=11
----
ok

# A worker's session holds keys, too. It is not a lease, and a lease is not a worker's.

create name=orders p=2 ttl=2s
----
ok
  3 keyspace_create 1

open session=20 worker=w1 inc=0 ks=orders
----
session 20 incarnation=40 ttl=2s deadline=11s
  4 session_open w1 session=20

put w 1 lease=20
----
ok succeeded=true revision=14
  @14 put w=1 create=14 version=1 lease=20

revokelease session=20
----
refused: lease session_id "20": conflict: a session that belongs to no worker; this one is worker w1's and ends with it

join session=9 ks=orders
----
refused: session session_id "9": conflict: a session of a worker, not a lease of keys

leave session=9
----
refused: session session_id "9": conflict: a session of a worker, not a lease of keys

grant ks=1 cause=initial 0:0>9
----
item 1 refused: session session_id "9": conflict: a session that has joined orders

open session=9 worker=w2 inc=0 ks=orders
----
refused: session session_id "9": exists: an id that no other worker uses

# Superseded, it gets no more keys; those it has go when it has run out.

open session=21 worker=w1 inc=40 ks=orders
----
session 21 incarnation=47 ttl=2s deadline=11s
  5 session_bar w1 session=20 cause=superseded
  6 session_open w1 session=21

put w2 1 lease=20
----
refused: requested lease not found

enqueue name=q session=20
----
refused: requested lease not found

wait 4s
----
nothing happens

expire 20@40
----
ok ttl=2000ms
  7 session_expire w1 session=20 cause=expired
  @15 delete w, was 1

evict worker=w1
----
ok
  8 worker_drain w1 cause=drain
  9 session_bar w1 session=21 cause=evicted

put w1 2 lease=20
----
refused: requested lease not found

put w3 1 lease=21
----
refused: requested lease not found

show
----
clock=13s token=0
session 21 w1 evicted ttl=2s renewal=47 deadline=13s held=0 keyspaces=[1]
worker w1 incarnation=47 session=21 drained=true opens=[9s 9s]
keyspace 1 orders strict owned=0 draining=0 quarantined=0 deleting=false
lease 9 ttl=2s remaining=-2s renewal=32
keys at revision 15, compacted at 0

close session=9
----
ok
