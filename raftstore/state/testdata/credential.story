# A credential: limits, and what comes to an end with it.

level 3
create name=strict p=2 ttl=2s
create name=fenced p=2 ttl=2s takeover=fenced
----
1: ok
2: ok
3: ok
  2 feature_raise token=3
  3 keyspace_create 1
  4 keyspace_create 2

cred id=abc123abc123 name=ci role=worker ks=str* expires=99 by=operator/root
cred id=abc123abc123 name=ci role=worker ks=str* expires=99 by=operator/root
cred id=abc123abc123 name=ci role=reader ks=str* expires=99 by=operator/root
cred id=abc123abc124 name=ci role=reader
cred id=short name=x role=worker
cred id=zzz123abc124 name=a/b role=worker
cred id=zzz123abc124 name=x role=server
cred id=zzz123abc124 name=x role=nobody
cred id=zzz123abc124 name=x role=worker ks=a*b
cred id=zzz123abc124 name=x role=worker created=100 expires=100
cred id=zzz123abc124 name=x role=worker created=0
cred id=zzz123abc124 name=x role=worker expires=253402300800
cred id=zzz123abc124 name=other role=worker
revokecred id=nobodynobody
----
1: ok
2: ok
3: refused: credential id "abc123abc123": exists: an id that was not given before
4: refused: credential name "ci": exists: a name that no credential has, also none that has expired
5: refused: credential id "short": invalid: 12 characters of a-z and 0-9
6: refused: credential name "a/b": invalid: 1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither "." nor a name with ".."
7: refused: credential role "server": invalid: reader, worker or operator
8: refused: credential role "none": invalid: reader, worker or operator
9: refused: credential scope "1 keyspaces, 0 key prefixes": invalid: keyspaces "a*b": character '*': want a keyspace's name, a beginning of names and a star, or a star
10: refused: credential expires "1970-01-01 00:01:40 +0000 UTC": invalid: after it was created, before the year 10000
11: refused: credential created "1970-01-01 00:00:00 +0000 UTC": invalid: a time from 1970 to 9999
12: refused: credential expires "10000-01-01 00:00:00 +0000 UTC": invalid: after it was created, before the year 10000
13: ok
14: refused: credential id "nobodynobody": not found: a credential that has not been revoked
  5 credential_create ci from=abc123abc123
  6 credential_create other from=zzz123abc124

show
----
clock=0s token=0
keyspace 1 strict strict owned=0 draining=0 quarantined=0 deleting=false
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
credential abc123abc123 ci worker [str*] by=operator/root expires=99
credential zzz123abc124 other worker [*] by=

open session=1 worker=w1 ks=strict,fenced owner=credential/abc123abc123
open session=2 worker=w2 ks=strict,fenced owner=credential/zzz123abc124
lease session=7 ttl=5 owner=credential/abc123abc123
lease session=8 ttl=5 owner=credential/zzz123abc124
----
1: session 1 incarnation=4 ttl=2s deadline=2s
2: session 2 incarnation=4 ttl=2s deadline=2s
3: session 7 incarnation=0 ttl=5s deadline=5s
4: session 8 incarnation=0 ttl=5s deadline=5s
  7 session_open w1 session=1
  8 session_open w2 session=2

grant ks=1 cause=initial 0:0>1 1:0>2
grant ks=2 cause=initial 0:0>1 1:0>2
put mine 1 lease=7
put other 1 lease=8
----
1: ok
2: ok
3: ok succeeded=true revision=2
4: ok succeeded=true revision=3
  9 grant 1/0 w1 session=1 token=1 cause=initial
  10 grant 1/1 w2 session=2 token=2 cause=initial
  11 grant 2/0 w1 session=1 token=3 cause=initial
  12 grant 2/1 w2 session=2 token=4 cause=initial
  @2 put mine=1 create=2 version=1 lease=7
  @3 put other=1 create=3 version=1 lease=8

# Strict leases last, fenced ones go at once; keys stay until their lease runs out.

revokecred id=abc123abc123
----
revoked abc123abc123 ci barred=2
  13 credential_revoke ci from=abc123abc123
  14 session_bar w1 session=1 cause=credential_revoked
  15 revoke 2/0 w1 session=1 token=3 cause=credential_revoked

