# Partitions that fail.

create name=jobs p=4 ttl=2s takeover=fenced
tick elapsed=0s
----
1: ok
2: ok
  2 keyspace_create 1

open session=1 worker=w1 inc=0 ks=jobs
open session=2 worker=w2 inc=0 ks=jobs
open session=3 worker=w3 inc=0 ks=jobs
----
1: session 1 incarnation=3 ttl=2s deadline=2s
2: session 2 incarnation=3 ttl=2s deadline=2s
3: session 3 incarnation=3 ttl=2s deadline=2s
  3 session_open w1 session=1
  4 session_open w2 session=2
  5 session_open w3 session=3

grant ks=1 cause=initial 0:0>1 1:0>1 2:0>1 3:0>2
----
ok
  6 grant 1/0 w1 session=1 token=1 cause=initial
  7 grant 1/1 w1 session=1 token=2 cause=initial
  8 grant 1/2 w1 session=1 token=3 cause=initial
  9 grant 1/3 w2 session=2 token=4 cause=initial

# A handler's error counts and delays the next try.

release session=1 cause=failed error=panic:_index_out_of_range 1/0#1
----
ok
  10 release 1/0 w1 session=1 token=1 cause=failed

grant ks=1 cause=retry 0:1>1
release session=1 cause=failed 1/0#5
----
1: ok
2: ok
  11 grant 1/0 w1 session=1 token=5 from=w1 cause=retry
  12 release 1/0 w1 session=1 token=5 cause=failed

show
----
clock=0s token=5
session 1 w1 live ttl=2s renewal=3 deadline=2s held=2 keyspaces=[1]
session 2 w2 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
session 3 w3 live ttl=2s renewal=3 deadline=2s held=0 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 jobs fenced owned=3 draining=0 quarantined=0 deleting=false
  0 token=5 session=0 draining=false since=0s previous=w1
  1 token=2 session=1 draining=false since=0s previous=
  2 token=3 session=1 draining=false since=0s previous=
  3 token=4 session=2 draining=false since=0s previous=
  suspect 0 failures=2 workers=[w1] retry=2s quarantined=false error="panic:_index_out_of_range"

grant ks=1 cause=retry 0:5>2
release session=2 cause=failed 1/0#6
grant ks=1 cause=retry 0:6>3
release session=3 cause=failed error=again 1/0#7
----
1: ok
2: ok
3: ok
4: ok
  13 grant 1/0 w2 session=2 token=6 from=w1 cause=retry
  14 release 1/0 w2 session=2 token=6 cause=failed
  15 grant 1/0 w3 session=3 token=7 from=w2 cause=retry
  16 release 1/0 w3 session=3 token=7 cause=failed
  17 quarantine 1/0 w3 token=7 cause=failed

# Three workers: quarantined, until an operator or a slow retry ends it.

show
----
clock=0s token=7
session 1 w1 live ttl=2s renewal=3 deadline=2s held=2 keyspaces=[1]
session 2 w2 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
session 3 w3 live ttl=2s renewal=3 deadline=2s held=0 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 jobs fenced owned=3 draining=0 quarantined=1 deleting=false
  0 token=7 session=0 draining=false since=0s previous=w3
  1 token=2 session=1 draining=false since=0s previous=
  2 token=3 session=1 draining=false since=0s previous=
  3 token=4 session=2 draining=false since=0s previous=
  suspect 0 failures=4 workers=[w1 w2 w3] retry=5m0s quarantined=true error="again"

retry ks=1 p=0
retry ks=1 p=0
retry ks=1 p=4
retry ks=7 p=0
----
1: ok
2: ok
3: refused: keyspace jobs partition "4": invalid: 0 to 3
4: refused: keyspace id "7": not found: a keyspace that exists
  18 retry 1/0 token=7 cause=operator

# A killed worker with two young partitions: neither is a suspect yet, both may be granted at once.

revoke ks=1 cause=crash 1#2@1 2#3@1
----
ok
  19 revoke 1/1 w1 session=1 token=2 cause=crash
  20 revoke 1/2 w1 session=1 token=3 cause=crash

