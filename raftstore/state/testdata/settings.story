# O-03, O-04, O-05, O-79, O-80: what is outside its limits is refused with the limits.

create name=a p=1 ttl=0s
create name=a p=1 ttl=-1s
create name=a p=1 ttl=1ms
create name=a p=1 ttl=499ms
create name=a p=1 ttl=1h1ms
create name=a p=1 ttl=2h
create name=a p=1 ttl=2562047h
create name=a p=1 ttl=1500100us
create name=a p=0
create name=a p=1048577
create name=a p=1 handoff=-1s
create name=a p=1 grace=-1s
create name=a p=1 delay=-1s
create name=a p=1 handoff=25h
create name=a p=1 grace=61m
create name= p=1
create name=a/b p=1
create name=.. p=1
create name=. p=1
create name=a..b p=1
create name=%2F p=1
create name=a# p=1
create name=a? p=1
create name=ü p=1
create name=🙂 p=1
----
1: refused: keyspace ttl "0s": invalid: 500ms to 1h0m0s
2: refused: keyspace ttl "-1s": invalid: 500ms to 1h0m0s
3: refused: keyspace ttl "1ms": invalid: 500ms to 1h0m0s
4: refused: keyspace ttl "499ms": invalid: 500ms to 1h0m0s
5: refused: keyspace ttl "1h0m0.001s": invalid: 500ms to 1h0m0s
6: refused: keyspace ttl "2h0m0s": invalid: 500ms to 1h0m0s
7: refused: keyspace ttl "2562047h0m0s": invalid: 500ms to 1h0m0s
8: refused: keyspace ttl "1.5001s": invalid: whole milliseconds
9: refused: keyspace partitions "0": invalid: 1 to 1048576
10: refused: keyspace partitions "1048577": invalid: 1 to 1048576
11: refused: keyspace handoff_timeout "-1s": invalid: 0 to 24h0m0s
12: refused: keyspace restart_grace "-1s": invalid: 0 to 1h0m0s
13: refused: keyspace initial_delay "-1s": invalid: 0 to 1h0m0s
14: refused: keyspace handoff_timeout "25h0m0s": invalid: 0 to 24h0m0s
15: refused: keyspace restart_grace "1h1m0s": invalid: 0 to 1h0m0s
16: refused: keyspace name "": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
17: refused: keyspace name "a/b": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
18: refused: keyspace name "..": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
19: refused: keyspace name ".": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
20: refused: keyspace name "a..b": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
21: refused: keyspace name "%2F": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
22: refused: keyspace name "a#": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
23: refused: keyspace name "a?": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
24: refused: keyspace name "ü": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
25: refused: keyspace name "🙂": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."

# The edges are in.

create name=a p=1 ttl=500ms
create name=b:1_2-3.C p=1 ttl=1h
create name=c p=4 ttl=1500ms
create name=d p=1 ttl=1001ms
create name=a p=1
----
1: ok
2: ok
3: ok
4: ok
5: refused: keyspace name "a": exists: a name that is free
  2 keyspace_create 1
  3 keyspace_create 2
  4 keyspace_create 3
  5 keyspace_create 4

open session=1 worker=w1 inc=0 ks=c
open session=2 worker=w2 inc=0 ks=d
open session=3 worker=w3 inc=0 ks=d,d
open session=3 worker=w3 inc=0 ks=d,nope
open session=3 worker=w3 inc=9 ks=d
open session=3 worker= inc=0 ks=d
open session=0 worker=w3 inc=0 ks=d
open session=9223372036854775808 worker=w3 inc=0 ks=d
----
1: session 1 incarnation=4 ttl=1.5s deadline=1.5s
2: session 2 incarnation=4 ttl=1.001s deadline=1.001s
3: refused: session keyspaces "d": invalid: each keyspace once
4: refused: keyspace name "nope": not found: a keyspace that exists
5: refused: worker incarnation "9": incarnation: 0, the present one
6: refused: session worker_id "": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
7: refused: session session_id "0": invalid: 63 random bits, not 0
8: refused: session session_id "9223372036854775808": invalid: 63 random bits, not 0
  6 session_open w1 session=1
  7 session_open w2 session=2

update name=c ttl=1ms
update name=nope
----
1: refused: keyspace ttl "1ms": invalid: 500ms to 1h0m0s
2: refused: keyspace name "nope": not found: a keyspace that exists

grant ks=3 cause=initial 4:0>1 4294967295:0>1
release session=1 cause=initial 3/0#1
release session=1 cause=yield 9/0#1 3/4#1
drain ks=3 timeout=-1s 0#1
----
1: item 1 refused: keyspace c partition "4": invalid: 0 to 3
1: item 2 refused: keyspace c partition "4294967295": invalid: 0 to 3
2: refused: release cause "initial": invalid: drained, yield, failed, ended, claim_refused or refused
3: item 1 refused: keyspace id "9": not found: a keyspace that exists
3: item 2 refused: keyspace c partition "4": invalid: 0 to 3
4: refused: drain timeout "-1s": invalid: 0 to 24h0m0s
