import { isPodnetError } from "../../core/errors.ts";
import type { Guest } from "../../guest-init/channel/guest.ts";
import { type PodPlan, staying } from "../pods/store/pod-plan.ts";
import { type Check, checker } from "./check.ts";
import { programIn } from "./guest-program.ts";
import { loopbackAddresses } from "./loopback-addresses.ts";

/**
 * The addresses of a pod on lo, as a program in its guest finds them: `ip`, which is not podnet's.
 * Skipped for a guest without that program, and for a pod without such addresses.
 */
export async function checkLoopback(
  { interfaces }: Pick<PodPlan, "interfaces">,
  guest: Guest | undefined,
  signal: AbortSignal,
): Promise<Check[]> {
  const wanted = staying(interfaces)
    .filter(({ nic }) => nic === undefined)
    .flatMap(({ addresses }) => addresses);
  if (wanted.length === 0 || guest === undefined) return [];
  const check = checker("guest");
  let said: string | undefined;
  try {
    said = await programIn(guest, ["ip", "-o", "address", "show", "dev", "lo"], signal);
  } catch (error) {
    if (!isPodnetError(error) || signal.aborted) throw error;
    return [check("addresses on lo", wanted.join(", "), error.message)];
  }
  if (said === undefined) return [];
  const held = loopbackAddresses(said);
  const more = held.filter((each) => !(wanted as readonly string[]).includes(each));
  return [
    ...wanted.map((each) => check(`address ${each} on lo`, true, held.includes(each))),
    check("addresses on lo beyond the record", undefined, more.join(", ")),
  ];
}
