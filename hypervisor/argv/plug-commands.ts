import type { NicPlan, VmPlan } from "../driver.ts";
import { kindOf, type MachineKind, nicAddress } from "./machine-kinds.ts";

/** The QMP commands that plug a NIC, in order; the tap's descriptor travels with `getfd`. Pure. */
export function plugCommands(nic: NicPlan, kind: MachineKind) {
  const { bus, addr } = nicAddress(nic, kind);
  return {
    getfd: { fdname: nic.fdName },
    netdev_add: { type: "tap", id: nic.netdevId, fd: nic.fdName },
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
    },
  } as const;
}

/** The lines that QEMU gets. */
export function describePlug(nic: NicPlan, vm: Pick<VmPlan, "arch">): readonly string[] {
  return Object.entries(plugCommands(nic, kindOf(vm))).map(([execute, args]) =>
    JSON.stringify({ execute, arguments: args }),
  );
}
