import type { PodnetError } from "../../core/errors.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import type { Deviation } from "../deviation.ts";
import type { InsideNetlink } from "./kernel.ts";

/** What is not as it should be, and what the kernel is to be asked to make it so. */
export interface Step {
  readonly deviation: Deviation;
  readonly request: Request;
}

/** Takes all steps in order, and throws the first failure: later ones may need what earlier ones did. */
export async function takeSteps(
  steps: readonly Step[],
  netlink: Pick<InsideNetlink, "tryBatch">,
): Promise<void> {
  if (steps.length === 0) return;
  const outcomes = await netlink.tryBatch(steps.map(({ request }) => request));
  const failure: PodnetError | undefined = outcomes.find((outcome) => outcome !== undefined);
  if (failure !== undefined) throw failure;
}
