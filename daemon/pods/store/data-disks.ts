import type { HotDiskPlan } from "../../../hypervisor/driver.ts";

/** A disk of a pod that was plugged in. */
export interface DataDiskPlan extends HotDiskPlan {
  /** podnetd made the file, as large as this, and removes it with the disk. */
  readonly madeMib?: number;
  /** What is under way; a change that is cut short ends with the disk removed, whichever it was. */
  readonly change?: "adding" | "removing";
}

interface WithDisks {
  readonly disks?: readonly DataDiskPlan[];
}

/** The files that podnetd made for disks. */
export const madeFiles = (disks: readonly DataDiskPlan[] = []): string[] =>
  disks.flatMap(({ path, madeMib }) => (madeMib === undefined ? [] : [path]));

/** The disks whose change is under way. */
export const changingDisks = ({ disks = [] }: WithDisks): DataDiskPlan[] =>
  disks.filter(({ change }) => change !== undefined);

/** The plan with this disk, in the place of the one of its name. */
export const withDisk = <P extends WithDisks>(plan: P, disk: DataDiskPlan): P => ({
  ...plan,
  disks: [...(plan.disks ?? []).filter(({ name }) => name !== disk.name), disk],
});

/** The plan without the disk of this name. */
export const withoutDisk = <P extends WithDisks>(plan: P, name: string): P => ({
  ...plan,
  disks: (plan.disks ?? []).filter((each) => each.name !== name),
});
