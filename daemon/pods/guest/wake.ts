import type { Wake } from "../../../guest-init/channel/guest.ts";
import type { RunningVm } from "../../../hypervisor/driver.ts";
import type { Clock } from "../../../core/clock.ts";

/** Where time and randomness come from. */
interface Sources {
  readonly clock: Clock;
  randomBytes(count: number): Uint8Array;
}

/** What a clone is sent before it runs: with its twins' randomness it would draw their keys. */
export const wakeOf = (vm: RunningVm, host: Sources, signal: AbortSignal): Wake => ({
  awakening: () => ({ entropy: freshEntropy(host), clockMs: host.clock.now() }),
  resume: () => vm.resume(signal),
});

/** Randomness for a guest, in hexadecimal. */
export const freshEntropy = (host: Pick<Sources, "randomBytes">): string =>
  Buffer.from(host.randomBytes(64)).toString("hex");
