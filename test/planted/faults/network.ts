import type { Fault } from "../fault.ts";

const networkHostPorts = "test/kernel/network-host-ports.test.ts";
const memory = "test/unit/network/memory.test.ts";
const diff = "test/unit/network/diff.test.ts";
const host = "test/kernel/network-host.test.ts";

/**
 * The host's network: one change at a time, others' left alone, no way past what is let through.
 */
export const networkFaults: readonly Fault[] = [
  {
    kind: "lock",
    name: "changes of the network are made side by side",
    file: "network/kernel/queue.ts",
    find: "this.#tail = result.catch(() => {});",
    put: "",
    noticedBy: {
      file: memory,
      title: "Tasks run one at a time in their order, past failures; an aborted one is not started",
    },
  },
  {
    kind: "record",
    name: "a setting is changed before what it was is stored",
    file: "network/kernel/memory.ts",
    find: "this.#store(value);\n    this.#value = value;",
    put: "this.#value = value;\n    this.#store(value);",
    noticedBy: { file: memory, title: "A store that fails leaves the memory as it was" },
  },
  {
    kind: "record",
    name: "forwarding is switched on before what it was is stored",
    file: "network/bridge/forward.ts",
    find: "const links = await netlink.links();",
    put: "sysctl.write(key, to);\n  const links = await netlink.links();",
    noticedBy: { file: host, title: "A store that cannot remember prevents the change" },
  },
  {
    kind: "mark",
    name: "what another boot remembered is believed",
    file: "network/kernel/memory.ts",
    find: "this.#value = initial?.host === host ? initial : {",
    put: "this.#value = initial !== undefined ? { ...initial, host } : {",
    noticedBy: {
      file: memory,
      title: "What is remembered is stored before it counts, once, and is void on another host",
    },
  },
  {
    kind: "undo",
    name: "the way down leaves forwarding on",
    file: "network/bridge/forward.ts",
    find: 'if (to !== "1") {\n    sysctl.write(key, to);',
    put: 'if (to !== "1") {',
    noticedBy: {
      file: networkHostPorts,
      title: "Taking away goes on past what fails, and reports all of it",
    },
  },
  {
    kind: "undo",
    name: "what the kernel changes along with forwarding stays changed",
    file: "network/bridge/forward.ts",
    find: "memory.rememberForward(family, from, alongside);",
    put: "void alongside;\n  memory.rememberForward(family, from, []);",
    noticedBy: {
      file: "test/kernel/network-foreign.test.ts",
      title: "what the kernel changes along with ip_forward is put back with it",
    },
  },
  {
    kind: "undo",
    name: "an adopted bridge stays up",
    file: "network/bridge/apply.ts",
    find: "if (up) memory.rememberRaised(name);",
    put: "",
    noticedBy: {
      file: "test/kernel/network-bridges.test.ts",
      title: "A bridge that fits is adopted: never marked, never deleted, and down again if it was",
    },
  },
  {
    kind: "mark",
    name: "whatever is in podnet's group of links is swept away",
    file: "network/bridge/sweep.ts",
    find: "return owner === undefined ? isUnfinished(link, hostSeed) : isOrphan(owner, known);",
    put: "if (owner === undefined) return isUnfinished(link, hostSeed) || link.group === 73;\n      return isOrphan(owner, known);",
    noticedBy: { file: diff, title: "A sweep names only what bears our mark and has no row" },
  },
  {
    kind: "mark",
    name: "an alias that begins like ours is a mark",
    file: "network/model/ownership.ts",
    find: "(network|chain|overlay|attachment|service):([A-Za-z0-9_.-]+)",
    put: "(network|chain|overlay|attachment|service):([A-Za-z0-9_. \\n-]+)",
    noticedBy: {
      file: diff,
      title: "Marks are read back as they were written, and nothing else is a mark",
    },
  },
  {
    kind: "mark",
    name: "a tap that bears another pod's mark is taken",
    file: "network/bridge/diff-pod.ts",
    find: "if (tap.alias !== undefined && tap.alias !== port.alias) throw taken(port, tap.alias);",
    put: "void taken;",
    noticedBy: {
      file: networkHostPorts,
      title: "A missing tap, a missing bridge and a foreign tap name are told apart",
    },
  },
  {
    kind: "mark",
    name: "foreign links in the pending-delete group are deleted with ours",
    file: "network/bridge/apply.ts",
    find: "if (members.every((link) => owned.includes(link.index) || isMarked(link))) {",
    put: "{",
    noticedBy: {
      file: networkHostPorts,
      title:
        "A sweep ends what has no row, dozens at once, and spares the rest and what bears no mark",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a bridge takes any number of ports",
    file: "network/model/port-limit.ts",
    find: "if (room.used + room.wanted <= maxBridgePorts) return;",
    put: "if (room.used <= maxBridgePorts) return;",
    noticedBy: { file: diff, title: "Room for ports is refused before it is over" },
  },
  {
    kind: "access",
    name: "the bridge of a network without IPv6 speaks it",
    file: "network/bridge/diff-network.ts",
    find: 'value: hasIpv6 ? "0" : "1" }',
    put: 'value: hasIpv6 ? "0" : "0" }',
    noticedBy: { file: diff, title: "From states of the host to changes, golden" },
  },
  {
    kind: "access",
    name: "a guest may become the host's IPv6 router",
    file: "network/bridge/diff-network.ts",
    find: 'accept_ra`, value: "0" },',
    put: 'accept_ra`, value: "1" },',
    noticedBy: { file: diff, title: "From states of the host to changes, golden" },
  },
  {
    kind: "access",
    name: "the host's end of a port speaks IPv6 to its guest",
    file: "network/bridge/apply.ts",
    find: "changeLink(link, { linkLocal: false }),",
    put: "changeLink(link, {}),",
    noticedBy: {
      file: networkHostPorts,
      title: "Ports come and go and the bridge keeps its MAC and MTU",
    },
  },
  {
    kind: "access",
    name: "an isolated port is up before it is isolated, and never is",
    file: "network/bridge/apply.ts",
    find: "{ ...(isolated ? { isolated } : {}), ...given",
    put: "{ ...given",
    noticedBy: {
      file: "test/kernel/network-traffic.test.ts",
      title:
        "Isolated ports exchange nothing; of an isolated network not by way of the gateway either",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "a bridge takes the MAC of its lowest port",
    file: "network/bridge/diff-network.ts",
    find: "...(bridge.mac === mac ? {} : { mac }),",
    put: "",
    noticedBy: { file: diff, title: "From states of the host to changes, golden" },
  },
  {
    kind: "release",
    name: "the host believes in the MAC an address had before",
    file: "network/bridge/diff-pod.ts",
    find: "changes.push(...forgetNeighbours([port], bridge.index));",
    put: "",
    noticedBy: {
      file: diff,
      title:
        "A port is marked, cleared of its address's past and comes up last; when it is so, nothing is done",
    },
  },
];