revokecred id=abc123abc123
keepalive elapsed=0s 1 2 7 8
grant ks=1 cause=balance 0:1>1
put more 1 lease=7
enqueue name=q session=7
----
1: refused: credential id "abc123abc123": not found: a credential that has not been revoked
2: refused: session session_id "1": evicted: a session that is not barred
2: ok ttl=2000ms
2: refused: session session_id "7": evicted: a session that is not barred
2: ok ttl=5000ms
3: item 1 refused: lease partition "strict/0": conflict: a partition without an owner (held by w1, token 1)
4: refused: requested lease not found
5: refused: requested lease not found

show
----
clock=0s token=4
session 1 w1 evicted ttl=2s renewal=4 deadline=2s held=1 keyspaces=[1 2] owner=credential/abc123abc123
session 2 w2 live ttl=2s renewal=7 deadline=2s held=2 keyspaces=[1 2] owner=credential/zzz123abc124
worker w1 incarnation=4 session=1 drained=false opens=[0s]
worker w2 incarnation=4 session=2 drained=false opens=[0s]
keyspace 1 strict strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=1 session=1 draining=false since=0s previous=
  1 token=2 session=2 draining=false since=0s previous=
keyspace 2 fenced fenced owned=1 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=2 draining=false since=0s previous=
lease 7 ttl=5s remaining=5s renewal=4 owner=credential/abc123abc123 evicted
  keys of 7: ["mine"]
lease 8 ttl=5s remaining=5s renewal=7 owner=credential/zzz123abc124
  keys of 8: ["other"]
keys at revision 3, compacted at 0
  mine=1 create=2 version=1 lease=7
  other=1 create=3 version=1 lease=8
credential zzz123abc124 other worker [*] by=

restart
show
----
clock=0s token=4
session 1 w1 evicted ttl=2s renewal=4 deadline=2s held=1 keyspaces=[1 2] owner=credential/abc123abc123
session 2 w2 live ttl=2s renewal=7 deadline=2s held=2 keyspaces=[1 2] owner=credential/zzz123abc124
worker w1 incarnation=4 session=1 drained=false opens=[0s]
worker w2 incarnation=4 session=2 drained=false opens=[0s]
keyspace 1 strict strict owned=2 draining=0 quarantined=0 deleting=false
  0 token=1 session=1 draining=false since=0s previous=
  1 token=2 session=2 draining=false since=0s previous=
keyspace 2 fenced fenced owned=1 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=2 draining=false since=0s previous=
lease 7 ttl=5s remaining=5s renewal=4 owner=credential/abc123abc123 evicted
  keys of 7: ["mine"]
lease 8 ttl=5s remaining=5s renewal=7 owner=credential/zzz123abc124
  keys of 8: ["other"]
keys at revision 3, compacted at 0
  mine=1 create=2 version=1 lease=7
  other=1 create=3 version=1 lease=8
credential zzz123abc124 other worker [*] by=

tick elapsed=2s
expire 1@4 7@4
----
1: ok
2: ok ttl=2000ms
2: refused: session deadline "5s": conflict: reached; the clock is at 2s
  16 expire 1/0 w1 session=1 token=1 cause=evicted
  17 session_expire w1 session=1 cause=expired

tick elapsed=2s
keepalive elapsed=0s 8
expire 7@4
----
1: ok
2: ok ttl=5000ms
3: refused: session deadline "5s": conflict: reached; the clock is at 4s

tick elapsed=2s
expire 7@4
----
1: ok
2: ok ttl=5000ms
  @4 delete mine, was 1

# The name is free again, and so is the worker's id for another owner.

cred id=new123abc123 name=ci role=worker
open session=9 worker=w1 inc=4 ks=strict owner=credential/new123abc123
----
1: ok
2: session 9 incarnation=11 ttl=2s deadline=8s
  18 credential_create ci from=new123abc123
  19 session_open w1 session=9

# A credential outlives a restore, the sessions do not.

rebase first=1000
show
----
clock=6s token=999
keyspace 1 strict strict owned=0 draining=0 quarantined=0 deleting=false
  0 token=1 session=0 draining=false since=2s previous=w1
  1 token=2 session=0 draining=false since=6s previous=w2
keyspace 2 fenced fenced owned=0 draining=0 quarantined=0 deleting=false
  0 token=3 session=0 draining=false since=0s previous=w1
  1 token=4 session=0 draining=false since=6s previous=w2
keys at revision 999, compacted at 999
credential new123abc123 ci worker [*] by=
credential zzz123abc124 other worker [*] by=
