"""What Debian's python3-etcd3 does against one server: prints what it sees."""

import sys
import threading

import etcd3

host, port = sys.argv[1].rsplit(":", 1)
c = etcd3.client(host=host, port=int(port), timeout=10)


def pair(value, meta):
    return (value, meta.key, meta.version) if meta else None


print("put", c.put("py/a", "1").prev_kv.key)
print("prev", c.put("py/a", "2", prev_kv=True).prev_kv.value)
print("get", pair(*c.get("py/a")))
print("none", c.get("py/none"))
for i in range(5):
    c.put("py/list/%d" % i, str(i * i % 3))
print("prefix", [pair(*kv) for kv in c.get_prefix("py/list/", sort_order="descend", sort_target="value")])
print("range", [pair(*kv) for kv in c.get_range("py/list/1", "py/list/3")])
print("put if absent", c.put_if_not_exists("py/b", "1"), c.put_if_not_exists("py/b", "2"))
print("replace", c.replace("py/b", "1", "3"), c.replace("py/b", "1", "4"))
print("delete", c.delete("py/b"), c.delete("py/b"))
print("delete prefix", c.delete_prefix("py/list/").deleted)

t = c.transactions
ok, answers = c.transaction(
    compare=[t.value("py/a") == "2", t.version("py/a") > 1, t.create("py/none") == 0],
    success=[t.put("py/t", "yes"), t.get("py/t"), t.delete("py/none")],
    failure=[t.put("py/t", "no")],
)
print("txn", ok, [pair(*kv) for kv in answers[1]], len(answers))
ok, answers = c.transaction(compare=[t.mod("py/a") == 1], success=[], failure=[t.get("py/a")])
print("txn", ok, [pair(*kv) for kv in answers[0]])

lease = c.lease(60)
c.put("py/leased", "x", lease=lease)
print("lease", lease.granted_ttl, 50 < lease.remaining_ttl <= 60, lease.keys)
print("refresh", [r.TTL for r in lease.refresh()])
lease.revoke()
print("revoked", c.get("py/leased"))

events, cancel = c.watch_prefix("py/watch/")
seen = []
done = threading.Event()


def watch():
    for e in events:
        seen.append((type(e).__name__, e.key, e.value))
        if len(seen) == 3:
            done.set()
            return


threading.Thread(target=watch, daemon=True).start()
c.put("py/watch/1", "a")
c.put("py/watch/2", "b")
c.delete("py/watch/1")
print("watched", done.wait(10), seen)
cancel()

a, b = c.lock("py", ttl=10), c.lock("py", ttl=10)
print("lock", a.acquire(timeout=5), a.is_acquired())
try:  # the library of Debian 13 does not get along with its tenacity here
    print("held", b.acquire(timeout=0.5))
except TypeError as e:
    print("held", type(e).__name__)
print("unlock", a.release(), b.acquire(timeout=5), b.is_acquired(), a.is_acquired(), b.release())

try:
    c.compact(1 << 40)
except Exception as e:  # pylint: disable=broad-except
    print("compact", type(e).__name__)
print("status", c.status().leader is not None, len(list(c.members)) > 0, list(c.list_alarms()))
