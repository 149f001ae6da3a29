import type { Fault } from "../fault.ts";

const subnets = "test/unit/overlay/subnets.test.ts";
const histories = {
  file: "test/unit/overlay/histories.test.ts",
  title: "hosts keep their leases through whatever happens",
};
const leases = "test/unit/overlay/leases.test.ts";

/** A host's lease among those of others: each of its invariants, taken away. */
export const overlayFaults: readonly Fault[] = [
  {
    kind: "lock",
    name: "a lease is renewed over whoever has its key by now",
    file: "overlay/intent.ts",
    find: "compares: [{ key: entry.key, modRevision: entry.modRevision }],\n      puts: [{ write: claim.write, grant: permanent ? 0n : grant }],",
    put: "compares: [],\n      puts: [{ write: claim.write, grant: permanent ? 0n : grant }],",
    noticedBy: histories,
  },
  {
    kind: "lock",
    name: "two hosts that took one subnet by two keys both use it",
    file: "overlay/intent.ts",
    find: "other.createRevision < createRevision &&",
    put: "other.createRevision < 0n &&",
    noticedBy: histories,
  },
  {
    kind: "record",
    name: "a host whose key is gone takes other subnets",
    file: "overlay/intent.ts",
    find: "if (entry === undefined) return lost(state, own, config, leases);",
    put: "if (entry === undefined) return acquire(state, config, leases, moment);",
    noticedBy: histories,
  },
  {
    kind: "repair",
    name: "a lease is renewed when it has run out",
    file: "overlay/lease-state.ts",
    find: "Math.max(ttlSeconds - marginSeconds, ttlSeconds / 2) * 1000;",
    put: "(ttlSeconds + marginSeconds) * 1000;",
    noticedBy: histories,
  },
  {
    kind: "record",
    name: "what a snapshot no longer has stays known",
    file: "overlay/registry.ts",
    find: "return [...gone, ...there];",
    put: "gone.forEach(({ before }) => before && this.#put(before.key, before));\n    return there;",
    noticedBy: histories,
  },
  {
    kind: "record",
    name: "an answer that comes late brings back what is gone",
    file: "overlay/registry.ts",
    find: "if (this.#revision !== undefined && revision <= this.#revision) return [];",
    put: "",
    noticedBy: {
      file: leases,
      title: "an answer that comes after the event of what it did changes nothing",
    },
  },
  {
    kind: "mark",
    name: "a reservation gets an end when its host comes",
    file: "overlay/intent.ts",
    find: "const permanent = entry.grant === 0n;",
    put: "const permanent = entry.grant === -1n;",
    noticedBy: histories,
  },
  {
    kind: "undo",
    name: "subnets are given up before they are empty",
    file: "overlay/intent.ts",
    find: 'if (state.drain === "done")',
    put: 'if (state.drain === "asked")',
    noticedBy: histories,
  },
  {
    kind: "bound",
    name: "what fails is tried again at once",
    file: "overlay/lease-events.ts",
    find: "const pause = pauseAfter(failures, draw);",
    put: "const pause = draw * 0;",
    noticedBy: histories,
  },
  {
    kind: "repair",
    name: "an etcd lease that is gone is asked for again and again",
    file: "overlay/lease-events.ts",
    find: "? { ...state, spare: undefined }\n    : state;",
    put: "? state\n    : state;",
    noticedBy: {
      file: leases,
      title: "an etcd lease that is gone before anything has it is not asked for again",
    },
  },
  {
    kind: "record",
    name: "what was written into a reservation without an answer is not remembered",
    file: "overlay/intent.ts",
    find: "if (permanent && claim.write.value === entry.text && own.text !== entry.text)",
    put: "if (permanent && claim.write.value !== entry.text && own.text === claim.write.value)",
    noticedBy: {
      file: leases,
      title: "a reservation that its host wrote into is still its own at another address",
    },
  },
  {
    kind: "record",
    name: "subnets are kept though the end of their key is on its way",
    file: "overlay/lease.ts",
    find: "probation: probation && { ...probation, own: { ...probation.own, parting } },",
    put: "",
    noticedBy: {
      file: leases,
      title:
        "a host on probation that asked for its key to go without an answer does not keep it, whoever else goes",
    },
  },
  {
    kind: "repair",
    name: "who made its lost key again too late does not say so",
    file: "overlay/intent.ts",
    find: "own.regained === true ? firstWith(entry, leases) : undefined;",
    put: "undefined as Lease | undefined;",
    noticedBy: {
      file: leases,
      title:
        "a host that makes its lost key again says so when another host took the subnets first by another key",
    },
  },
  {
    kind: "record",
    name: "a host joins again though the end of its key is on its way",
    file: "overlay/lease.ts",
    find: "own: own && { ...own, parting },",
    put: "",
    noticedBy: {
      file: leases,
      title:
        "a host that joins again while it is unknown whether its key was deleted has it deleted first",
    },
  },
  {
    kind: "bound",
    name: "a key of both families is written where there is only IPv4",
    file: "overlay/claim.ts",
    find: 'if (!sameFamilies(subnets, config)) return { kind: "families" };',
    put: "",
    noticedBy: {
      file: subnets,
      title: "the four things that break flannel cannot be written, whatever the configuration",
    },
  },
  {
    kind: "record",
    name: "routes to other hosts come before the rules that judge their packets",
    file: "network/overlay/overlays.ts",
    find: "    await writeRules();",
    put: "    void writeRules();",
    noticedBy: {
      file: "test/kernel/overlay-routes.test.ts",
      title: "no peer has a route before the rules are written, however long that takes",
    },
  },
  {
    kind: "mark",
    name: "a lease of a host that is gone is refused for a day",
    file: "overlay/claim.ts",
    find: "return [...marked, ...unmarked, ...left];",
    put: "return [...marked, ...unmarked, ...[...left].slice(left.size)];",
    noticedBy: {
      file: leases,
      title:
        "a lease of a host that is gone is taken over with its subnet, one of a host that is there on request alone",
    },
  },
  {
    kind: "mark",
    name: "a host that has just written its lease, and not yet its record, is taken for gone",
    file: "daemon/overlays/departed-hosts.ts",
    find: "this.#become(new Set(owners.filter((owner) => before.has(owner))));",
    put: "this.#become(before.size >= 0 ? new Set(owners) : before);",
    noticedBy: {
      file: "test/unit/overlay/departed.test.ts",
      title: "a host without a record at two looks is gone, if its lease names this host's address",
    },
  },
  {
    kind: "mark",
    name: "a host with two leases gets one route",
    file: "network/overlay/wanted.ts",
    find: "return holder === undefined || holder === publicIp",
    put: "return holder === undefined",
    noticedBy: {
      file: "test/unit/network/overlay/plan.test.ts",
      title: "a host with two leases has both; who excludes whom does not depend on the order",
    },
  },
  {
    kind: "mark",
    name: "which of two peers with one MAC is refused depends on who was heard first",
    file: "network/overlay/wanted.ts",
    find: "const peers = side.peers.toSorted(bySubnet);",
    put: "const peers = side.peers;",
    noticedBy: {
      file: "test/unit/network/overlay/plan.test.ts",
      title: "a host with two leases has both; who excludes whom does not depend on the order",
    },
  },
  {
    kind: "access",
    name: "packets for a peer's subnet are sent to a group, to loopback or to everyone",
    file: "network/model/refuse-peer.ts",
    find: "!isSingleHost(publicIp) || broadcasts",
    put: "broadcasts",
    noticedBy: {
      file: "test/unit/network/overlay/plan.test.ts",
      title: "an address that is no single host's is refused",
    },
  },
  {
    kind: "mark",
    name: "whoever says that there is no way on is taken for the peer",
    file: "daemon/overlays/probes/prober.ts",
    find: 'if (answer.kind === "unreachable" && this.#hosts.get(key)?.includes(answer.from) === true)',
    put: 'if (answer.kind === "unreachable")',
    noticedBy: {
      file: "test/unit/daemon/overlays/probes.test.ts",
      title:
        "a peer that says from its public address that it has no way on is there; another that says so is not it",
    },
  },
  {
    kind: "repair",
    name: "a bridge that flannel's subnet was given to before is not named",
    file: "daemon/overlays/shared-subnet.ts",
    find: "this.#troubles = found.map(sharedText);",
    put: "this.#troubles = found.slice(found.length).map(sharedText);",
    noticedBy: {
      file: "test/overlay/hosts-odd.test.ts",
      title:
        "a bridge that still has the gateway's address is named, in the diff as well, until it is gone",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "after a restart within a boot podnetd's own tunnel has no peers until etcd answers",
    file: "daemon/overlays/records/peer-memory.ts",
    find: "if (former.bootId === this.#parts.bootId && !ownsTable(desired)) return undefined;",
    put: "if (former.bootId === this.#parts.bootId) return undefined;",
    noticedBy: {
      file: "test/unit/daemon/overlays/peer-memory.test.ts",
      title:
        "peers that podnetd itself sends to are recalled by each start, those of the kernel after a boot alone",
    },
  },
  {
    kind: "access",
    name: "a peer that is refused may send to pods by its own address",
    file: "network/model/overlay-senders.ts",
    find: "if (refusal(peer) === undefined) senders.set(",
    put: "if (refusal !== undefined) senders.set(",
    noticedBy: {
      file: "test/unit/network/overlay/plan.test.ts",
      title:
        "hosts that send by their own addresses are let in where the backend has such hosts; a refused one is not",
    },
  },
  {
    kind: "mark",
    name: "a host with two leases may not send once one of them has ended",
    file: "network/model/overlay-senders.ts",
    find: "removed: removed.filter((ip) => !remaining.has(ip)),",
    put: "removed,",
    noticedBy: {
      file: "test/unit/network/overlay/plan.test.ts",
      title: "a host with two leases may send until the last of them has ended",
    },
  },
  {
    kind: "access",
    name: "the mark of other hosts stays on their packets",
    file: "network/firewall/nftables/senders-table.ts",
    find: "rules: clearMark,",
    put: "rules: [],",
    noticedBy: {
      file: "test/kernel/overlay-firewall.test.ts",
      title:
        "nftables: a host that sends by its own address is let in by the set alone, whatever mark its packets bear",
    },
  },
  {
    kind: "access",
    name: "a mark that others set lets a machine without a lease in",
    file: "network/firewall/nftables/senders-table.ts",
    find: "        ...clearMark,\n",
    put: "",
    noticedBy: {
      file: "test/kernel/overlay-firewall.test.ts",
      title:
        "nftables: a host that sends by its own address is let in by the set alone, whatever mark its packets bear",
    },
  },
  {
    kind: "mark",
    name: "an address that another host's lease names is written",
    file: "overlay/claim.ts",
    find: 'if (holder !== undefined) return { kind: "shared", ip, holder };',
    put: "",
    noticedBy: {
      file: subnets,
      title: "the four things that break flannel cannot be written, whatever the configuration",
    },
  },
  {
    kind: "repair",
    name: "a peer's new MAC is not reported",
    file: "overlay/peers.ts",
    find: "v4: JSON.stringify(v4 ?? null),",
    put: 'v4: "",',
    noticedBy: {
      file: "test/unit/overlay/registry.test.ts",
      title:
        "of a peer that has changed the changes are reported; one that left is reported with all it had",
    },
  },
  {
    kind: "bound",
    name: "who has lost a race draws from as few subnets as before",
    file: "overlay/subnets.ts",
    find: "drawnFrom * widening ** Math.min(choice.losses ?? 0, mostWidenings);",
    put: "drawnFrom * widening ** 0;",
    noticedBy: {
      file: "test/unit/overlay/races.test.ts",
      title:
        "who has lost a race draws from more subnets, so that thousands who come at once find room",
    },
  },
];
