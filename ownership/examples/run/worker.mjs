#!/usr/bin/env node
// A worker for many partitions, with Node.js and nothing else.
//
//   RESOURCE=http://127.0.0.1:8080/orders \
//     leasehold run --keyspace orders --mode per-worker -- ./worker.mjs
//
// The resource is an HTTP service that refuses stale tokens with 409, such as one
// behind the Go package httpfence. Tokens are below 2^53: a Number holds them
// exactly, and no BigInt is needed. The API gives them as strings, which can be
// passed on as they are.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const { LEASEHOLD_KEYSPACE: keyspace, LEASEHOLD_OWNER: owner, LEASEHOLD_SOCKET: socketPath, RESOURCE: resource } = process.env;

// call is one call of the sidecar's API.
function call(method, path, params) {
  return new Promise((resolve, reject) => {
    const req = http.request({ socketPath, method, path, timeout: 10_000 }, (res) => {
      let text = "";
      res.setEncoding("utf8");
      res.on("data", (chunk) => (text += chunk));
      res.on("end", () => resolve({ status: res.statusCode, body: JSON.parse(text) }));
    });
    req.on("timeout", () => req.destroy(new Error("the sidecar does not answer")));
    req.on("error", reject);
    req.end(params && JSON.stringify(params));
  });
}

// watch calls each(name, data) for every event; a connection that breaks is
// resumed where it was.
function watch(each, last) {
  const again = once(() => setTimeout(() => watch(each, last), 100));
  const headers = last ? { "Last-Event-ID": last } : {};
  const req = http.request({ socketPath, path: "/v1/watch", headers, timeout: 30_000 }, (res) => {
    let text = "";
    res.setEncoding("utf8");
    res.on("data", (chunk) => {
      const blocks = (text + chunk).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const event = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s)));
        if (!event.event) continue; // a comment: the connection lives
        last = event.id;
        each(event.event, JSON.parse(event.data));
      }
    });
    res.on("close", again);
  });
  req.on("timeout", () => req.destroy());
  req.on("error", again);
  req.end();
}

function once(f) {
  let done = false;
  return () => done || ((done = true), f());
}

const work = new Map(); // "partition/token" → { stop, done }

function start(lease) {
  const key = `${lease.partition}/${lease.token}`;
  if (work.has(key) || lease.state !== "held") return;
  if (!Number.isSafeInteger(Number(lease.token))) throw new Error(`token ${lease.token} is no safe integer`);
  const w = { stop: false };
  work.set(key, w);
  w.done = run(lease, w).finally(() => work.delete(key));
}

function stop(lease) {
  const w = work.get(`${lease.partition}/${lease.token}`);
  if (w) w.stop = true;
}

// run works on one lease until it is told to stop, and then says so: that also
// confirms a loss.
async function run({ partition, token }, w) {
  const release = { partition, token };
  try {
    await call("POST", "/v1/ready", { partition, token });
    for (let n = 1; !w.stop; n++) {
      if ((await call("GET", `/v1/check?partition=${partition}&token=${token}`)).status !== 200) break;
      if (!(await guarded(partition, token, `order ${n}`))) break;
      await sleep(100);
    }
  } catch (err) {
    release.failed = String(err.message).slice(0, 200); // counts against the partition
  }
  await call("POST", "/v1/release", release).catch(() => {}); // the sidecar is gone: so are we, soon
}

// guarded writes to the resource with the token. False: a newer owner was there.
async function guarded(partition, token, item) {
  const res = await fetch(resource, {
    method: "POST",
    body: item,
    headers: {
      "Leasehold-Keyspace": keyspace,
      "Leasehold-Partition": String(partition),
      "Leasehold-Token": token,
      "Leasehold-Owner": owner,
    },
  });
  await res.arrayBuffer();
  if (res.status === 409) return false;
  if (!res.ok) throw new Error(`resource answers ${res.status}`);
  return true;
}

// SIGTERM: finish what has begun, release, end.
process.on("SIGTERM", async () => {
  const all = [...work.values()];
  for (const w of all) w.stop = true;
  await Promise.allSettled(all.map((w) => w.done));
  process.exit(0);
});

watch((name, data) => {
  if (name === "snapshot") {
    const held = new Set(data.leases.filter((l) => l.state === "held").map((l) => `${l.partition}/${l.token}`));
    for (const [key, w] of work) if (!held.has(key)) w.stop = true; // it is over
    data.leases.forEach(start);
  } else if (name === "granted") {
    start(data);
  } else {
    stop(data); // draining or ended
  }
});