grant ks=1 cause=crash 1:2>2 2:3>3
----
ok
  21 grant 1/1 w2 session=2 token=8 from=w1 cause=crash
  22 grant 1/2 w3 session=3 token=9 from=w1 cause=crash

# Then alone with one of them: now it has a whole failure, and still no delay.

revoke ks=1 cause=crash 1#8@2
----
ok
  23 revoke 1/1 w2 session=2 token=8 cause=crash

show
----
clock=0s token=9
session 1 w1 live ttl=2s renewal=3 deadline=2s held=0 keyspaces=[1]
session 2 w2 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
session 3 w3 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 jobs fenced owned=2 draining=0 quarantined=0 deleting=false
  0 token=7 session=0 draining=false since=0s previous=w3
  1 token=8 session=0 draining=false since=0s previous=w2
  2 token=9 session=3 draining=false since=0s previous=
  3 token=4 session=2 draining=false since=0s previous=
  slot w1 zone= [1 2] reserved=false until=1m0s
  slot w2 zone= [1] reserved=false until=1m0s
  suspect 1 failures=1 workers=[w1 w2] retry=0s quarantined=false error=""

grant ks=1 cause=crash 1:8>3
revoke ks=1 cause=crash 1#10@3
----
1: ok
2: ok
  24 grant 1/1 w3 session=3 token=10 from=w2 cause=crash
  25 revoke 1/1 w3 session=3 token=10 cause=crash
  26 quarantine 1/1 w3 token=10 cause=crash

show
----
clock=0s token=10
session 1 w1 live ttl=2s renewal=3 deadline=2s held=0 keyspaces=[1]
session 2 w2 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
session 3 w3 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 jobs fenced owned=2 draining=0 quarantined=1 deleting=false
  0 token=7 session=0 draining=false since=0s previous=w3
  1 token=10 session=0 draining=false since=0s previous=w3
  2 token=9 session=3 draining=false since=0s previous=
  3 token=4 session=2 draining=false since=0s previous=
  slot w1 zone= [1 2] reserved=false until=1m0s
  slot w2 zone= [1] reserved=false until=1m0s
  slot w3 zone= [1] reserved=false until=1m0s
  suspect 1 failures=2 workers=[w1 w2 w3] retry=5m0s quarantined=true error=""

# A slow retry that lasts for a minute ends the quarantine.

grant ks=1 cause=retry 1:10>1
----
ok
  27 grant 1/1 w1 session=1 token=11 from=w3 cause=retry

show
----
clock=0s token=11
session 1 w1 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
session 2 w2 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
session 3 w3 live ttl=2s renewal=3 deadline=2s held=1 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 jobs fenced owned=3 draining=0 quarantined=0 deleting=false
  0 token=7 session=0 draining=false since=0s previous=w3
  1 token=11 session=1 draining=false since=0s previous=
  2 token=9 session=3 draining=false since=0s previous=
  3 token=4 session=2 draining=false since=0s previous=
  slot w1 zone= [2] reserved=false until=1m0s
  slot w2 zone= [1] reserved=false until=1m0s
  slot w3 zone= [1] reserved=false until=1m0s
  suspect 1 failures=2 workers=[w1 w2 w3] retry=5m0s quarantined=true error=""

wait 70s
----
  28 retry 1/1 w1 token=11 cause=retry

show
----
clock=1m10s token=11
session 1 w1 live ttl=2s renewal=3 deadline=4s held=1 keyspaces=[1]
session 2 w2 live ttl=2s renewal=3 deadline=4s held=1 keyspaces=[1]
session 3 w3 live ttl=2s renewal=3 deadline=4s held=1 keyspaces=[1]
worker w1 incarnation=3 session=1 drained=false opens=[0s]
worker w2 incarnation=3 session=2 drained=false opens=[0s]
worker w3 incarnation=3 session=3 drained=false opens=[0s]
keyspace 1 jobs fenced owned=3 draining=0 quarantined=0 deleting=false
  0 token=7 session=0 draining=false since=0s previous=w3
  1 token=11 session=1 draining=false since=0s previous=
  2 token=9 session=3 draining=false since=0s previous=
  3 token=4 session=2 draining=false since=0s previous=
