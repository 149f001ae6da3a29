import type { Fault } from "../fault.ts";

const forwarder = "test/kernel/ports-forwarder.test.ts";
const held = "test/kernel/ports-held.test.ts";
const planned = "test/unit/daemon/published/plan.test.ts";
const flows = "test/kernel/firewall-flows.test.ts";
const publishing = "test/unit/daemon/pods/publish.test.ts";
const started = "test/vm/standin-start.test.ts";

/** Published ports: who may come in, who has which, and what of a connection is passed on. */
export const portsFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a published port forwards what does not come by loopback",
    file: "daemon/published/tcp-port.ts",
    find: "if (isLocal(client)) forward(client, served);",
    put: "if (isLocal(client) || !client.destroyed) forward(client, served);",
    noticedBy: {
      file: forwarder,
      title:
        "what does not come by loopback is not forwarded, though a port at every address is held",
    },
  },
  {
    kind: "bound",
    name: "the address a connection came to is taken to have no zone",
    file: "daemon/published/tcp-port.ts",
    find: "isIp(localAddress) && ",
    put: "",
    // The listener's handler throws outside of any test.
    shows: "end",
    noticedBy: {
      file: forwarder,
      title: "a connection to a link-local address of the host is refused, and the port goes on",
    },
  },
  {
    kind: "access",
    name: "without firewall rules ports are published to the world all the same",
    file: "daemon/published/plan-published.ts",
    find: "if (!firewall && hostIp !== undefined",
    put: "if (!firewall && firewall && hostIp !== undefined",
    noticedBy: { file: planned, title: "refused: no rules (*:80:80)" },
  },
  {
    kind: "mark",
    name: "unpublish of a port that was never published is silent",
    file: "daemon/pods/lifecycle/publish.ts",
    find: "(published.some((entry) => isMeant(entry, one)) ? [] : [i])",
    put: "(published.length > 0 ? [] : [i])",
    noticedBy: {
      file: publishing,
      title: "an unpublish answers what it removed and what was not published",
    },
  },
  {
    kind: "mark",
    name: "a host port of another pod's is given once more",
    file: "daemon/published/plan-published.ts",
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
    file: "daemon/published/choose-port.ts",
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
    file: "daemon/published/held-ports.ts",
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
    file: "daemon/published/held-ports.ts",
    find: "pod.flows.cut(key);",
    put: "",
    noticedBy: {
      file: forwarder,
      title: "letting go of a port ends what passes by it, and nothing of the pod's other ports",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "release",
    name: "a connection that a pod has not taken outlives its port",
    file: "daemon/published/tcp-port.ts",
    find: "for (const each of ends) resetConnection(each);",
    put: "resetConnection(client);",
    noticedBy: {
      file: forwarder,
      title: "what a pod has not taken yet ends with its port, and leaves nothing open",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "flows of a port that is unpublished go on",
    file: "network/bridge/open-host-network.ts",
    find: "await endWithdrawn(target.of, this.#view.conntrack);",
    put: "await endWithdrawn({ ...target.of, withdrawn: [] }, this.#view.conntrack);",
    noticedBy: {
      file: flows,
      title:
        "nftables: a flow that never pauses ends when its port is unpublished, and those of other ports go on",
    },
  },
  {
    kind: "mark",
    name: "with a port's flows those of the pod's other ports end",
    file: "network/bridge/flows.ts",
    find: "return nth >= 0 && nth < count && reply.sourcePort === podPort + nth;",
    put: "return nth > -100 && nth < 100;",
    noticedBy: {
      file: "test/unit/network/flows.test.ts",
      title: "a flow came by a published port when protocol, addresses and both ports say so",
    },
  },
  {
    kind: "release",
    name: "flows of a pod that has gone are left to who has its address next",
    file: "network/bridge/open-host-network.ts",
    find: "await endFlows(target.of, ",
    put: "await endFlows([], ",
    noticedBy: {
      file: flows,
      title: "a pod that is removed leaves no flow of its addresses, whoever began it",
    },
  },
  {
    kind: "repair",
    name: "flows of a port that was unpublished as podnetd ended go on",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "if ((ports.withdrawn ?? []).length > 0)",
    put: "if ((ports.withdrawn ?? []).length > 99)",
    noticedBy: {
      file: "test/vm/standin-flows.test.ts",
      title: "an unpublish that is stopped by kill before flows are ended is completed",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a start looks for connections of each pod that does not run",
    file: "daemon/pods/pods.ts",
    find: "sweeping: true,",
    put: "sweeping: false,",
    noticedBy: {
      file: "test/unit/daemon/pods/recover.test.ts",
      title: "stopped pods without remains cost a start one look together, and others one each",
    },
  },
  {
    kind: "undo",
    name: "a start leaves the rules of pods whose machines have ended",
    file: "daemon/main/node.ts",
    find: "records.listWithMachine().map(({ id }) => id)",
    put: "records.list().map(({ id }) => id)",
    noticedBy: {
      file: started,
      title:
        "what pods have published that ended meanwhile goes in one commit, and of those that run it stays",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a publish takes a port that another pod was given meanwhile",
    file: "daemon/pods/lifecycle/publish.ts",
    find: "    stillFree();\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/pods/publish.test.ts",
      title: "a port that another pod is given while it is being held is refused, and let go of",
    },
  },
  {
    kind: "bound",
    name: "a pod may have any number of forwarded connections",
    file: "daemon/published/flows.ts",
    find: "if (this.#ends.size >= mostFlows) {",
    put: "if (this.#ends.size >= 100 * mostFlows) {",
    noticedBy: {
      file: forwarder,
      title: "connections beyond the bound are refused, and one that ends makes room",
    },
  },
  {
    kind: "repair",
    name: "a port that another program held is never tried again",
    file: "daemon/published/held-ports.ts",
    find: "if (place !== undefined && place.held === undefined)\n",
    put: "if (place !== undefined && place.held === undefined && place.error === undefined)\n",
    noticedBy: {
      file: held,
      title: "what is the pod's by its row waits for who has it now, and is held once that ends",
    },
  },
  {
    kind: "mark",
    name: "podnetd's port for a runtime's loopback port is one that a program has",
    file: "daemon/containers/plan-loopback.ts",
    find: "        snapshot,\n        mine,",
    put: "        { ...snapshot, bound: [] },\n        mine,",
    noticedBy: {
      file: "test/unit/daemon/containers/plan.test.ts",
      title:
        "the plan of a container: ports that its runtime holds: loopback leads to ports of podnetd's, ::1 where it has an IPv6 address",
    },
  },
  {
    kind: "release",
    name: "flows of a loopback port go on when it leads nowhere any more",
    file: "network/bridge/flows.ts",
    find: "  if (redirects.length === 0) return;",
    put: "  if (redirects.length >= 0) return;",
    noticedBy: {
      file: "test/kernel/attachment-published.test.ts",
      title: "a loopback port leads to another one, and its flows end with it, by nftables",
    },
  },
  {
    kind: "repair",
    name: "podnetd does not listen for a runtime's loopback ports",
    file: "daemon/containers/attachment-plan.ts",
    find: "(portsHeldByRuntime === true ? forwarders : published)",
    put: "(portsHeldByRuntime === true && forwarders !== published ? undefined : published)",
    noticedBy: {
      file: "test/cni/loopback.test.ts",
      title:
        "a port that the runtime holds is reached at 127.0.0.1 and ::1, by TCP and UDP, until DEL; by nftables",
    },
    slow: true,
  },
];
