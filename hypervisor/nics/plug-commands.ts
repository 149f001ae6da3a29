import type { NicPlan, VmPlan } from "../driver.ts";
import { kindOf, type MachineKind, nicAddress } from "../argv/machine-kinds.ts";

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
    },
  } as const;
}

/** The lines that QEMU gets. */
export function describePlug(nic: NicPlan, vm: Pick<VmPlan, "arch">): readonly string[] {
  return Object.entries(plugCommands(nic, kindOf(vm))).map(([execute, args]) =>
    JSON.stringify({ execute, arguments: args }),
  );
}
