import { isPodnetError, type PodnetError } from "../../core/errors.ts";
import { type CniInterface, type PodPlan, staying, withCni } from "../pods/store/pod-plan.ts";
import type { Sandboxes, SandboxedPlan } from "../pods/interfaces/sandboxes.ts";
import { type Check, checker } from "./check.ts";

const asLeft = "as ADD left it";

/**
 * CNI plugins' check of a pod's setup: CHECK with the last result. Plugins are skipped where their
 * list disables CHECK, or is of a version without it, and in namespaces that another program has
 * set up.
 */
export async function askPlugins(
  pod: { readonly plan: PodPlan },
  sandboxes: Pick<Sandboxes, "check">,
  signal: AbortSignal,
): Promise<Check[]> {
  const checks: Check[] = [];
  for (const { position, cni } of withCni(staying(pod.plan.interfaces))) {
    if (cni.sandbox === undefined) continue;
    const { containerId, list } = cni.sandbox;
    const subject = `CHECK of ${String(list["name"])} for ${containerId}`;
    // The pod may have been stopped while others asked the same plugins.
    const now = (): SandboxedPlan | undefined =>
      setUp(withCni(pod.plan.interfaces).find((each) => each.position === position));
    const found = await saying(() => sandboxes.check(containerId, now, signal), signal);
    if (found !== undefined) checks.push(checker("cni")(subject, asLeft, found));
  }
  return checks;
}

function setUp(found: CniInterface | undefined): SandboxedPlan | undefined {
  if (found?.cni.sandbox === undefined || found.cni.sandbox.released === true) return undefined;
  return { ...found.cni, sandbox: found.cni.sandbox };
}

/** Undefined where no plugin was asked. */
async function saying(
  check: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    return (await check()) ? asLeft : undefined;
  } catch (error) {
    if (!isPodnetError(error) || signal.aborted) throw error;
    return complaint(error);
  }
}

const complaint = ({ message, details: { number } }: PodnetError): string =>
  number === undefined ? message : `${message} (code ${number})`;
