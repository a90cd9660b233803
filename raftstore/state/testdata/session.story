# A session's life: opened, renewed, and ended by the logical clock alone.

create name=orders p=4 ttl=2s
----
ok
  2 keyspace_create 1

open session=11 worker=w1 inc=0 ks=orders addr=10.0.0.1:5000
----
session 11 incarnation=3 ttl=2s deadline=2s
  3 session_open w1 session=11

# A retry of the same open, after its answer was lost, finds it again.

open session=11 worker=w1 inc=0 ks=orders addr=10.0.0.1:5000
----
session 11 incarnation=3 ttl=2s deadline=2s

# The id of a session belongs to one worker.

open session=11 worker=w2 inc=0 ks=orders
----
refused: session session_id "11": exists: an id that no other worker uses

# A second process with the same worker id has to know what it replaces.

open session=12 worker=w1 inc=0 ks=orders
----
refused: worker incarnation "0": incarnation: 3, the present one, opened from 10.0.0.1:5000

grant ks=1 cause=initial 0:0>11 1:0>11 2:0>11
----
ok
  4 grant 1/0 w1 session=11 token=1 cause=initial
  5 grant 1/1 w1 session=11 token=2 cause=initial
  6 grant 1/2 w1 session=11 token=3 cause=initial

# The first clock entry of a term counts nothing: nobody measured the time before it.

keepalive elapsed=1s 11
----
ok ttl=2000ms

keepalive elapsed=500ms 11 99
----
ok ttl=2000ms
refused: session session_id "99": not found: a session that has not ended

show
----
clock=500ms token=3
session 11 w1 live ttl=2s renewal=9 deadline=2.5s held=3 keyspaces=[1]
worker w1 incarnation=3 session=11 drained=false opens=[0s]
keyspace 1 orders strict owned=3 draining=0 quarantined=0 deleting=false
  0 token=1 session=11 draining=false since=0s previous=
  1 token=2 session=11 draining=false since=0s previous=
  2 token=3 session=11 draining=false since=0s previous=

# O-18, O-02: an outage of any length is capped, and expires nobody by itself.

tick elapsed=1h
----
ok

# The deadline has come but nobody has expired the session: a renewal still counts.

keepalive elapsed=0s 11
----
ok ttl=2000ms

# Expiry on an old renewal is refused: the session has renewed since.

expire elapsed=2s 11@9
----
refused: session renewal "9": conflict: 11, the last one

# Now the renewal is right and the clock has come so far.

expire elapsed=0s 11@11
----
ok ttl=2000ms
  7 expire 1/0 w1 session=11 token=1 cause=expired
  8 expire 1/1 w1 session=11 token=2 cause=expired
  9 expire 1/2 w1 session=11 token=3 cause=expired
  10 session_expire w1 session=11 cause=expired

# O-18: a renewal after expiry does not resurrect.

keepalive elapsed=0s 11
----
refused: session session_id "11": not found: a session that has not ended

# O-17: a release of a lease already lost, twice, with a token never issued, and with none.

release session=11 cause=ended 1/0#1 1/0#1 1/0#999 1/0#0
----
item 1 refused: lease partition "orders/0": not holder: the session that holds it, not 11 (token 1)
item 2 refused: lease partition "orders/0": not holder: the session that holds it, not 11 (token 1)
item 3 refused: lease partition "orders/0": not holder: the session that holds it, not 11 (token 1)
item 4 refused: lease partition "orders/0": not holder: the session that holds it, not 11 (token 1)

open session=13 worker=w2 inc=0 ks=orders
----
session 13 incarnation=16 ttl=2s deadline=6.5s
  11 session_open w2 session=13

grant ks=1 cause=expired 0:1>13
----
ok
  12 grant 1/0 w2 session=13 token=4 from=w1 cause=expired

release session=11 cause=ended 1/0#1 1/0#4
----
item 1 refused: lease partition "orders/0": not holder: the session that holds it, not 11 (held by w2, token 4)
item 2 refused: lease partition "orders/0": not holder: the session that holds it, not 11 (held by w2, token 4)

show
----
clock=4.5s token=4
session 13 w2 live ttl=2s renewal=16 deadline=6.5s held=1 keyspaces=[1]
worker w1 incarnation=3 session=0 drained=false opens=[0s]
worker w2 incarnation=16 session=13 drained=false opens=[4.5s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=4 session=13 draining=false since=4s previous=
  1 token=2 session=0 draining=false since=4s previous=w1
  2 token=3 session=0 draining=false since=4s previous=w1
  slot w1 zone= [0 1 2] reserved=false until=1m4.5s

# A second leader's term: the clock counts from its own first entry.

term 2
announce s2
tick elapsed=2s
tick elapsed=1s
----
1: ok
2: ok
3: ok
  13 leader s2

# What the old leader proposed is void.

grant ks=1 term=1 cause=balance 1:2>13
expire term=1 elapsed=2s 13@16
tick term=1 elapsed=2s
drain ks=1 term=1 cause=balance 0#4
----
1: refused: grant term "1": void term: term 2
2: refused: expire term "1": void term: term 2
3: ok
4: refused: drain term "1": void term: term 2

close session=13
----
ok
  14 release 1/0 w2 session=13 token=4 cause=closed
  15 session_close w2 session=13 cause=closed

show
----
clock=5.5s token=4
worker w1 incarnation=3 session=0 drained=false opens=[0s]
worker w2 incarnation=16 session=0 drained=false opens=[4.5s]
keyspace 1 orders strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=4 session=0 draining=false since=5s previous=w2
  1 token=2 session=0 draining=false since=4s previous=w1
  2 token=3 session=0 draining=false since=4s previous=w1
  slot w1 zone= [0 1 2] reserved=false until=1m4.5s
  slot w2 zone= [0] reserved=false until=1m5.5s

# A session opened between two clock entries counts from the second: the time
# before it was not its own, and it must not expire early by it.

open session=20 worker=w9 inc=0 ks=orders
----
session 20 incarnation=22 ttl=2s deadline=7.5s
  16 session_open w9 session=20

tick elapsed=900ms
----
ok

tick elapsed=1500ms
tick elapsed=499ms
----
1: ok
2: ok

expire elapsed=0s 20@22
----
refused: session deadline "8.4s": conflict: reached; the clock is at 8.399s

expire elapsed=1ms 20@22
----
ok ttl=2000ms
  17 session_expire w9 session=20 cause=expired
