import type { VmPlan } from "../../hypervisor/driver.ts";
import { openQemuDriver } from "../../hypervisor/qemu/driver.ts";

// Stands for a daemon: starts the VM of its argument, prints the record, and stays until it is
// killed.
const plan = JSON.parse(process.argv[2] ?? "") as VmPlan;
const driver = await openQemuDriver();
const vm = await driver.start(plan, new AbortController().signal);
process.stdout.write(JSON.stringify(vm.record));
