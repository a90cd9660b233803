# O-66: numbers in 19 digits, in the order of bytes, never twice.

level 2
----
ok
  2 feature_raise token=2

seq prefix=a/ value=first
----
ticket a/0000000000000000001=first create=2 version=1 created=true number=1 revision=2
  @2 put a/0000000000000000001=first create=2 version=1

seq prefix=a/ after=8
----
ticket a/0000000000000000009= create=3 version=1 created=true number=9 revision=3
  @3 put a/0000000000000000009= create=3 version=1

seq prefix=a/
----
ticket a/0000000000000000010= create=4 version=1 created=true number=10 revision=4
  @4 put a/0000000000000000010= create=4 version=1

seq prefix=a/ after=98
----
ticket a/0000000000000000099= create=5 version=1 created=true number=99 revision=5
  @5 put a/0000000000000000099= create=5 version=1

seq prefix=a/
----
ticket a/0000000000000000100= create=6 version=1 created=true number=100 revision=6
  @6 put a/0000000000000000100= create=6 version=1

seq prefix=a/ after=9999999998
----
ticket a/0000000009999999999= create=7 version=1 created=true number=9999999999 revision=7
  @7 put a/0000000009999999999= create=7 version=1

seq prefix=a/
----
ticket a/0000000010000000000= create=8 version=1 created=true number=10000000000 revision=8
  @8 put a/0000000010000000000= create=8 version=1

seq prefix=a/ after=2147483646
----
ticket a/0000000010000000001= create=9 version=1 created=true number=10000000001 revision=9
  @9 put a/0000000010000000001= create=9 version=1

seq prefix=b/ after=2147483646
----
ticket b/0000000002147483647= create=10 version=1 created=true number=2147483647 revision=10
  @10 put b/0000000002147483647= create=10 version=1

seq prefix=b/
----
ticket b/0000000002147483648= create=11 version=1 created=true number=2147483648 revision=11
  @11 put b/0000000002147483648= create=11 version=1

# Deleted, and a key that somebody has put: both numbers are passed.

del b/ end=c
----
ok succeeded=true revision=12
  @12 delete b/0000000002147483647, was 
  @12 delete b/0000000002147483648, was 

seq prefix=b/
----
ticket b/0000000002147483649= create=13 version=1 created=true number=2147483649 revision=13
  @13 put b/0000000002147483649= create=13 version=1

put b/0000000002147483650 mine
----
ok succeeded=true revision=14
  @14 put b/0000000002147483650=mine create=14 version=1

seq prefix=b/
----
ticket b/0000000002147483651= create=15 version=1 created=true number=2147483651 revision=15
  @15 put b/0000000002147483651= create=15 version=1

restart
seq prefix=b/
----
ticket b/0000000002147483652= create=16 version=1 created=true number=2147483652 revision=16
  @16 put b/0000000002147483652= create=16 version=1

# The end.

seq prefix=b/ after=9223372036854775805
----
ticket b/9223372036854775806= create=17 version=1 created=true number=9223372036854775806 revision=17
  @17 put b/9223372036854775806= create=17 version=1

seq prefix=b/
----
ticket b/9223372036854775807= create=18 version=1 created=true number=9223372036854775807 revision=18
  @18 put b/9223372036854775807= create=18 version=1

seq prefix=b/
----
refused: sequence after "9223372036854775807": numbers spent: numbers of at most 9223372036854775807

seq prefix=b/ after=18446744073709551615
----
refused: sequence after "18446744073709551615": numbers spent: numbers of at most 9223372036854775807

# Another prefix has numbers of its own; a key can go with a session.

lease session=7 ttl=5
----
session 7 incarnation=0 ttl=5s deadline=5s

seq prefix=c session=7
----
ticket c0000000000000000001= create=19 version=1 lease=7 created=true number=1 revision=19
  @19 put c0000000000000000001= create=19 version=1 lease=7

seq prefix=c session=8
----
refused: requested lease not found

revokelease session=7
----
ok
  @20 delete c0000000000000000001, was 

seq prefix=c
----
ticket c0000000000000000002= create=21 version=1 created=true number=2 revision=21
  @21 put c0000000000000000002= create=21 version=1

seq prefix=
----
refused: sequence prefix "": invalid: 1 to 512 bytes, not 0

show
----
clock=0s token=0
keys at revision 21, compacted at 0
  a/0000000000000000001=first create=2 version=1
  a/0000000000000000009= create=3 version=1
  a/0000000000000000010= create=4 version=1
  a/0000000000000000099= create=5 version=1
  a/0000000000000000100= create=6 version=1
  a/0000000009999999999= create=7 version=1
  a/0000000010000000000= create=8 version=1
  a/0000000010000000001= create=9 version=1
  b/0000000002147483649= create=13 version=1
  b/0000000002147483650=mine create=14 version=1
  b/0000000002147483651= create=15 version=1
  b/0000000002147483652= create=16 version=1
  b/9223372036854775806= create=17 version=1
  b/9223372036854775807= create=18 version=1
  c0000000000000000002= create=21 version=1
sequence a/ at 10000000001
sequence b/ at 9223372036854775807
sequence c at 2

rebase first=1000
show
----
clock=0s token=999
keys at revision 999, compacted at 999
  a/0000000000000000001=first create=2 version=1
  a/0000000000000000009= create=3 version=1
  a/0000000000000000010= create=4 version=1
  a/0000000000000000099= create=5 version=1
  a/0000000000000000100= create=6 version=1
  a/0000000009999999999= create=7 version=1
  a/0000000010000000000= create=8 version=1
  a/0000000010000000001= create=9 version=1
  b/0000000002147483649= create=13 version=1
  b/0000000002147483650=mine create=14 version=1
  b/0000000002147483651= create=15 version=1
  b/0000000002147483652= create=16 version=1
  b/9223372036854775806= create=17 version=1
  b/9223372036854775807= create=18 version=1
  c0000000000000000002= create=21 version=1
sequence a/ at 10000000001
sequence b/ at 9223372036854775807
sequence c at 2

seq prefix=c
----
ticket c0000000000000000003= create=1000 version=1 created=true number=3 revision=1000
  @1000 put c0000000000000000003= create=1000 version=1
