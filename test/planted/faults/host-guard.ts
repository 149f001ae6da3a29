import type { Fault } from "../fault.ts";

const shares = "test/kernel/firewall-shares.test.ts";
const together = "nftables: a pod with several interfaces has one share, which they use together";
const hostAccess = "test/kernel/firewall-host-access.test.ts";

const dropEvents = "test/kernel/drop-events.test.ts";
const onceAMinute =
  "a first frame of a kind that is dropped is an event, at most one a minute; a restart repeats none";

/**
 * What guests reach on the host, how many connections they have, and what is reported of what was
 * dropped.
 */
export const hostGuardFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "the host is open to guests of every network",
    file: "network/firewall/nftables/element.ts",
    find: '...(hostAccess === "all" ? [] : [{ set: "host_closed", key: link, owner } as const]),',
    put: '...(hostAccess === "all" ? [{ set: "host_closed", key: link, owner } as const] : []),',
    noticedBy: {
      file: hostAccess,
      title:
        "nftables, bridge-nf 0: of the host guests reach names and ping, and else are refused at once",
    },
  },
  {
    kind: "access",
    name: "a port of the host that is closed stays open to connections",
    file: "network/firewall/nftables/host-guard.ts",
    find: 'rules: ["ct direction reply return", "iifname @host_closed goto host"]',
    put: 'rules: ["ct state { established, related } return", "iifname @host_closed goto host"]',
    noticedBy: {
      file: hostAccess,
      title:
        "nftables: a network opens ports of the host to its guests, and closes them for connections there are",
    },
  },
  {
    kind: "access",
    name: "guests ask for names at the gateways of other networks",
    file: "network/firewall/nftables/host-guard.ts",
    find: '"meta l4proto { tcp, udp } th dport 53 iifname . ip daddr @dns4 return",',
    put: '"meta l4proto { tcp, udp } th dport 53 return",',
    noticedBy: {
      file: hostAccess,
      title:
        "nftables: what one network opens of the host is closed to the next, and ports of others are not judged",
    },
  },
  {
    kind: "access",
    name: "whoever comes by a bridge is judged as a guest",
    file: "network/firewall/nftables/host-guard.ts",
    find: "rules: [`${fromPort} goto guest`],",
    put: 'rules: [...(fromPort === "" ? [] : ["goto guest"])],',
    noticedBy: {
      file: hostAccess,
      title:
        "nftables: what one network opens of the host is closed to the next, and ports of others are not judged",
    },
  },
  {
    kind: "access",
    name: "answers of guests do not reach the host",
    file: "network/firewall/nftables/host-guard.ts",
    find: 'rules: ["ct direction reply return", "iifname @host_closed goto host"]',
    put: 'rules: ["iifname @host_closed goto host"]',
    noticedBy: {
      file: hostAccess,
      title:
        "nftables, bridge-nf 0: of the host guests reach names and ping, and else are refused at once",
    },
  },
  {
    kind: "access",
    name: "what root translates to the host is refused",
    file: "network/firewall/nftables/host-guard.ts",
    find: '        "ct status dnat return",\n',
    put: "",
    noticedBy: {
      file: hostAccess,
      title:
        "nftables: published ports, and what root translates to the host, are reached from pods as before",
    },
  },
  {
    kind: "access",
    name: "a guest that is refused by the host is left waiting",
    file: "network/firewall/nftables/shares-table.ts",
    find: '"meta l4proto tcp reject with tcp reset",',
    put: '"meta l4proto tcp drop",',
    noticedBy: {
      file: hostAccess,
      title:
        "nftables, bridge-nf 0: of the host guests reach names and ping, and else are refused at once",
    },
  },
  {
    kind: "bound",
    name: "a guest fills the host's table of connections",
    file: "network/firewall/nftables/shares-table.ts",
    find: "ct state new ct status and confirmed == 0 jump share`",
    put: "ct state new ct status and confirmed == 0 return`",
    noticedBy: {
      file: shares,
      title:
        "nftables, bridge-nf 0: a pod has no more connections than its share, and its neighbour has its own",
    },
  },
  {
    kind: "bound",
    name: "all guests of a host share one limit of connections",
    file: "network/firewall/nftables/shares-table.ts",
    find: "add @held${most} { meta priority ct count over",
    put: "add @held${most} { meta priority and 0xc0000000 ct count over",
    noticedBy: {
      file: shares,
      title:
        "nftables, bridge-nf 0: a pod has no more connections than its share, and its neighbour has its own",
    },
  },
  {
    kind: "bound",
    name: "a limit of connections is the usual one whatever a network says",
    file: "network/firewall/nftables/element.ts",
    find: "connectionShares.find((each) => each === connections)",
    put: "connectionShares.find((each) => each === connections || each === 512)",
    noticedBy: {
      file: shares,
      title:
        "nftables: a limit is changed while pods run, ends with their connections, and can be none",
    },
  },
  {
    kind: "bound",
    name: "each interface of a pod has a share of its own",
    file: "network/firewall/nftables/shares-table.ts",
    find: "if (!pod.ports.some(({ sharing }) => sharing === true)) return [];",
    put: "if (pod.ports.length < 9) return [];",
    noticedBy: { file: shares, title: together },
  },
  {
    kind: "release",
    name: "an interface that goes leaves its addresses in the pod's share",
    file: "network/firewall/guarded.ts",
    find: "driver.compareRemoval(isRemoved, signal), this.#ofPorts)",
    put: "driver.compareRemoval(isRemoved, signal), this.#ofPorts.slice(0, 1))",
    noticedBy: { file: shares, title: together },
  },
  {
    kind: "bound",
    name: "refused connections are not counted",
    file: "network/firewall/nftables/shares-table.ts",
    find: '"update @exceeded { meta priority counter }", ',
    put: "",
    noticedBy: {
      file: shares,
      title:
        "nftables, bridge-nf 0: a pod has no more connections than its share, and its neighbour has its own",
    },
  },
  {
    kind: "bound",
    name: "what one port was refused is said of another",
    file: "network/firewall/nftables/port-identity.ts",
    find: "return bits + (c >>> 2);",
    put: "return bits + (b >>> 2);",
    noticedBy: {
      file: shares,
      title: "what a pod is refused by the host is counted, for it alone",
    },
  },
  {
    kind: "bound",
    name: "each new kind of dropped frame is an event at once",
    file: "daemon/traffic/drop-reports.ts",
    find: "if (owner === undefined || this.#lastMs.has(owner)) continue;",
    put: "if (owner === undefined) continue;",
    noticedBy: { file: dropEvents, title: onceAMinute },
  },
  {
    kind: "record",
    name: "a restart of podnetd reports again what was dropped",
    file: "daemon/traffic/counter-watch.ts",
    find: "this.#reports.note(owner, [counted], atMs);",
    put: "void [owner, counted, atMs];",
    noticedBy: { file: dropEvents, title: onceAMinute },
  },
];
