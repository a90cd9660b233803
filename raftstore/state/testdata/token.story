# O-19: one counter; it is exact up to 2^53-1 and then says so.

create name=orders p=8 ttl=2s
open session=1 worker=w1 inc=0 ks=orders
----
1: ok
2: session 1 incarnation=2 ttl=2s deadline=2s
  2 keyspace_create 1
  3 session_open w1 session=1

grant ks=1 cause=initial 0:0>1
----
ok
  4 grant 1/0 w1 session=1 token=1 cause=initial

# 15, 31 and 32 bits are nothing special.

raise token=32766
grant ks=1 cause=initial 1:0>1 2:0>1
raise token=2147483646
grant ks=1 cause=initial 3:0>1 4:0>1
raise token=4294967294
grant ks=1 cause=initial 5:0>1 6:0>1
----
1: ok
2: ok
3: ok
4: ok
5: ok
6: ok
  5 token_raise token=32766
  6 grant 1/1 w1 session=1 token=32767 cause=initial
  7 grant 1/2 w1 session=1 token=32768 cause=initial
  8 token_raise token=2147483646
  9 grant 1/3 w1 session=1 token=2147483647 cause=initial
  10 grant 1/4 w1 session=1 token=2147483648 cause=initial
  11 token_raise token=4294967294
  12 grant 1/5 w1 session=1 token=4294967295 cause=initial
  13 grant 1/6 w1 session=1 token=4294967296 cause=initial

# It only rises.

raise token=5
----
ok

raise token=9007199254740992
raise token=9223372036854775807
----
1: refused: token token "9007199254740992": invalid: at most 9007199254740991
2: refused: token token "9223372036854775807": invalid: at most 9007199254740991

raise token=9007199254740990
grant ks=1 cause=initial 7:0>1
----
1: ok
2: ok
  14 token_raise token=9007199254740990
  15 grant 1/7 w1 session=1 token=9007199254740991 cause=initial

release session=1 cause=yield 1/0#1
grant ks=1 cause=balance 0:1>1
----
1: ok
2: item 1 refused: token: tokens spent: 9007199254740991 (token 9007199254740991)
  16 release 1/0 w1 session=1 token=1 cause=yield

# A handoff then releases, and grants nothing.

open session=2 worker=w2 inc=0 ks=orders
drain ks=1 cause=balance 1#32767>2
release session=1 cause=drained 1/1#32767
----
1: session 2 incarnation=9 ttl=2s deadline=2s
2: ok
3: ok
  17 session_open w2 session=2
  18 drain 1/1 w1 session=1 token=32767 target=2 cause=balance
  19 release 1/1 w1 session=1 token=32767 cause=drained

show
----
clock=0s token=9007199254740991
session 1 w1 live ttl=2s renewal=2 deadline=2s held=6 keyspaces=[1]
session 2 w2 live ttl=2s renewal=9 deadline=2s held=0 keyspaces=[1]
worker w1 incarnation=2 session=1 drained=false opens=[0s]
worker w2 incarnation=9 session=2 drained=false opens=[0s]
keyspace 1 orders strict owned=6 draining=0 quarantined=0 deleting=false
  0 token=1 session=0 draining=false since=0s previous=w1
  1 token=32767 session=0 draining=false since=0s previous=w1
  2 token=32768 session=1 draining=false since=0s previous=
  3 token=2147483647 session=1 draining=false since=0s previous=
  4 token=2147483648 session=1 draining=false since=0s previous=
  5 token=4294967295 session=1 draining=false since=0s previous=
  6 token=4294967296 session=1 draining=false since=0s previous=
  7 token=9007199254740991 session=1 draining=false since=0s previous=
