# The keys of gossip are set on a condition.

level 3
keyring version=1 0123456789abcdef
keyring version=0 0123456789abcdef 0123456789abcdef01234567
keyring version=0 0123456789abcdef
----
1: ok
2: refused: keyring version "1": conflict: 0, the present one
3: ok
4: refused: keyring version "0": conflict: 1, the present one
  2 feature_raise token=3
  3 keyring token=1

keyring version=1
keyring version=1 0123456789abcde
keyring version=1 0123456789abcdef fedcba9876543210 0123456789abcdef
keyring version=1 0123456789abcde1 0123456789abcde2 0123456789abcde3 0123456789abcde4 0123456789abcde5
keyring version=1 0123456789abcde1 0123456789abcde2 0123456789abcde3 0123456789abcde4
----
1: refused: keyring keys "0": invalid: 1 to 4 keys
2: refused: keyring keys "key 1 of 15 bytes": invalid: 16, 24 or 32 bytes
3: refused: keyring keys "keys 1 and 3 are the same": invalid: each key once
4: refused: keyring keys "5": invalid: 1 to 4 keys
5: ok
  4 keyring token=2

restart
show
----
clock=0s token=0
keyring 4 keys, version 2 ["0123456789abcde1" "0123456789abcde2" "0123456789abcde3" "0123456789abcde4"]

# Servers of a new cluster begin with what they are given.

rebase first=1000
show
----
clock=0s token=999
keys at revision 999, compacted at 999
