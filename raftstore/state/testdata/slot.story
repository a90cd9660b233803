# What is kept for a worker that went.

create name=orders p=6 ttl=2s grace=20s
create name=plain p=4 ttl=2s
tick elapsed=0s
----
1: ok
2: ok
3: ok
  2 keyspace_create 1
  3 keyspace_create 2

open session=1 worker=w1 inc=0 ks=orders,plain zone=a
open session=2 worker=w2 inc=0 ks=orders,plain zone=b
----
1: session 1 incarnation=3 ttl=2s deadline=2s
2: session 2 incarnation=3 ttl=2s deadline=2s
  4 session_open w1 session=1
  5 session_open w2 session=2

grant ks=1 cause=initial 0:0>1 1:0>1 2:0>1 3:0>2
grant ks=2 cause=initial 0:0>1 1:0>1 2:0>2
----
1: ok
2: ok
  6 grant 1/0 w1 session=1 token=1 cause=initial
  7 grant 1/1 w1 session=1 token=2 cause=initial
  8 grant 1/2 w1 session=1 token=3 cause=initial
  9 grant 1/3 w2 session=2 token=4 cause=initial
  10 grant 2/0 w1 session=1 token=5 cause=initial
  11 grant 2/1 w1 session=1 token=6 cause=initial
  12 grant 2/2 w2 session=2 token=7 cause=initial

# w1 stops and will be back: orders keeps its slot, plain has no grace and moves.

leave session=1 restart=true
drain ks=1 cause=restart 0#1! 1#2!
drain ks=2 cause=leave 0#5>2 1#6!
----
1: ok
2: ok
3: ok
  13 session_leave w1 session=1 cause=restart
  14 drain 1/0 w1 session=1 token=1 cause=restart
  15 drain 1/1 w1 session=1 token=2 cause=restart
  16 drain 2/0 w1 session=1 token=5 target=2 cause=leave
  17 drain 2/1 w1 session=1 token=6 cause=leave

# Partition 2 heard no drain before its worker let go.

release session=1 cause=drained 1/0#1 1/1#2 1/2#3 2/0#5 2/1#6
----
ok
  18 release 1/0 w1 session=1 token=1 cause=drained
  19 release 1/1 w1 session=1 token=2 cause=drained
  20 release 1/2 w1 session=1 token=3 cause=drained
  21 release 2/0 w1 session=1 token=5 cause=drained
  22 grant 2/0 w2 session=2 token=8 from=w1 cause=leave
  23 release 2/1 w1 session=1 token=6 cause=drained

close session=1
----
ok
  24 session_close w1 session=1 cause=closed

show
----
clock=0s token=8
session 2 w2 live ttl=2s renewal=3 deadline=2s held=3 keyspaces=[1 2]
worker w1 incarnation=3 session=0 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=1 session=0 draining=false since=0s previous=w1
  1 token=2 session=0 draining=false since=0s previous=w1
  2 token=3 session=0 draining=false since=0s previous=w1
  3 token=4 session=2 draining=false since=0s previous=
  slot w1 zone=a [0 1 2] reserved=true until=20s
keyspace 2 plain strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=8 session=2 draining=false since=0s previous=
  1 token=6 session=0 draining=false since=0s previous=w1
  2 token=7 session=2 draining=false since=0s previous=
  slot w1 zone=a [0 1] reserved=false until=1m0s

# Back within the grace, it gets its slot; what it has again is not in it.

open session=3 worker=w1 inc=3 ks=orders,plain zone=a
grant ks=1 cause=restart 0:1>3
----
1: session 3 incarnation=8 ttl=2s deadline=2s
2: ok
  25 session_open w1 session=3
  26 grant 1/0 w1 session=3 token=9 from=w1 cause=restart

