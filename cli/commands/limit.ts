import type { Command } from "commander";
import { PlanSchema, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import {
  addLimitFlags,
  type LimitParts,
  limitsFrom,
  limitsText,
  namesLimits,
} from "../flags/limit-flags.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { planText } from "../views/plan-view.ts";
import { harmless, table } from "../views/text.ts";
import { usage } from "../usage.ts";

interface LimitOptions extends OutputOptions, LimitParts {
  readonly interface?: string;
  readonly plan?: boolean;
}

const examples = `
What is not named stays as it is. none is unlimited; default is as the network says.
Rates are of whole frames: of 100mbit, TCP gets 95.6 at an MTU of 1500.

Examples:
  podnet limit web --in 100mbit --out 50mbit --pps 10k
  podnet limit web --interface eth1 --out 10mbit --out-burst 256kb
  podnet limit web --in none --out default
  podnet limit web                                       show the limits in force`;

/** The command that shows and changes limits. */
export function addLimit(program: Command, context: Context): void {
  const command = program
    .command("limit")
    .description("limit bandwidth and packets of a running pod, or show its limits");
  addLimitFlags(
    addOutput(command)
      .argument("<pod>", "name or id")
      .option("--interface <name>", "this interface alone; default all on bridges")
      .option("--plan", "show what would be changed, and do nothing"),
  )
    .addHelpText("after", examples)
    .action((idOrName: string, options: LimitOptions) =>
      namesLimits(options) ? change(context, idOrName, options) : show(context, idOrName, options),
    );
}

async function show(context: Context, idOrName: string, options: LimitOptions): Promise<void> {
  if (options.interface !== undefined || options.plan === true)
    throw usage("Nothing is to be changed", "Give --in, --out, --pps or --burst");
  const { pod } = await withPodnet(context, options, (podnet, signal) =>
    podnet.pods.get({ idOrName }, { signal }),
  );
  await print(context, options, pod);
}

async function change(context: Context, idOrName: string, options: LimitOptions): Promise<void> {
  const request = {
    idOrName,
    guestName: options.interface ?? "",
    limits: limitsFrom(options, undefined, context.given),
    planOnly: options.plan === true,
  };
  const { pod, plan } = await withPodnet(context, options, (podnet, signal) =>
    podnet.pods.limit(request, { signal }),
  );
  if (plan === undefined) await print(context, options, pod);
  else if (options.output === "table") context.io.stdout.write(planText(context.io.stdout, plan));
  else await printDocument(context.io, options.output, document("Plan", toPlain(PlanSchema, plan)));
}

async function print(
  { io }: Context,
  { output }: OutputOptions,
  pod: Parameters<typeof toPlain<typeof PodSchema>>[1] | undefined,
): Promise<void> {
  if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  if (output !== "table") {
    await printDocument(io, output, document("Pod", toPlain(PodSchema, pod)));
    return;
  }
  const rows = pod.interfaces
    .filter(({ bridge }) => bridge !== "")
    .map(({ guestName, limits }) => [guestName, harmless(limitsText(limits) || "none")]);
  io.stdout.write(table(["INTERFACE", "LIMITS"], rows));
}
