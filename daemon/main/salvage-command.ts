import { PodnetError } from "../../core/errors.ts";
import { openQemuDriver } from "../../hypervisor/qemu/driver.ts";
import type { Config } from "../config/config.ts";
import { HostQemu } from "./host-qemu.ts";
import { adoptMachines, removeOrphans, type SalvageParts, showState } from "../salvage/salvage.ts";

/**
 * `podnetd state ACTION`: for the day on which podnetd refuses to start, with podnetd not running.
 */
export async function salvage(config: Config, action: string, yes: boolean): Promise<void> {
  await using driver = await openQemuDriver({ arch: config.qemu.arch, kvm: "auto" });
  const parts: SalvageParts = {
    config,
    driver,
    confinement: async () => (await HostQemu.open(config)).confinement,
    say: (line) => process.stdout.write(`${line}\n`),
  };
  switch (action) {
    case "show":
      return showState(parts);
    case "adopt":
      return adoptMachines(parts);
    case "remove":
      if (yes) return await removeOrphans(parts);
      showState(parts);
      throw new PodnetError("INVALID_ARGUMENT", "This ends running VMs", {
        hint: "Use --yes to confirm; podnetd state adopt keeps them",
      });
    default:
      throw new PodnetError("INVALID_ARGUMENT", "Unknown action", {
        hint: "Use show, adopt or remove",
      });
  }
}
