import type { Command } from "commander";
import { type Plan, PlanSchema, type Pod, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { parseDuration } from "../parse.ts";
import { readPodFile } from "../pod-file.ts";
import { planText } from "../plan-view.ts";
import { podLine } from "../pod-view.ts";
import { addNetworkFlags, type SpecFlags, specFromFlags } from "../spec-flags.ts";
import { resolve } from "node:path";

interface Options extends SpecFlags, OutputOptions {
  readonly qmp: string;
  readonly channel?: string;
  readonly tty?: string;
  readonly file?: string;
  readonly plan?: boolean;
  readonly quiet?: boolean;
  readonly requestId?: string;
  readonly timeout?: string;
}

const examples = `
The machine stays its owner's: podnet gives it NICs, and never pauses, stops or ends it.
Its QMP socket is podnet's as long as the pod is there; give the machine a second -qmp for yourself.

Examples:
  podnet attach --qmp /run/vm/qmp.sock --name db
  podnet attach --qmp /run/vm/qmp.sock --channel /run/vm/ch0.sock --tty /run/vm/ch1.sock
  podnet attach --qmp /run/vm/qmp.sock --interface lan,address=10.0.0.2 --plan
  podnet detach db`;

export function addAttach(program: Command, context: Context): void {
  const command = program.command("attach");
  command
    .description("give NICs to a QEMU that somebody else runs")
    .requiredOption("--qmp <socket>", "a QMP socket of its that nobody else uses")
    .option("--channel <socket>", "its virtserialport sh.hyper.channel.0, with an agent behind it")
    .option("--tty <socket>", "its virtserialport sh.hyper.channel.1, for podnet exec")
    .option("--agent <kind>", "hyperstart; default whoever answers at the channel")
    .option("-f, --file <path>", "pod spec in YAML or JSON; - for standard input")
    .option("--plan", "show what would be done, and do nothing")
    .option("-q, --quiet", "print the pod's id alone")
    .option("--timeout <duration>", "give up and undo after this long, e.g. 30s")
    .option("--request-id <id>", "makes a retry return the same pod instead of another");
  addOutput(command);
  addNetworkFlags(command);
  command.addHelpText("after", examples).action(async (options: Options) => {
    await attach(context, options);
  });
}

async function attach(context: Context, options: Options): Promise<void> {
  const { io } = context;
  const file = options.file === undefined ? undefined : await readPodFile(options.file);
  const { qmp, channel, tty, timeout } = options;
  const request = {
    spec: specFromFlags(options, file),
    qmpSocket: resolve(qmp),
    channelSocket: channel === undefined ? "" : resolve(channel),
    ttySocket: tty === undefined ? "" : resolve(tty),
    requestId: options.requestId ?? "",
    planOnly: options.plan === true,
    timeoutMs: timeout === undefined ? 0 : parseDuration("--timeout", timeout),
  };
  const { pod, plan } = await withPodnet(context, options, (podnet, signal) =>
    podnet.pods.attach(request, { signal }),
  );
  await print(io, options, pod, plan);
}

async function print(
  io: Context["io"],
  { output, quiet }: Options,
  pod: Pod | undefined,
  plan: Plan | undefined,
): Promise<void> {
  if (plan !== undefined) {
    if (output === "table") io.stdout.write(planText(io.stdout, plan));
    else await printDocument(io, output, document("Plan", toPlain(PlanSchema, plan)));
    return;
  }
  if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  if (output !== "table") await printDocument(io, output, document("Pod", toPlain(PodSchema, pod)));
  else io.stdout.write(`${quiet === true ? pod.id : podLine(io.stdout, pod)}\n`);
}
