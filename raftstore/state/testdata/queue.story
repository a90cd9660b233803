# Queues: the entry that creates a key draws a token, so that tokens rise in the order of the queue.

level 2
----
ok
  2 feature_raise token=2

create name=orders p=2 ttl=20s
----
ok
  3 keyspace_create 1

open session=20 worker=w1 inc=0 ks=orders
----
session 20 incarnation=4 ttl=20s deadline=20s
  4 session_open w1 session=20

grant ks=1 cause=initial 0:0>20
----
ok
  5 grant 1/0 w1 session=20 token=1 cause=initial

lease session=26 ttl=5
----
session 26 incarnation=0 ttl=5s deadline=5s

lease session=27 ttl=5
----
session 27 incarnation=0 ttl=5s deadline=5s

enqueue name=jobs session=27 value=b
----
ticket jobs/1b=b create=2 version=1 lease=27 token=2 created=true number=0 revision=2
  @2 put jobs/1b=b create=2 version=1 lease=27 token=2

# In line already: nothing is written, and no token is drawn.

enqueue name=jobs session=27
----
ticket jobs/1b=b create=2 version=1 lease=27 token=2 created=false number=0 revision=2

enqueue name=jobs session=27 value=c
----
ticket jobs/1b=b create=2 version=1 lease=27 token=2 created=false number=0 revision=2

enqueue name=jobs session=27 value=b update=true
----
ticket jobs/1b=b create=2 version=1 lease=27 token=2 created=false number=0 revision=2

enqueue name=jobs session=27 value=c update=true
----
ticket jobs/1b=c create=2 version=2 lease=27 token=2 created=false number=0 revision=3
  @3 put jobs/1b=c create=2 version=2 lease=27 token=2

# O-60: tokens and revisions rise together, between all kinds of them.

grant ks=1 cause=initial 1:0>20
----
ok
  6 grant 1/1 w1 session=20 token=3 cause=initial

enqueue name=jobs session=26
enqueue name=jobs session=20
----
1: ticket jobs/1a= create=4 version=1 lease=26 token=4 created=true number=0 revision=4
2: ticket jobs/14= create=5 version=1 lease=20 token=5 created=true number=0 revision=5
  @4 put jobs/1a= create=4 version=1 lease=26 token=4
  @5 put jobs/14= create=5 version=1 lease=20 token=5

show
----
clock=0s token=5
session 20 w1 live ttl=20s renewal=4 deadline=20s held=2 keyspaces=[1]
worker w1 incarnation=4 session=20 drained=false opens=[0s]
keyspace 1 orders strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=1 session=20 draining=false since=0s previous=
  1 token=3 session=20 draining=false since=0s previous=
  keys of 20: ["jobs/14"]
lease 26 ttl=5s remaining=5s renewal=6
  keys of 26: ["jobs/1a"]
lease 27 ttl=5s remaining=5s renewal=7
  keys of 27: ["jobs/1b"]
keys at revision 5, compacted at 0
  jobs/14= create=5 version=1 lease=20 token=5
  jobs/1a= create=4 version=1 lease=26 token=4
  jobs/1b=c create=2 version=2 lease=27 token=2

# A put keeps the token as long as the key lives; who comes again gets another.

put jobs/1b d lease=27
----
ok succeeded=true revision=6
  @6 put jobs/1b=d create=2 version=3 lease=27 token=2

del jobs/1b
----
ok succeeded=true revision=7
  @7 delete jobs/1b, was d

enqueue name=jobs session=27
----
ticket jobs/1b= create=8 version=1 lease=27 token=6 created=true number=0 revision=8
  @8 put jobs/1b= create=8 version=1 lease=27 token=6

# A session that does not exist spends none.

enqueue name=jobs session=99
----
refused: requested lease not found

show
----
clock=0s token=6
session 20 w1 live ttl=20s renewal=4 deadline=20s held=2 keyspaces=[1]
worker w1 incarnation=4 session=20 drained=false opens=[0s]
keyspace 1 orders strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=1 session=20 draining=false since=0s previous=
  1 token=3 session=20 draining=false since=0s previous=
  keys of 20: ["jobs/14"]
lease 26 ttl=5s remaining=5s renewal=6
  keys of 26: ["jobs/1a"]
lease 27 ttl=5s remaining=5s renewal=7
  keys of 27: ["jobs/1b"]
keys at revision 8, compacted at 0
  jobs/14= create=5 version=1 lease=20 token=5
  jobs/1a= create=4 version=1 lease=26 token=4
  jobs/1b= create=8 version=1 lease=27 token=6

raise token=9007199254740991
----
ok
  7 token_raise token=9007199254740991

enqueue name=jobs2 session=27
----
refused: token: tokens spent: 9007199254740991 (token 9007199254740991)

enqueue name=jobs session=27
----
ticket jobs/1b= create=8 version=1 lease=27 token=6 created=false number=0 revision=8
