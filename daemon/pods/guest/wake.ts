import type { Clock } from "../../../core/clock.ts";
import type { Twin, Wake } from "../../../guest-init/channel/guest.ts";
import { agentFeatures } from "../../../guest-init/protocol/configure.ts";
import type { RunningVm } from "../../../hypervisor/driver.ts";
import { KnownGuest } from "./template-guest.ts";

/** Where time and randomness come from. */
interface Sources {
  readonly clock: Clock;
  randomBytes(count: number): Uint8Array;
}

/** What a clone is sent before it runs: with its twins' randomness it would draw their keys. */
export function wakeOf(vm: RunningVm, host: Sources, signal: AbortSignal): Wake {
  const twin = twinOf(vm, host);
  return {
    ...(twin === undefined ? {} : { twin }),
    awakening: () => ({ entropy: freshEntropy(host), clockMs: host.clock.now() }),
    resume: () => vm.resume(signal),
  };
}

/** Who a clone is, when its template's agent has said so and takes a clone's names. */
function twinOf({ templateGuest, firstNic }: RunningVm, host: Sources): Twin | undefined {
  if (!(templateGuest instanceof KnownGuest)) return undefined;
  const { identity, nic } = templateGuest;
  if (identity.features?.includes(agentFeatures.twins) !== true) return undefined;
  return {
    identity: { ...identity, epoch: hex(host, 16) },
    machineId: hex(host, 16),
    nic: firstNic === undefined ? undefined : nic,
  };
}

/** Randomness for a guest, in hexadecimal. */
export const freshEntropy = (host: Pick<Sources, "randomBytes">): string => hex(host, 64);

const hex = (host: Pick<Sources, "randomBytes">, bytes: number): string =>
  Buffer.from(host.randomBytes(bytes)).toString("hex");
