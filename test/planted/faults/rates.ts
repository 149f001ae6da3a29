import type { Fault } from "../fault.ts";

const rates = "test/kernel/rates.test.ts";
const limits = "test/vm/limits.test.ts";
const diff = "test/unit/network/rates/diff-rates.test.ts";

/** Limits of bandwidth and packets. */
export const ratesFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "bits a second are taken for bytes",
    file: "network/rates/bucket.ts",
    find: "Math.floor(bitsPerSecond / 8));",
    put: "Math.floor(bitsPerSecond));",
    noticedBy: {
      file: rates,
      title: "a bandwidth holds toGuest, for TCP and UDP, and the other way has none",
    },
  },
  {
    kind: "bound",
    name: "the two directions of a limit are exchanged",
    file: "daemon/config/port-rates.ts",
    find: "const toGuest = rateOf(own?.in, network?.in);",
    put: "const toGuest = rateOf(own?.out, network?.out);",
    noticedBy: {
      file: "test/unit/core/rate-limits.test.ts",
      title: "an interface's own limits come before its network's, field by field",
    },
  },
  {
    kind: "bound",
    name: "packets of a packet rate cost what they weigh",
    file: "network/rates/bucket.ts",
    find: "    leastCost: packetCost,\n",
    put: "",
    noticedBy: { file: rates, title: "a packet rate holds toGuest, whatever the packets' size" },
  },
  {
    kind: "undo",
    name: "the link of the way out stays when its limit goes",
    file: "network/rates/diff-rates.ts",
    find: '      { kind: "delete-links", links: [name] },\n',
    put: "",
    noticedBy: { file: rates, title: "no limit any more leaves no queue, no filter and no link" },
  },
  {
    kind: "undo",
    name: "the link of the way out stays when its pod goes",
    file: "network/bridge/removal.ts",
    find: "(ifb === undefined ? [tap] : [tap, ifb])",
    put: "(ifb === undefined ? [] : [tap])",
    noticedBy: {
      file: limits,
      title: "podnetd killed while it limits a new pod leaves no link of it",
    },
  },
  {
    kind: "mark",
    name: "a foreign link of that name is taken for podnet's",
    file: "network/rates/diff-rates.ts",
    find: "if (!isOurs(ifb, alias)) throw taken(name);",
    put: "",
    noticedBy: { file: diff, title: "a link of that name that is not podnet's is refused" },
  },
  {
    kind: "repair",
    name: "a queue that others delete is not looked for",
    file: "daemon/drift/drift.ts",
    find: "this.#suspects.queues.add(event.index);",
    put: "",
    noticedBy: {
      file: limits,
      title: "limits outlive podnetd, and what others take of them is put back",
    },
  },
  {
    kind: "bound",
    name: "a network's limits come before those of an interface",
    file: "daemon/config/port-rates.ts",
    find: "const { bandwidth = network.bandwidth ?? 0, packets = network.packets ?? 0 } = own;",
    put: "const { bandwidth = own.bandwidth ?? 0, packets = own.packets ?? 0 } = network;",
    noticedBy: {
      file: "test/unit/core/rate-limits.test.ts",
      title: "an interface's own limits come before its network's, field by field",
    },
  },
];
