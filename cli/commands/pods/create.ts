import type { Command } from "commander";
import type { Podnet } from "../../../api/client.ts";
import type { Plan, Pod } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, withPodnet } from "../../context.ts";
import type { Output } from "../../io.ts";
import { addRequestFlags, printMade, type RequestFlags, requestFrom } from "../../pod-request.ts";
import { showProgress } from "../../views/progress.ts";
import { addLifetimeFlags, type LifetimeFlags, putLifetime } from "../../flags/lifetime-flags.ts";
import { addSpecFlags } from "../../flags/spec-flags.ts";
import { usage } from "../../usage.ts";

const examples = `
Examples:
  podnet create web
  podnet create --name web --address 192.168.123.10 --memory 256M
  podnet create --name web --plan         show every link, rule, QMP command and guest message
  podnet create -f pod.yaml --name web-2  a file, with some of it changed
  podnet create --name web -p 8080:80     port 80 of the pod at 127.0.0.1 and ::1 port 8080
  podnet create --interface lan,address=10.0.0.2 --route 10.0.0.0/8,via=10.0.0.1`;

type CreateFlags = RequestFlags & LifetimeFlags;

export function addCreate(program: Command, context: Context): void {
  const command = program.command("create").argument("[name]", "as --name");
  command.description("create a pod and wait until its network works");
  addRequestFlags(command);
  addOutput(command);
  addSpecFlags(command);
  addLifetimeFlags(command.optionsGroup("Lifetime:")).option(
    "--rm",
    "delete the pod once its --ttl is over, instead of stopping it",
  );
  command
    .addHelpText("after", examples)
    .action(async (name: string | undefined, options: CreateFlags) => {
      if (options.rm === true && options.ttl === undefined)
        throw usage("--rm deletes the pod when its time is over", "Give --ttl, too");
      await createPod(context, named(options, name));
    });
}

/** The options, with the name that stands alone in its option's place. */
function named(options: CreateFlags, name: string | undefined): CreateFlags {
  if (name === undefined) return options;
  if (options.name !== undefined && options.name !== name)
    throw usage("The pod has two names", "Name it once: podnet create NAME, or --name NAME");
  return { ...options, name };
}

async function createPod(context: Context, options: CreateFlags): Promise<void> {
  const { io } = context;
  const request = await requestFrom(options, context.given);
  putLifetime(request.spec, options, context.given);
  const made = await withPodnet(context, options, (podnet, signal) =>
    follow(podnet, request, io.stderr, signal),
  ).catch((thrown: unknown) => {
    throw isPodnetError(thrown, "CANCELLED") ? thrown.with({ hint: afterwards(options) }) : thrown;
  });
  await printMade(io, options, made);
}

/** How podnetd goes on with a create whose client has gone. */
const afterwards = ({ requestId }: RequestFlags): string =>
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