show
----
clock=0s token=9
session 2 w2 live ttl=2s renewal=3 deadline=2s held=3 keyspaces=[1 2]
session 3 w1 live ttl=2s renewal=8 deadline=2s held=1 keyspaces=[1 2]
worker w1 incarnation=8 session=3 drained=false opens=[0s 0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
keyspace 1 orders strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=9 session=3 draining=false since=0s previous=
  1 token=2 session=0 draining=false since=0s previous=w1
  2 token=3 session=0 draining=false since=0s previous=w1
  3 token=4 session=2 draining=false since=0s previous=
  slot w1 zone=a [1 2] reserved=true until=20s
keyspace 2 plain strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=8 session=2 draining=false since=0s previous=
  1 token=6 session=0 draining=false since=0s previous=w1
  2 token=7 session=2 draining=false since=0s previous=
  slot w1 zone=a [0 1] reserved=false until=1m0s

# A crash leaves a preference for a minute.

tick elapsed=2s
keepalive elapsed=0s 3
tick elapsed=2s
expire elapsed=0s 2@3
----
1: ok
2: ok ttl=2000ms
3: ok
4: ok ttl=2000ms
  27 expire 1/3 w2 session=2 token=4 cause=expired
  28 expire 2/2 w2 session=2 token=7 cause=expired
  29 expire 2/0 w2 session=2 token=8 cause=expired
  30 session_expire w2 session=2 cause=expired

show
----
clock=4s token=9
session 3 w1 live ttl=2s renewal=9 deadline=4s held=1 keyspaces=[1 2]
worker w1 incarnation=8 session=3 drained=false opens=[0s 0s]
worker w2 incarnation=3 session=0 drained=false opens=[0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=9 session=3 draining=false since=0s previous=
  1 token=2 session=0 draining=false since=0s previous=w1
  2 token=3 session=0 draining=false since=0s previous=w1
  3 token=4 session=0 draining=false since=4s previous=w2
  slot w1 zone=a [1 2] reserved=true until=20s
  slot w2 zone=b [3] reserved=false until=1m4s
keyspace 2 plain strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=8 session=0 draining=false since=4s previous=w2
  1 token=6 session=0 draining=false since=0s previous=w1
  2 token=7 session=0 draining=false since=4s previous=w2
  slot w1 zone=a [0 1] reserved=false until=1m0s
  slot w2 zone=b [0 2] reserved=false until=1m4s

# An operator's drain keeps nothing for the worker.

bar worker=w2
show
----
clock=4s token=9
session 3 w1 live ttl=2s renewal=9 deadline=4s held=1 keyspaces=[1 2]
worker w1 incarnation=8 session=3 drained=false opens=[0s 0s]
worker w2 incarnation=3 session=0 drained=false opens=[0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=9 session=3 draining=false since=0s previous=
  1 token=2 session=0 draining=false since=0s previous=w1
  2 token=3 session=0 draining=false since=0s previous=w1
  3 token=4 session=0 draining=false since=4s previous=w2
  slot w1 zone=a [1 2] reserved=true until=20s
  slot w2 zone=b [3] reserved=false until=1m4s
keyspace 2 plain strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=8 session=0 draining=false since=4s previous=w2
  1 token=6 session=0 draining=false since=0s previous=w1
  2 token=7 session=0 draining=false since=4s previous=w2
  slot w1 zone=a [0 1] reserved=false until=1m0s
  slot w2 zone=b [0 2] reserved=false until=1m4s
ok
  31 worker_drain w2 cause=drain

# Time passes; every slot ends.

wait 18s
----
nothing happens


show
----
clock=22s token=9
session 3 w1 live ttl=2s renewal=9 deadline=4s held=1 keyspaces=[1 2]
worker w1 incarnation=8 session=3 drained=false opens=[0s 0s]
worker w2 incarnation=3 session=0 drained=true opens=[0s]
keyspace 1 orders strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=9 session=3 draining=false since=0s previous=
  1 token=2 session=0 draining=false since=0s previous=w1
  2 token=3 session=0 draining=false since=0s previous=w1
  3 token=4 session=0 draining=false since=4s previous=w2
keyspace 2 plain strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=8 session=0 draining=false since=4s previous=w2
  1 token=6 session=0 draining=false since=0s previous=w1
  2 token=7 session=0 draining=false since=4s previous=w2
  slot w1 zone=a [0 1] reserved=false until=1m0s
