# O-17: the release of a lease already lost touches nobody, also when the same
# session has the partition again under a newer token.

create name=orders p=2 ttl=2s
open session=1 worker=w1 inc=0 ks=orders
grant ks=1 cause=initial 0:0>1
release session=1 cause=yield 1/0#1
grant ks=1 cause=initial 0:1>1
----
1: ok
2: session 1 incarnation=2 ttl=2s deadline=2s
3: ok
4: ok
5: ok
  2 keyspace_create 1
  3 session_open w1 session=1
  4 grant 1/0 w1 session=1 token=1 cause=initial
  5 release 1/0 w1 session=1 token=1 cause=yield
  6 grant 1/0 w1 session=1 token=2 from=w1 cause=initial

release session=1 cause=yield 1/0#1
----
item 1 refused: lease partition "orders/0": stale token: token 2, not 1 (held by w1, token 2)

release session=1 cause=yield 1/0#2
release session=1 cause=yield 1/0#2
release session=1 cause=yield 1/0#999
----
1: ok
2: item 1 refused: lease partition "orders/0": not holder: the session that holds it, not 1 (token 2)
3: item 1 refused: lease partition "orders/0": not holder: the session that holds it, not 1 (token 2)
  7 release 1/0 w1 session=1 token=2 cause=yield
