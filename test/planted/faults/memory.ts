import type { Fault } from "../fault.ts";

const store = "test/unit/daemon/store/store.test.ts";
const pods = "test/unit/daemon/pods/pods.test.ts";
const parts = "test/unit/daemon/parts.test.ts";

/** What is remembered and for how long: addresses, requests, events. */
export const memoryFaults: readonly Fault[] = [
  {
    kind: "release",
    name: "an address of a deleted pod is never given back",
    file: "daemon/pods/store/records.ts",
    find: "this.#addresses.free(plans);",
    put: "",
    noticedBy: {
      file: pods,
      title: "a freed address rests, over a restart too, unless no other is left",
    },
  },
  {
    kind: "release",
    name: "the pool keeps the addresses of a deleted pod",
    file: "daemon/pods/store/records.ts",
    find: "this.#addresses.freed(plans);",
    put: "",
    noticedBy: {
      file: pods,
      title: "a freed address rests, over a restart too, unless no other is left",
    },
  },
  {
    kind: "bound",
    name: "an address does not rest over a restart",
    file: "daemon/ipam/addresses.ts",
    find: "pool.quarantine(row.address, row.freedMs);",
    put: "void 0;",
    noticedBy: {
      file: pods,
      title: "a freed address rests, over a restart too, unless no other is left",
    },
  },
  {
    kind: "bound",
    name: "addresses that have rested fill the store",
    file: "daemon/ipam/addresses.ts",
    find: "    pruneLeases(this.#db, now - this.#quarantineMs);\n",
    put: "",
    noticedBy: { file: pods, title: "the store forgets addresses that have rested" },
  },
  {
    kind: "lock",
    name: "an address that is held is given to another pod",
    file: "daemon/ipam/store.ts",
    find: "DELETE FROM leases WHERE network = ? AND address = ? AND freed_ms IS NOT NULL",
    put: "DELETE FROM leases WHERE network = ? AND address = ?",
    noticedBy: {
      file: store,
      title: "an address is held by one owner, then rests, then may change hands",
    },
  },
  {
    kind: "release",
    name: "of a pod's addresses in a pool only the first is given back",
    file: "ipallocator/pool.ts",
    find: "for (const record of records) this.#ledger.retire(record, time);",
    put: "for (const record of records.slice(0, 1)) this.#ledger.retire(record, time);",
    noticedBy: {
      file: "test/unit/ipallocator/pool.test.ts",
      title: "an owner's addresses are found and released together, and no other's",
    },
  },
  {
    kind: "record",
    name: "a request's id is good for any pod",
    file: "daemon/pods/store/requests.ts",
    find: "if (known.digest !== digest) {",
    put: "if (known.digest === '') {",
    noticedBy: {
      file: pods,
      title: "a create asked for again after a restart is the one that was made",
    },
  },
  {
    kind: "record",
    name: "a create is not remembered by its request's id",
    file: "daemon/pods/store/records.ts",
    find: "if (request !== undefined) insertRequest(this.db, { ...request, podId: plan.podId }, now);",
    put: "void request;",
    noticedBy: {
      file: pods,
      title: "a create asked for again after a restart is the one that was made",
    },
  },
  {
    kind: "bound",
    name: "any number of requests is remembered",
    file: "daemon/pods/store/request-rows.ts",
    find: 'if (count === undefined || integer(count, "n") <= requestLimits.count) return;',
    put: "if (count !== undefined) return;",
    noticedBy: { file: store, title: "requests are kept for a day and bounded in number" },
  },
  {
    kind: "release",
    name: "requests are remembered for ever",
    file: "daemon/pods/store/request-rows.ts",
    find: 'db.run("DELETE FROM requests WHERE created_ms < ?", nowMs - requestLimits.ageMs);',
    put: "",
    noticedBy: { file: store, title: "requests are kept for a day and bounded in number" },
  },
  {
    kind: "bound",
    name: "any number of events is kept",
    file: "daemon/events/store.ts",
    find: 'db.run("DELETE FROM events WHERE cursor <= ?", stored.cursor - eventLimit);',
    put: "",
    noticedBy: { file: store, title: "events are numbered without gap or reuse, and bounded" },
  },
  {
    kind: "bound",
    name: "a slow reader of events may lag behind without end",
    file: "daemon/events/journal.ts",
    find: "if (queue.length < readerLimit) queue.push(event);\n      else lost = true;",
    put: "queue.push(event);",
    noticedBy: {
      file: parts,
      title: "a reader that is too slow, or comes too late, has to list anew",
    },
  },
  {
    kind: "release",
    name: "a reader of events that has left still gets events",
    file: "daemon/events/journal.ts",
    find: "this.#readers.delete(report);",
    put: "",
    noticedBy: { file: parts, title: "a reader that has left gets no more events" },
  },
  {
    kind: "record",
    name: "an event is reported before it is durable",
    file: "daemon/events/journal.ts",
    find: "emitted.push(insertEvent(this.#db, { ...event, timeMs: this.#clock.now() }));",
    put: "const row = insertEvent(this.#db, { ...event, timeMs: this.#clock.now() });\n          for (const report of this.#readers) report(row);",
    noticedBy: { file: parts, title: "nothing is reported of what was rolled back" },
  },
];
