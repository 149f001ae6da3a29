import type { Fault } from "../fault.ts";

const plan = "test/unit/network/overlay/plan.test.ts";
const changes = {
  file: plan,
  title:
    "a delta of peers makes of what was wanted what a look at all of them would, whoever has what another has",
};
const follower = "test/unit/daemon/overlays/kernel-follower.test.ts";
const doubted = {
  file: plan,
  title:
    "a peer that would lead this host's own traffic, or more than its part, elsewhere is refused",
};
const made = {
  file: plan,
  title:
    "whatever there is of peers, the changes make it what is wanted; no route comes before what it needs",
};
const follow = "test/unit/etcd/follow.test.ts";

/**
 * The other hosts of an overlay: what is heard of them, whom of them to believe, and what the
 * kernel gets.
 */
export const peersFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "changes are applied alone although another peer is refused",
    file: "network/overlay/delta.ts",
    find: "wanted.refused.length + to.refused.length === 0 &&",
    put: "",
    noticedBy: changes,
  },
  {
    kind: "lock",
    name: "a new peer takes what a remaining peer has",
    file: "network/overlay/delta.ts",
    find: "if (all?.has(key) === true && less?.has(key) !== true) return false;",
    put: "if (all === less && more?.has(key) === false) return false;",
    noticedBy: changes,
  },
  {
    kind: "release",
    name: "who has gone stays wanted",
    file: "network/overlay/delta.ts",
    find: "for (const key of less.keys()) all.delete(key);",
    put: "",
    noticedBy: changes,
  },
  {
    kind: "bound",
    name: "for one peer that changed all are looked at",
    file: "daemon/overlays/kernel/kernel-follower.ts",
    find: "if (!this.#all) {",
    put: "if (!this.#all && name === undefined) {",
    noticedBy: {
      file: follower,
      title:
        "what changes of peers reaches the kernel as that and nothing else, all of it at first",
    },
  },
  {
    kind: "release",
    name: "a peer that goes before its turn is made all the same",
    file: "daemon/overlays/kernel/peer-deltas.ts",
    find: "if (!added.delete(peerKey(each))) removed.set(peerKey(each), each);",
    put: "removed.set(peerKey(each), each);",
    noticedBy: {
      file: follower,
      title: "what comes and goes before its turn is in no delta",
    },
  },
  {
    kind: "record",
    name: "a delta of peers that are not known is taken for done",
    file: "network/overlay/followed.ts",
    find: "if (!peers.delete(peerKey(peer))) return false;",
    put: "peers.delete(peerKey(peer));",
    noticedBy: {
      file: plan,
      title:
        "a delta that does not fit to the peers that are known is refused, and so are peers that look alike",
    },
  },
  {
    kind: "access",
    name: "a peer outside of the overlay gets a route",
    file: "network/model/refuse-peer.ts",
    find: "if (!isWithin(bits, network)) return",
    put: "if (bits.length < network.length) return",
    noticedBy: doubted,
  },
  {
    kind: "access",
    name: "a peer with this host's own address gets a route",
    file: "network/model/refuse-peer.ts",
    find: "if (publicIp === side.publicIp) return",
    put: "if (subnet === side.subnet) return",
    noticedBy: doubted,
  },
  {
    kind: "access",
    name: "a peer with this host's own MAC gets a route",
    file: "network/overlay/wanted.ts",
    find: "if (mac === own) return",
    put: "if (mac === undefined) return",
    noticedBy: doubted,
  },
  {
    kind: "record",
    name: "routes come before what they need",
    file: "network/overlay/plan.ts",
    find: "return [...gone, ...come, ...left];",
    put: "return [...gone, ...come.toReversed(), ...left];",
    noticedBy: made,
  },
  {
    kind: "release",
    name: "forwarding entries of who has gone stay",
    file: "network/overlay/plan.ts",
    find: "if (!wanted.fdb.has(mac)) left.push(",
    put: "if (mac === undefined) left.push(",
    noticedBy: made,
  },
  {
    kind: "repair",
    name: "an etcd that was put back is followed as if nothing were",
    file: "etcd/follow.ts",
    find: "if (now.cluster !== known.cluster || now.revision < known.revision) return false;",
    put: "",
    noticedBy: {
      file: follow,
      title: "another etcd, and one that has gone back, are listed; a member that is behind is not",
    },
  },
  {
    kind: "record",
    name: "what was reported already is reported again",
    file: "etcd/follow.ts",
    find: "const from = this.#known.revision + 1n;",
    put: "const from = this.#known.revision;",
    noticedBy: {
      file: follow,
      title:
        "it goes on after the last revision it has reported, having looked whether etcd has the rest",
    },
  },
  {
    kind: "bound",
    name: "an etcd that is away is reported at each try",
    file: "etcd/follow.ts",
    find: "if (this.#stale?.code === thrown.code) return undefined;",
    put: "",
    noticedBy: {
      file: follow,
      title:
        "a failure is reported once with its reason, since when, and tried again after longer pauses",
    },
  },
  {
    kind: "bound",
    name: "the longer an etcd is away, the rarer it is asked",
    file: "etcd/follow.ts",
    find: "const longest = Math.min(most, firstPauseMs * 2 ** failures);",
    put: "const longest = firstPauseMs * 2 ** failures;",
    noticedBy: {
      file: follow,
      title:
        "a failure is reported once with its reason, since when, and tried again after longer pauses",
    },
  },
  {
    kind: "bound",
    name: "an attempt at etcd that ends without an error is followed by the next at once",
    file: "etcd/follow.ts",
    find: "const longest = Math.min(most, firstPauseMs * 2 ** failures);",
    put: "if (most === longestPauseMs.answering) failures = -1;\n    const longest = Math.min(most, firstPauseMs * 2 ** failures);",
    noticedBy: {
      file: follow,
      title: "attempts that end soon are failures, whatever they heard; one that lasted is none",
    },
  },
  {
    kind: "bound",
    name: "an etcd that refuses every transaction is asked without a pause",
    file: "overlay/lease-events.ts",
    find: "failures > fewRefusals ? pauseAfter(failures - fewRefusals, draw) : 0;",
    put: "0 * draw * fewRefusals;",
    noticedBy: {
      file: "test/unit/etcd/broken.test.ts",
      title: "an etcd that answers at once and writes nothing is asked less and less",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "routes of a former network stay until the next start",
    file: "network/overlay/overlays.ts",
    find: "    await apply(await this.#leftRoutes(desired));\n",
    put: "",
    noticedBy: {
      file: "test/kernel/overlay-routes.test.ts",
      title: "host-gw: routes alone, healed, swept, and refused for a foreign address",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "an overlay's network that covers the host's own LAN is taken",
    file: "overlay/drive-lease.ts",
    find: "return { ...event, refusal };",
    put: "return event;",
    noticedBy: {
      file: "test/unit/overlay/overlap.test.ts",
      title: "a configuration that is refused is reported, and the last good one stays in force",
    },
    slow: true,
  },
];
