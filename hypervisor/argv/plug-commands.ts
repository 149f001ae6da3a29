import type { NicPlan, VmPlan } from "../driver.ts";
import { kindOf, type MachineKind, nicAddress } from "./machine-kinds.ts";

/** Of a NIC. Each takes memory of the host and of the guest. */
const mostQueues = 8;

/**
 * How many queues NICs have that are plugged into a machine: one for each of its processors. Clones
 * have the NICs of their template, and of other programs' machines podnet knows too little. Pure.
 */
export const queuesOf = ({
  vcpu,
  factory,
  attached,
}: Pick<VmPlan, "vcpu" | "factory" | "attached">): number =>
  factory === undefined && attached === undefined ? Math.min(vcpu, mostQueues) : 1;

/** The names under which the descriptors of a tap's queues are handed over. */
export const fdNames = ({ fdName }: Pick<NicPlan, "fdName">, queues: number): readonly string[] =>
  Array.from({ length: queues }, (_, queue) => (queue === 0 ? fdName : `${fdName}-q${queue}`));

/**
 * The QMP commands that plug a NIC, in order; the descriptor of each queue of the tap travels with
 * a `getfd`. The guest's driver uses as many queues as it has processors. Pure.
 */
export function plugCommands(nic: NicPlan, kind: MachineKind, queues = 1) {
  const { bus, addr } = nicAddress(nic, kind);
  const names = fdNames(nic, queues);
  const many = queues > 1;
  return {
    getfd: names.map((fdname) => ({ fdname })),
    netdev_add: {
      type: "tap",
      id: nic.netdevId,
      ...(many ? { fds: names.join(":") } : { fd: nic.fdName }),
    },
    device_add: {
      driver: "virtio-net-pci",
      id: nic.nicId,
      bus,
      // QEMU reads a bare number here as hexadecimal (7.2 rejects "20").
      addr: `0x${addr.toString(16)}`,
      netdev: nic.netdevId,
      mac: nic.mac,
      // No boot ROM: nothing boots from a NIC that is plugged later, and the file may be missing.
      romfile: "",
      // Only a machine that has moved announces its NICs, and podnet moves none. QEMU 7.2 ends with
      // SIGSEGV when a clone resets a NIC that could (hw/net/virtio-net.c): `restoreState` has it
      // announce nothing, which frees the timer that a reset stops.
      guest_announce: false,
      // An interrupt for each direction of each queue, one for the control queue, one for changes.
      ...(many ? { mq: true, vectors: 2 * queues + 2 } : {}),
    },
  } as const;
}

/** The lines that QEMU gets. */
export function describePlug(
  nic: NicPlan,
  vm: Pick<VmPlan, "arch">,
  queues = 1,
): readonly string[] {
  const { getfd, ...others } = plugCommands(nic, kindOf(vm), queues);
  const asked = [...getfd.map((args) => ["getfd", args] as const), ...Object.entries(others)];
  return asked.map(([execute, args]) => JSON.stringify({ execute, arguments: args }));
}
