# drain, release and grant to the next owner: the last two are one entry.

create name=orders p=4 ttl=5s
----
ok
  2 keyspace_create 1

open session=1 worker=w1 inc=0 ks=orders
open session=2 worker=w2 inc=0 ks=orders cap=1
open session=3 worker=w3 inc=0 ks=orders
----
1: session 1 incarnation=3 ttl=5s deadline=5s
2: session 2 incarnation=3 ttl=5s deadline=5s
3: session 3 incarnation=3 ttl=5s deadline=5s
  3 session_open w1 session=1
  4 session_open w2 session=2
  5 session_open w3 session=3

grant ks=1 cause=initial 0:0>1 1:0>1 2:0>1 3:0>1
----
ok
  6 grant 1/0 w1 session=1 token=1 cause=initial
  7 grant 1/1 w1 session=1 token=2 cause=initial
  8 grant 1/2 w1 session=1 token=3 cause=initial
  9 grant 1/3 w1 session=1 token=4 cause=initial

drain ks=1 cause=balance timeout=10s 0#1>2 1#2>2 2#3>3
----
ok
  10 drain 1/0 w1 session=1 token=1 target=2 cause=balance
  11 drain 1/1 w1 session=1 token=2 target=2 cause=balance
  12 drain 1/2 w1 session=1 token=3 target=3 cause=balance

# Stale, unowned, to the holder itself, to nobody known.

drain ks=1 cause=balance 0#9>2 3#4>1 3#4>77
----
item 1 refused: lease partition "orders/0": stale token: token 1, not 9 (held by w1, token 1)
item 2 refused: lease partition "orders/3": conflict: a target that is not the holder (held by w1, token 4)
item 3 refused: session session_id "77": not found: a session that has not ended

show
----
clock=0s token=4
session 1 w1 live ttl=5s renewal=3 deadline=5s held=4 keyspaces=[1]
session 2 w2 live ttl=5s renewal=3 deadline=5s held=0 keyspaces=[1]
session 3 w3 live ttl=5s renewal=3 deadline=5s held=0 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 orders strict owned=4 draining=3 quarantined=0 deleting=false
  0 token=1 session=1 draining=true since=0s previous=
  1 token=2 session=1 draining=true since=0s previous=
  2 token=3 session=1 draining=true since=0s previous=
  3 token=4 session=1 draining=false since=0s previous=
  move 0 token=1 target=2 reserve=false started=0s deadline=10s cause=balance
  move 1 token=2 target=2 reserve=false started=0s deadline=10s cause=balance
  move 2 token=3 target=3 reserve=false started=0s deadline=10s cause=balance

# Saying the same again is no news; a new target is. The holder keeps the deadline it was told.

drain ks=1 cause=balance timeout=10s 0#1>2
drain ks=1 cause=drain timeout=1m 2#3>2
----
1: ok
2: ok
  13 drain 1/2 w1 session=1 token=3 target=2 cause=drain

drain ks=1 cause=drain timeout=1m 2#3>3
----
ok
  14 drain 1/2 w1 session=1 token=3 target=3 cause=drain

release session=1 cause=drained 1/0#1
----
ok
  15 release 1/0 w1 session=1 token=1 cause=drained
  16 grant 1/0 w2 session=2 token=5 from=w1 cause=balance

# w2 is full now: release only.

release session=1 cause=drained 1/1#2
----
ok
  17 release 1/1 w1 session=1 token=2 cause=drained

# The target leaves before the release: release only. Its own lease can still go on to w1.

leave session=3
release session=1 cause=drained 1/2#3
----
1: ok
2: ok
  18 session_leave w3 session=3 cause=leave
  19 release 1/2 w1 session=1 token=3 cause=drained

# A second release of the same is late, and harmless.

release session=1 cause=drained 1/2#3
----
item 1 refused: lease partition "orders/2": not holder: the session that holds it, not 1 (token 3)

# A failed handler does not hand its partition on.

drain ks=1 cause=operator timeout=1s 3#4>2
release session=2 cause=yield 1/0#5
release session=1 cause=failed error=boom 1/3#4
----
1: ok
2: ok
3: ok
  20 drain 1/3 w1 session=1 token=4 target=2 cause=operator
  21 release 1/0 w2 session=2 token=5 cause=yield
  22 release 1/3 w1 session=1 token=4 cause=failed

show
----
clock=0s token=5
session 1 w1 live ttl=5s renewal=3 deadline=5s held=0 keyspaces=[1]
session 2 w2 live ttl=5s renewal=3 deadline=5s held=0 keyspaces=[1]
session 3 w3 leaving ttl=5s renewal=3 deadline=5s held=0 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 orders strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=5 session=0 draining=false since=0s previous=w2
  1 token=2 session=0 draining=false since=0s previous=w1
  2 token=3 session=0 draining=false since=0s previous=w1
  3 token=4 session=0 draining=false since=0s previous=w1
  suspect 3 failures=1 workers=[w1] retry=1s quarantined=false error="boom"

# Capacity is a condition of a grant, item by item.

grant ks=1 cause=balance 0:5>2 1:2>2 3:4>3 2:3>9 2:0>1 9:0>1
----
item 2 refused: session session_id "2": conflict: below its capacity of 1
item 3 refused: session session_id "3": conflict: a session that is not leaving
item 4 refused: session session_id "9": not found: a session that has not ended
item 5 refused: lease partition "orders/2": stale token: token 3, not 0 (token 3)
item 6 refused: keyspace orders partition "9": invalid: 0 to 3
  23 grant 1/0 w2 session=2 token=6 from=w2 cause=balance
