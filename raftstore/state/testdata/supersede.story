# The newest process of a worker id wins: at once where leases are fenced,
# after release or expiry where they are strict.

create name=strict p=3 ttl=2s
create name=fenced p=3 ttl=2s takeover=fenced
----
1: ok
2: ok
  2 keyspace_create 1
  3 keyspace_create 2

open session=1 worker=w1 inc=0 ks=strict,fenced
----
session 1 incarnation=3 ttl=2s deadline=2s
  4 session_open w1 session=1

grant ks=1 cause=initial 0:0>1 1:0>1
grant ks=2 cause=initial 0:0>1 1:0>1
----
1: ok
2: ok
  5 grant 1/0 w1 session=1 token=1 cause=initial
  6 grant 1/1 w1 session=1 token=2 cause=initial
  7 grant 2/0 w1 session=1 token=3 cause=initial
  8 grant 2/1 w1 session=1 token=4 cause=initial

open session=2 worker=w1 inc=3 ks=strict,fenced
----
session 2 incarnation=5 ttl=2s deadline=2s
  9 session_bar w1 session=1 cause=superseded
  10 revoke 2/0 w1 session=1 token=3 cause=superseded
  11 revoke 2/1 w1 session=1 token=4 cause=superseded
  12 session_open w1 session=2

show
----
clock=0s token=4
session 1 w1 superseded ttl=2s renewal=3 deadline=2s held=2 keyspaces=[1 2]
session 2 w1 live ttl=2s renewal=5 deadline=2s held=0 keyspaces=[1 2]
worker w1 incarnation=5 session=2 drained=false opens=[0s 0s]
keyspace 1 strict strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=1 session=1 draining=false since=0s previous=
  1 token=2 session=1 draining=false since=0s previous=
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=0 draining=false since=0s previous=w1
  slot w1 zone= [0 1] reserved=false until=1m0s

# The old one hears why it cannot renew, get more, join or leave.

keepalive elapsed=0s 1 2
grant ks=1 cause=join 2:0>1
join session=1 ks=strict
leave session=1
open session=1 worker=w1 inc=5 ks=strict
----
1: refused: session session_id "1": superseded: a session that is not barred
1: ok ttl=2000ms
2: item 1 refused: session session_id "1": superseded: a session that is not barred
3: refused: session session_id "1": superseded: a session that is not barred
4: refused: session session_id "1": superseded: a session that is not barred
5: refused: session session_id "1": superseded: a session that is not barred

# It can give back what it has, which is kept for its worker.

release session=1 cause=ended 1/0#1
----
ok
  13 release 1/0 w1 session=1 token=1 cause=ended

show
----
clock=0s token=4
session 1 w1 superseded ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1 2]
session 2 w1 live ttl=2s renewal=6 deadline=2s held=0 keyspaces=[1 2]
worker w1 incarnation=5 session=2 drained=false opens=[0s 0s]
keyspace 1 strict strict owned=1 draining=0 quarantined=0 deleting=false
  0 token=1 session=0 draining=false since=0s previous=w1
  1 token=2 session=1 draining=false since=0s previous=
  slot w1 zone= [0] reserved=false until=1m0s
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=0 draining=false since=0s previous=w1
  slot w1 zone= [0 1] reserved=false until=1m0s

tick elapsed=2s
----
ok

expire elapsed=0s 1@3
----
ok ttl=2000ms
  14 expire 1/1 w1 session=1 token=2 cause=superseded
  15 session_expire w1 session=1 cause=expired

# Nothing of this has touched the new session.

show
----
clock=2s token=4
session 2 w1 live ttl=2s renewal=6 deadline=2s held=0 keyspaces=[1 2]
worker w1 incarnation=5 session=2 drained=false opens=[0s 0s]
keyspace 1 strict strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=1 session=0 draining=false since=0s previous=w1
  1 token=2 session=0 draining=false since=2s previous=w1
  slot w1 zone= [0 1] reserved=false until=1m2s
  suspect 1 failures=1 workers=[w1] retry=0s quarantined=false error=""
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=0 draining=false since=0s previous=w1
  slot w1 zone= [0 1] reserved=false until=1m0s

# O-16: restarts in a row; the clean-up of an old one never touches the new one.

open session=3 worker=w1 inc=5 ks=fenced
open session=4 worker=w1 inc=11 ks=fenced
----
1: session 3 incarnation=10 ttl=2s deadline=4s
2: refused: worker incarnation "11": incarnation: 10, the present one
  16 session_bar w1 session=2 cause=superseded
  17 session_open w1 session=3

close session=2
close session=3
----
1: ok
2: ok
  18 session_close w1 session=2 cause=closed
  19 session_close w1 session=3 cause=closed

show
----
clock=2s token=4
worker w1 incarnation=10 session=0 drained=false opens=[0s 0s 2s]
keyspace 1 strict strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=1 session=0 draining=false since=0s previous=w1
  1 token=2 session=0 draining=false since=2s previous=w1
  slot w1 zone= [0 1] reserved=false until=1m2s
  suspect 1 failures=1 workers=[w1] retry=0s quarantined=false error=""
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=0 draining=false since=0s previous=w1
  slot w1 zone= [0 1] reserved=false until=1m0s
