import { bootId } from "./proc.ts";

/** A moment that all processes of a host agree on, whatever is done to its clock. */
export interface BootMoment {
  /** /proc/sys/kernel/random/boot_id: which boot of the host it is in. */
  readonly boot: string;
  /** CLOCK_MONOTONIC, microseconds: of this boot, without the time that the host was suspended. */
  readonly us: number;
}

/** A process does not outlive a boot, so its id is read once. */
let boot: string | undefined;

/** The moment that is now. (libuv's uv_hrtime reads CLOCK_MONOTONIC.) */
export const bootMoment = (): BootMoment => ({
  boot: (boot ??= bootId()),
  us: Number(process.hrtime.bigint() / 1000n),
});
