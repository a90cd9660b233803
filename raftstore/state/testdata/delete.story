# A keyspace goes with its last lease, and its number is never used again.

create name=strict p=2 ttl=2s
create name=fenced p=2 ttl=2s takeover=fenced
create name=empty p=2 ttl=2s
----
1: ok
2: ok
3: ok
  2 keyspace_create 1
  3 keyspace_create 2
  4 keyspace_create 3

open session=1 worker=w1 inc=0 ks=strict,fenced,empty
grant ks=1 cause=initial 0:0>1 1:0>1
grant ks=2 cause=initial 0:0>1
----
1: session 1 incarnation=3 ttl=2s deadline=2s
2: ok
3: ok
  5 session_open w1 session=1
  6 grant 1/0 w1 session=1 token=1 cause=initial
  7 grant 1/1 w1 session=1 token=2 cause=initial
  8 grant 2/0 w1 session=1 token=3 cause=initial

delete name=empty
delete name=fenced
delete name=strict
----
1: ok
2: ok
3: ok
  9 keyspace_delete 3 cause=deleted
  10 keyspace_gone 3 cause=deleted
  11 keyspace_delete 2 cause=deleted
  12 revoke 2/0 w1 session=1 token=3 cause=deleted
  13 keyspace_gone 2 cause=deleted
  14 keyspace_delete 1 cause=deleted
  15 drain 1/0 w1 session=1 token=1 cause=deleted
  16 drain 1/1 w1 session=1 token=2 cause=deleted

# It is barred while it waits.

delete name=strict
create name=strict p=9
update name=strict
grant ks=1 cause=initial 1:0>1
drain ks=1 cause=balance 0#1
open session=2 worker=w2 inc=0 ks=strict
join session=1 ks=strict
----
1: ok
2: refused: keyspace name "strict": deleting: a name that is free; it is when the last lease has ended
3: refused: keyspace name "strict": deleting: a keyspace that is not being deleted
4: refused: keyspace name "strict": deleting: a keyspace that is not being deleted
5: refused: keyspace name "strict": deleting: a keyspace that is not being deleted
6: refused: keyspace name "strict": deleting: a keyspace that is not being deleted
7: refused: keyspace name "strict": deleting: a keyspace that is not being deleted

show
----
clock=0s token=3
session 1 w1 live ttl=2s renewal=3 deadline=2s held=2 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
keyspace 1 strict strict owned=2 draining=2 quarantined=0 deleting=true
  0 token=1 session=1 draining=true since=0s previous=
  1 token=2 session=1 draining=true since=0s previous=
  move 0 token=1 target=0 reserve=false started=0s deadline=30s cause=deleted
  move 1 token=2 target=0 reserve=false started=0s deadline=30s cause=deleted

release session=1 cause=drained 1/0#1
----
ok
  17 release 1/0 w1 session=1 token=1 cause=drained

release session=1 cause=drained 1/1#2
----
ok
  18 release 1/1 w1 session=1 token=2 cause=drained
  19 keyspace_gone 1 cause=deleted

delete name=strict
delete name=never
----
1: refused: keyspace name "strict": not found: a keyspace that exists
2: refused: keyspace name "never": not found: a keyspace that exists

# Tokens go on from where they were; the number is a new one.

create name=strict p=1 ttl=1s
join session=1 ks=strict
grant ks=4 cause=initial 0:0>1
----
1: ok
2: session 1 incarnation=3 ttl=1s deadline=2s
3: ok
  20 keyspace_create 4
  21 session_keyspace 4 w1 session=1
  22 grant 4/0 w1 session=1 token=4 cause=initial

show
----
clock=0s token=4
session 1 w1 live ttl=1s renewal=3 deadline=2s held=1 keyspaces=[4]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
keyspace 4 strict strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=4 session=1 draining=false since=0s previous=
