import type { Fault } from "../fault.ts";

const inspect = "test/kernel/network-inspect.test.ts";
const watch = "test/kernel/daemon-drift-watch.test.ts";

const ruled = "test/kernel/drift-rules.test.ts";
const oneBack = (driver: string): string =>
  `one rule of 48 pods is back after the next look: ${driver}`;

/** What others change: noticed, put right, not fought over. */
export const driftFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "a link of a port's name is healed though it is another's",
    file: "network/bridge/inspect.ts",
    find: "refuseUnmarked(ports, changes);",
    put: "void refuseUnmarked;",
    noticedBy: {
      file: inspect,
      title: "what is no port any more is one again; what bears no mark is not taken for it",
    },
  },
  {
    kind: "repair",
    name: "a look compares the rules of a few pods alone, with iptables",
    file: "network/firewall/iptables/deviating.ts",
    find: "return pods.filter((pod) => {",
    put: "return pods.slice(1, 17).filter((pod) => {",
    noticedBy: { file: ruled, title: oneBack("iptables-nft alone") },
    slow: true,
  },
  {
    kind: "repair",
    name: "a look compares the rules of a few pods alone, with nftables",
    file: "network/firewall/nftables/driver.ts",
    find: "return fragments.filter((fragment) => {",
    put: "return fragments.slice(1, 17).filter((fragment) => {",
    noticedBy: { file: ruled, title: oneBack("nftables") },
    slow: true,
  },
  {
    kind: "repair",
    name: "the kernel's events are not heeded",
    file: "daemon/drift/drift.ts",
    find: "this.#suspects.links.add(event.link.name);",
    put: "",
    noticedBy: {
      file: watch,
      title: "events of our links bring one look at links, those of others none",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "what the kernel sends no event for is not looked at",
    file: "daemon/drift/drift.ts",
    find: "if (now === this.#clean) return false;",
    put: "if (now === this.#clean || this.#clean !== undefined) return false;",
    noticedBy: { file: watch, title: "an idle host is looked at by its fingerprint alone" },
    slow: true,
  },
  {
    kind: "repair",
    name: "what cannot be healed is not looked at again",
    file: "daemon/drift/degraded-parts.ts",
    find: "this.#conditions.fail(part.key, error, now);",
    put: "{ sinceMs: now };",
    noticedBy: {
      file: watch,
      title: "what cannot be healed is tried at every look, and reported once",
    },
  },
  {
    kind: "repair",
    name: "a bridge is healed without the rules that went with it",
    file: "daemon/drift/drift.ts",
    find: "if (networks.deviated && !rules) {",
    put: "if (networks.deviated && rules && !rules) {",
    noticedBy: {
      file: watch,
      title: "rules are looked at with a bridge that another program took, not a look later",
    },
  },
  {
    kind: "repair",
    name: "what a look that breaks off has not come to is forgotten",
    file: "daemon/drift/drift.ts",
    find: "Object.assign(this.#suspects, { networks: true, ports: true });",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/drift/drift.test.ts",
      title: "what a look that breaks off has not come to is looked at next time",
    },
  },
  {
    kind: "lock",
    name: "what is taken down on purpose is healed",
    file: "daemon/drift/drift.ts",
    find: "const resume = await this.#looks.pause();",
    put: "const resume = (): void => {};",
    noticedBy: { file: watch, title: "nothing is looked at while it rests, and all afterwards" },
    slow: true,
  },
  {
    kind: "bound",
    name: "podnet fights with whoever keeps undoing its repairs",
    file: "daemon/reconcile/repair-backoff.ts",
    find: "known.untilMs = nowMs + known.pauseMs;",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/drift/drift.test.ts",
      title: "what keeps being undone is repaired less and less often, but it is",
    },
  },
  {
    kind: "repair",
    name: "a rule that others flushed is not seen",
    file: "linux/nftables/nftables-generation.ts",
    find: "return view.getUint32(at + 4, false);",
    put: "return view.getUint32(at, true);",
    noticedBy: {
      file: inspect,
      title: "its rules are flushed: seen without being touched, then healed",
    },
  },
  {
    kind: "repair",
    name: "events that were lost are not made up for",
    file: "linux/netlink/rtnetlink-events.ts",
    find: 'guard("netlink", () => this.#onResync());',
    put: "",
    noticedBy: {
      file: "test/kernel/linux-rtnetlink.test.ts",
      title: "too many events at once are counted, followed by a resync, and the watch goes on",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a netlink message may announce more than there is",
    file: "linux/rtnetlink/message.ts",
    find: "if (size < headerSize || offset + size > length)",
    put: "if (size < headerSize)",
    noticedBy: {
      file: "test/unit/linux/rtnetlink/codec.test.ts",
      title: "a message with a length that lies is refused",
    },
  },
];
