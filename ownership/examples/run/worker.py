#!/usr/bin/env python3
"""A worker for many partitions, with Python's standard library alone.

    STORE=/var/tmp/orders.db leasehold run --keyspace orders --mode per-worker -- ./worker.py

One thread for each lease. The resource is a SQLite database, guarded by the table
that the Go package sqlfence uses: the token is compared and raised in the same
transaction as the write.
"""
import http.client
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time

KEYSPACE = os.environ["LEASEHOLD_KEYSPACE"]
OWNER = os.environ["LEASEHOLD_OWNER"]
STORE = os.environ["STORE"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS leasehold_fence (
  keyspace     TEXT   NOT NULL CHECK (typeof(keyspace) = 'text'),
  partition_id BIGINT NOT NULL CHECK (typeof(partition_id) = 'integer'),
  token        BIGINT NOT NULL CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  owner        TEXT   NOT NULL CHECK (typeof(owner) = 'text'),
  claimed_at   TEXT   NOT NULL,
  PRIMARY KEY (keyspace, partition_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS orders (partition_id INTEGER, token INTEGER, item TEXT);
"""

# Higher wins, equal is its own owner; anything else changes no row.
GUARD = """
INSERT INTO leasehold_fence VALUES (?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
ON CONFLICT (keyspace, partition_id) DO UPDATE
SET token = excluded.token, owner = excluded.owner, claimed_at = excluded.claimed_at
WHERE excluded.token > token OR (excluded.token = token AND excluded.owner = owner)
"""


class Stale(Exception):
    """A newer owner has been at the resource."""


class Sidecar(http.client.HTTPConnection):
    """HTTP over the sidecar's Unix socket."""

    def __init__(self, timeout=10):
        super().__init__("sidecar", timeout=timeout)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ["LEASEHOLD_SOCKET"])


def call(method, path, **params):
    """One call of the API: status and answer."""
    sidecar = Sidecar()
    try:
        sidecar.request(method, path, json.dumps(params))
        answer = sidecar.getresponse()
        return answer.status, json.load(answer)
    finally:
        sidecar.close()


def watch():
    """Events for ever: (name, data). A connection that breaks is resumed."""
    last = None
    while True:
        sidecar = Sidecar(timeout=30)  # the sidecar says something every 10 s
        try:
            sidecar.request("GET", "/v1/watch", headers={"Last-Event-ID": last} if last else {})
            event = {}
            for raw in sidecar.getresponse():
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                elif "event" in event:
                    last = event["id"]
                    yield event["event"], json.loads(event["data"])
                    event = {}
                else:
                    event = {}  # a comment: the connection lives
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
        finally:
            sidecar.close()


class Work(threading.Thread):
    """The work on one lease, until it is told to stop."""

    def __init__(self, lease):
        super().__init__(daemon=True)
        self.partition, self.token = lease["partition"], lease["token"]
        self.stop = threading.Event()

    def run(self):
        failed = ""
        try:
            self.orders()
        except Stale as e:
            print(e, file=sys.stderr)
        except Exception as e:  # counts against the partition
            failed = str(e)
        # The word that nobody works on it any more. It also confirms a loss.
        params = {"failed": failed} if failed else {}
        call("POST", "/v1/release", partition=self.partition, token=self.token, **params)

    def orders(self):
        db = sqlite3.connect(STORE, timeout=5, isolation_level=None)
        try:
            self.guarded(db)  # claim: from here on an older owner can write no more
            call("POST", "/v1/ready", partition=self.partition, token=self.token)
            n = 0
            while not self.stop.wait(0.1):
                n += 1
                self.guarded(db, f"order {n}")
        finally:
            db.close()

    def guarded(self, db, item=None):
        """Writes an item, unless a higher token has been here."""
        db.execute("BEGIN IMMEDIATE")
        try:
            if db.execute(GUARD, (KEYSPACE, self.partition, int(self.token), OWNER)).rowcount != 1:
                raise Stale(f"token {self.token} of partition {self.partition} is stale")
            if item is not None:
                db.execute("INSERT INTO orders VALUES (?, ?, ?)", (self.partition, int(self.token), item))
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise


def main():
    db = sqlite3.connect(STORE, timeout=5)
    db.execute("PRAGMA journal_mode = WAL")  # readers block no writer
    db.executescript(SCHEMA)
    db.close()
    work = {}

    def stop_all(*_):
        for w in list(work.values()):
            w.stop.set()
        for w in list(work.values()):
            w.join()
        os._exit(0)  # the watch waits for the next event

    # In a thread: the handler may interrupt anything.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop_all).start())

    for name, data in watch():
        leases = {"snapshot": lambda: data["leases"], "granted": lambda: [data]}.get(name, lambda: [])()
        for lease in leases:
            key = lease["partition"], lease["token"]
            if key not in work and lease["state"] == "held":
                work[key] = Work(lease)
                work[key].start()
        if name in ("draining", "ended"):
            w = work.get((data["partition"], data["token"]))
            if w:
                w.stop.set()
        if name == "snapshot":  # what is not in it is over
            held = {(lease["partition"], lease["token"]) for lease in data["leases"] if lease["state"] == "held"}
            for key, w in work.items():
                if key not in held:
                    w.stop.set()
        for key in [k for k, w in work.items() if not w.is_alive()]:
            del work[key]


if __name__ == "__main__":
    main()
