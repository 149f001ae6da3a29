import { type Command, Option } from "commander";
import type { Podnet } from "../../api/client.ts";
import { type Plan, PlanSchema, type Pod, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import type { Output } from "../io.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { parseDuration } from "../parse.ts";
import { readPodFile } from "../pod-file.ts";
import { planText } from "../plan-view.ts";
import { podLine } from "../pod-view.ts";
import { showProgress } from "../progress.ts";
import { addSpecFlags, type SpecFlags, specFromFlags } from "../spec-flags.ts";

interface Options extends SpecFlags, OutputOptions {
  readonly file?: string;
  readonly plan?: boolean;
  readonly quiet?: boolean;
  readonly requestId?: string;
  readonly timeout?: string;
}

const examples = `
Examples:
  podnet create
  podnet create --name web --address 192.168.123.10 --memory 256M
  podnet create --name web --plan         show every link, rule, QMP command and guest message
  podnet create -f pod.yaml --name web-2  a file, with some of it changed
  podnet create --name web -p 8080:80     port 80 of the pod at 127.0.0.1 and ::1 port 8080
  podnet create --interface lan,address=10.0.0.2 --route 10.0.0.0/8,via=10.0.0.1`;

export function addCreate(program: Command, context: Context): void {
  const command = program.command("create");
  command
    .description("create a pod and wait until its network works")
    .option("-f, --file <path>", "pod spec in YAML or JSON; - for standard input")
    .option("--plan", "show what would be done, and do nothing")
    .option("-q, --quiet", "print the pod's id alone")
    .option("--timeout <duration>", "give up and undo after this long, e.g. 30s")
    .addOption(
      new Option("--request-id <id>", "makes a retry return the same pod instead of another"),
    );
  addOutput(command);
  addSpecFlags(command);
  command.addHelpText("after", examples).action(async (options: Options) => {
    await createPod(context, options);
  });
}

async function createPod(context: Context, options: Options): Promise<void> {
  const { io } = context;
  const file = options.file === undefined ? undefined : await readPodFile(options.file);
  const request = {
    spec: specFromFlags(options, file),
    requestId: options.requestId ?? "",
    planOnly: options.plan === true,
    timeoutMs: options.timeout === undefined ? 0 : parseDuration("--timeout", options.timeout),
  };
  const made = await withPodnet(context, options, (podnet, signal) =>
    follow(podnet, request, io.stderr, signal),
  ).catch((thrown: unknown) => {
    throw isPodnetError(thrown, "CANCELLED") ? thrown.with({ hint: afterwards(options) }) : thrown;
  });
  const isPlan = made.$typeName === "podnet.v1.Plan";
  if (options.output !== "table") {
    const body = isPlan ? toPlain(PlanSchema, made) : toPlain(PodSchema, made);
    await printDocument(io, options.output, document(isPlan ? "Plan" : "Pod", body));
  } else if (isPlan) io.stdout.write(planText(io.stdout, made));
  else io.stdout.write(`${options.quiet === true ? made.id : podLine(io.stdout, made)}\n`);
}

/** What podnetd does with a create that nobody waits for any more. */
const afterwards = ({ requestId }: Options): string =>
  requestId === undefined
    ? "podnetd undoes what was begun"
    : `podnetd goes on; to join it, repeat the command with --request-id ${requestId}`;

/** Creates, showing each step, until the pod or the plan comes. */
async function follow(
  podnet: Podnet,
  request: Parameters<Podnet["pods"]["createStream"]>[0],
  out: Output,
  signal: AbortSignal,
): Promise<Pod | Plan> {
  using progress = showProgress(out);
  for await (const { event } of podnet.pods.createStream(request, { signal })) {
    switch (event.case) {
      case "started":
        progress.started(event.value);
        break;
      case "finished":
        progress.finished(event.value);
        break;
      case "pod":
      case "plan":
        return event.value;
      case undefined:
    }
  }
  throw new PodnetError("INTERNAL", "podnetd ended the create without a pod", {
    hint: "See its log, and whether client and daemon are of one version: podnet version",
  });
}
