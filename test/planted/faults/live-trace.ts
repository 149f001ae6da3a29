import type { Fault } from "../fault.ts";

const kernel = "test/kernel/flow-trace.test.ts";
const met = "a real packet's rules are reported, with what they stand for (nftables)";
const bounded = "only the flow is traced, so many of its packets, and only for its time";
const gone = "a trace goes with the process that has it, however that ends";

/** Live traces: one flow, for a while, and nothing stays. */
export const liveTraceFaults: readonly Fault[] = [
  {
    kind: "undo",
    name: "the rules of a live trace stay when podnetd is killed",
    file: "network/firewall/flow-trace.ts",
    find: "`add table ${table} { flags owner; }`,",
    put: "`add table ${table}`,",
    noticedBy: { file: kernel, title: gone },
  },
  {
    kind: "bound",
    name: "a live trace has a flood traced",
    file: "network/firewall/flow-trace.ts",
    find: "`limit rate 1/day burst ${packets} packets meta nftrace set 1`",
    put: "`limit rate 100000/second burst ${packets} packets meta nftrace set 1`",
    noticedBy: { file: kernel, title: bounded },
  },
  {
    kind: "access",
    name: "a live trace shows what other pods send there",
    file: "network/firewall/flow-trace.ts",
    find: '`iifname "${link}"`,\n    `${ip} saddr { ${[...new Set(sources)].join(", ")} }`,',
    put: "`meta mark 0`,",
    noticedBy: { file: kernel, title: bounded },
  },
  {
    kind: "bound",
    name: "a live trace loses a packet once its bridge has given it to the host",
    file: "daemon/trace/traced-packets.ts",
    find: "a.serial === b.serial;",
    put: "a.serial === b.sourcePort;",
    noticedBy: { file: kernel, title: met },
  },
  {
    kind: "bound",
    name: "a live trace names the policy's rule before the one that decided",
    file: "network/firewall/nftables/policy-table.ts",
    find: 'return chainEntries(decisions.egress, "egress")[place - 1];',
    put: 'return chainEntries(decisions.egress, "egress")[place - 2];',
    noticedBy: { file: kernel, title: met },
  },
  {
    kind: "bound",
    name: "a trace's verdict is read from the wrong attribute",
    file: "linux/nftrace/message.ts",
    find: "const NFTA_VERDICT_CODE = 1;",
    put: "const NFTA_VERDICT_CODE = 2;",
    noticedBy: { file: kernel, title: met },
  },
];
