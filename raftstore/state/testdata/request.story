# A retry under a request id that was seen changes nothing.

create name=a p=1 request=71
create name=b p=1 request=72
create name=c p=1
----
1: ok
2: ok
3: ok
  2 keyspace_create 1
  3 keyspace_create 2
  4 keyspace_create 3

create name=d p=1 request=71
create name=e p=1
----
1: refused: request id "71": unknown outcome: an id that was not seen before
2: ok
  5 keyspace_create 4

# Neighbours with one id are one proposal.

create name=f p=1 request=80
create name=g p=1 request=80
----
1: ok
2: ok
  6 keyspace_create 5
  7 keyspace_create 6

create name=h p=1 request=80
create name=i p=1 request=80
create name=j p=1 request=81
create name=k p=1 request=80
----
1: refused: request id "80": unknown outcome: an id that was not seen before
2: refused: request id "80": unknown outcome: an id that was not seen before
3: ok
4: refused: request id "80": unknown outcome: an id that was not seen before
  8 keyspace_create 7

# So is a refused one.

create name=a p=1 request=90
----
refused: keyspace name "a": exists: a name that is free

create name=z p=1 request=90
----
refused: request id "90": unknown outcome: an id that was not seen before
