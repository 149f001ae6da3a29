import type { Fault } from "../fault.ts";

const forwarder = "test/kernel/ports-forwarder.test.ts";
const held = "test/kernel/ports-held.test.ts";
const planned = "test/unit/plan-published.test.ts";

/** Published ports: who may come in, who has which, and what of a connection is passed on. */
export const portsFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a published port forwards what does not come by loopback",
    file: "daemon/ports/tcp-port.ts",
    find: "if (isLocal(client)) forward(client, served);",
    put: "if (isLocal(client) || !client.destroyed) forward(client, served);",
    noticedBy: {
      file: forwarder,
      title:
        "what does not come by loopback is not forwarded, though a port at every address is held",
    },
  },
  {
    kind: "access",
    name: "without firewall rules ports are published to the world all the same",
    file: "daemon/pod/plan-published.ts",
    find: "if (!firewall && hostIp !== undefined",
    put: "if (!firewall && firewall && hostIp !== undefined",
    noticedBy: { file: planned, title: "refused: no rules (*:80:80)" },
  },
  {
    kind: "mark",
    name: "a host port of another pod's is given once more",
    file: "daemon/pod/plan-published.ts",
    find: "if (holder === undefined) return hostPort;",
    put: "if (holder === undefined || hostPort > 0) return hostPort;",
    noticedBy: {
      file: planned,
      title: "a port of another pod's is refused with its name, where the addresses meet",
    },
  },
  {
    kind: "mark",
    name: "a chosen host port is one that a program has",
    file: "daemon/pod/choose-port.ts",
    find: "for (const each of bound.filter(concerns)) busy.add(each.hostPort);",
    put: "",
    noticedBy: {
      file: planned,
      title: "ports are chosen from where the search starts, past pods, programs and the pod's own",
    },
  },
  {
    kind: "undo",
    name: "of ports that cannot all be held some stay held",
    file: "daemon/ports/held-ports.ts",
    find: "for (const key of added) this.#letGo(pod, key);",
    put: "",
    noticedBy: {
      file: held,
      title: "all or none: of a range with one port taken nothing stays held",
    },
  },
  {
    kind: "release",
    name: "an unpublished port's connections go on",
    file: "daemon/ports/held-ports.ts",
    find: "pod.flows.cut(key);",
    put: "",
    noticedBy: {
      file: forwarder,
      title: "letting go of a port ends what passes by it, and nothing of the pod's other ports",
    },
  },
  {
    kind: "bound",
    name: "a pod may have any number of forwarded connections",
    file: "daemon/ports/flows.ts",
    find: "if (this.#ends.size >= mostFlows) {",
    put: "if (this.#ends.size >= 100 * mostFlows) {",
    noticedBy: {
      file: forwarder,
      title: "connections beyond the bound are refused, and one that ends makes room",
    },
  },
  {
    kind: "repair",
    name: "a port that somebody else had is never tried again",
    file: "daemon/ports/held-ports.ts",
    find: "if (place !== undefined && place.held === undefined)\n",
    put: "if (place !== undefined && place.held === undefined && place.error === undefined)\n",
    noticedBy: {
      file: held,
      title: "what is the pod's by its row waits for who has it now, and is held once that ends",
    },
  },
];
