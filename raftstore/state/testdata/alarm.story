# With the alarm of no space raised, what frees space and what keeps sessions alive goes on.

level 2
----
ok
  2 feature_raise token=2

lease session=7 ttl=5
----
session 7 incarnation=0 ttl=5s deadline=5s

put a 1 lease=7
----
ok succeeded=true revision=2
  @2 put a=1 create=2 version=1 lease=7

put b 1
----
ok succeeded=true revision=3
  @3 put b=1 create=3 version=1

enqueue name=q session=7
----
ticket q/7= create=4 version=1 lease=7 token=1 created=true number=0 revision=4
  @4 put q/7= create=4 version=1 lease=7 token=1

alarm member=5
----
ok

alarm member=3
----
ok

alarm member=5
----
ok

put a 2
----
refused: mvcc: database space exceeded

lease session=8 ttl=5
----
refused: mvcc: database space exceeded

enqueue name=r session=7
----
refused: mvcc: database space exceeded

seq prefix=s
----
refused: mvcc: database space exceeded

keepalive 7
----
ok ttl=5000ms

compact rev=3
----
ok

del b
----
ok succeeded=true revision=5
  @5 delete b, was 1

restart
show
----
clock=0s token=1
lease 7 ttl=5s remaining=5s renewal=14
  keys of 7: ["a" "q/7"]
keys at revision 5, compacted at 3
  a=1 create=2 version=1 lease=7
  q/7= create=4 version=1 lease=7 token=1
alarms [3 5]

noalarm member=5
----
ok

put a 2
----
refused: mvcc: database space exceeded

noalarm member=5
----
ok

noalarm member=3
----
ok

put a 2
----
ok succeeded=true revision=6
  @6 put a=2 create=2 version=2

alarm member=5
revokelease session=7
----
1: ok
2: ok
  @7 delete q/7, was 

alarm member=0
----
refused: alarm member "0": invalid: the id of a member, which is not 0

rebase first=5000
----
nothing happens

put a 3
----
ok succeeded=true revision=5000
  @5000 put a=3 create=2 version=3
