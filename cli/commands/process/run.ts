import { create } from "@bufbuild/protobuf";
import { type Command, Option } from "commander";
import type { Podnet } from "../../../api/client.ts";
import type { Pod } from "../../../api/gen/podnet/v1/pod_pb.ts";
import {
  BootSchema,
  DiskSchema,
  type PodSpec,
  ProcessSchema,
  RestartSchema,
} from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { type CommonOptions, type Context, withPodnet } from "../../context.ts";
import { environmentOf } from "../../env-text.ts";
import { FlagWriter } from "../../flags/given.ts";
import { addLifetimeFlags, putLifetime } from "../../flags/lifetime-flags.ts";
import {
  type SpecFlags,
  addLayerFlags,
  addNetworkFlags,
  addVolumeFlag,
  specFromFlags,
} from "../../flags/spec-flags.ts";
import { collect, parseDuration } from "../../parse.ts";
import { type CredentialFlags, credentialOf } from "../../registry-password.ts";
import { usage } from "../../usage.ts";
import { whileShown } from "../../views/ticking.ts";
import { runAttached } from "./attached.ts";
import { type ImageToRun, imageToRun, type Pull } from "./image-to-run.ts";

interface Options extends CommonOptions, SpecFlags, CredentialFlags {
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly detach?: boolean;
  readonly rm?: boolean;
  readonly env?: readonly string[];
  readonly envFile?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly entrypoint?: string;
  readonly restart?: string;
  readonly stopSignal?: string;
  readonly stopTimeout?: string;
  readonly ttl?: string;
  readonly idleStop?: string;
  readonly pull: Pull;
}

const more = `
IMAGE is a name or digest in the store of images (podnet image list); a name that is not there is pulled. Or it is a file:
an archive of docker save, podman save or skopeo, which is sent to the store, or a squashfs of podnet image convert. Write
options before it: what follows it is the command, in the place of the image's.
The exit code is the process's own; 128+n if signal n ended it; 125 if podnet itself failed; 126 if the program cannot be
run; 127 if it does not exist. Signals are passed on; a third ctrl-c leaves the pod running.

Examples:
  podnet run --rm -it docker-archive.tar sh
  podnet run --rm registry.example:5000/team/app:1
  podnet run -d --username ci --password-stdin registry.example:5000/team/app:1 < token
  podnet run -d --name web -p 8080:80 --restart always app:1
  podnet run --rm -e COLOR=blue -u www-data app:1 env
  podnet run -d --rm --ttl 2h --idle-stop 10m app:1`;

export function addRun(program: Command, context: Context): void {
  const command = program
    .command("run")
    .description("run a program of a container image in a pod of its own")
    .passThroughOptions()
    .argument("<image>", "name, digest, or file")
    .argument("[command...]", "program and its arguments; default the image's")
    .option("-i, --interactive", "pass standard input on")
    .option("-t, --tty", "give the program a terminal")
    .option("-d, --detach", "do not wait: print the pod's id")
    .option("--rm", "delete the pod when the program has ended, or its --ttl is over")
    .option("-e, --env <key[=value]>", "an environment variable; may be repeated", collect)
    .option("--env-file <file>", "a file with one on each line; may be repeated", collect)
    .option("-w, --workdir <path>", "working directory; default the image's")
    .option("-u, --user <user[:group]>", "names or numbers in the image; default the image's")
    .option("--entrypoint <program>", "in the place of the image's; empty for none")
    .option("--restart <policy>", "no, on-failure[:MAX] or always; default no")
    .option("--stop-signal <signal>", "asks it to end; default the image's, or SIGTERM")
    .option("--stop-timeout <duration>", "kills it when it has not ended by then; default 10s")
    .addOption(
      new Option("--pull <policy>", "when to ask the registry of the image")
        .choices(["missing", "always", "never"])
        .default("missing"),
    )
    .option("--username <name>", "the registry's user, for this pull alone")
    .option("--password-stdin", "read the user's password or token from standard input")
    .option("--memory <amount>", "memory in MiB, or with a unit: 256M, 1G; default 128M")
    .option("--cpus <count>", "virtual processors; default 1");
  addVolumeFlag(addLayerFlags(command));
  addLifetimeFlags(command);
  addNetworkFlags(command)
    .addHelpText("after", more)
    .action(async (image: string, words: string[], options: Options) => {
      const { tty = false, interactive = false, detach = false, rm = false } = options;
      if (tty && interactive && !detach && context.io.stdin.isTTY !== true)
        throw usage("Standard input is no terminal", "Leave out -t");
      if (detach && rm && options.ttl === undefined)
        throw usage("--rm deletes the pod at the end", "Leave out -d or --rm, or give --ttl");
      if (rm && options.restart !== undefined && options.restart !== "no")
        throw usage("A pod that starts again is not deleted", "Leave out --rm or --restart");
      if (interactive && options.passwordStdin === true)
        throw usage(
          "Standard input cannot have both a password and the program's input",
          "Run podnet image pull --username NAME --password-stdin IMAGE first; or leave out -i",
        );
      // Options that are wrong are refused before anything is sent or pulled.
      const spec = await specOf(words, options, context);
      const credential = await credentialOf(options, context.io.stdin);
      const pod = await createPod(context, options, { image, credential, spec });
      if (detach) {
        context.io.stdout.write(`${pod.id}\n`);
        return;
      }
      using podnet = await context.io.connect(options);
      context.exitCode = await runAttached(context.io, podnet, {
        idOrName: pod.id,
        fromStart: true,
        terminal: tty,
        interactive,
      });
      if (rm) await podnet.pods.delete({ idOrName: pod.id });
    });
}

/** The pod that is asked for, without its image. Throws `INVALID_ARGUMENT`. */
async function specOf(
  words: readonly string[],
  options: Options,
  { io, given }: Context,
): Promise<PodSpec> {
  const { tty = false, interactive = false } = options;
  const spec = await specFromFlags(options, undefined, given);
  const terminal = tty ? { TERM: io.env["TERM"] ?? "xterm" } : {};
  const process = create(ProcessSchema, {
    args: [...words],
    env: { ...terminal, ...environmentOf(options, io.env) },
    terminal: tty,
    stdin: interactive,
  });
  spec.process = process;
  const flags = new FlagWriter(options, given);
  for (const key of ["env", "envFile"] as const) flags.put(key, "process.env", () => {});
  flags.put("entrypoint", "process.entrypoint", (program) => {
    process.entrypoint = program === "" ? [] : [program];
  });
  for (const key of ["workdir", "user"] as const)
    flags.put(key, `process.${key}`, (text) => {
      process[key] = text;
    });
  flags.put("stopSignal", "process.stop_signal", (signal) => {
    process.stopSignal = signal;
  });
  flags.put("stopTimeout", "process.stop_timeout_ms", (text) => {
    process.stopTimeoutMs = parseDuration("--stop-timeout", text);
  });
  flags.put("restart", "restart", (text) => {
    spec.restart = restartOf(text);
  });
  putLifetime(spec, options, given);
  return spec;
}

function setImage(spec: PodSpec, image: ImageToRun): void {
  spec.boot ??= create(BootSchema);
  if (image.kind === "stored") spec.boot.image = image.reference;
  else {
    spec.boot.cmdline = "podnet.root=vda";
    spec.boot.disks = [create(DiskSchema, { path: image.path, readOnly: true })];
  }
}

function restartOf(text: string) {
  const [policy = "", max] = text.split(":", 2);
  if (max === undefined) return create(RestartSchema, { policy });
  if (policy !== "on-failure" || !/^[0-9]{1,6}$/.test(max))
    throw usage(`--restart "${printable(text)}" is no policy`, "Write no, on-failure:3 or always");
  return create(RestartSchema, { policy, max: Number(max) });
}

/** Creates the pod; a process that could not be started has its exit code. */
async function createPod(
  context: Context,
  options: Options,
  {
    image,
    credential,
    spec,
  }: {
    readonly image: string;
    readonly credential: Awaited<ReturnType<typeof credentialOf>>;
    readonly spec: PodSpec;
  },
): Promise<Pod> {
  const { pull } = options;
  try {
    return await withPodnet(context, options, async (podnet, signal) => {
      const asked = { image, pull, credential, podName: spec.name };
      setImage(spec, await imageToRun(context, podnet, asked, signal));
      return whileShown(context.io.stderr, "Starting the pod", () => made(podnet, spec, signal));
    });
  } catch (thrown) {
    const code = isPodnetError(thrown, "PROCESS_FAILED") ? thrown.details["exit_code"] : undefined;
    if (code !== undefined) context.exitCode = Number(code);
    throw thrown;
  }
}

async function made(podnet: Podnet, spec: PodSpec, signal: AbortSignal): Promise<Pod> {
  const { pod } = await podnet.pods.create({ spec }, { signal });
  if (pod !== undefined) return pod;
  throw new PodnetError("INTERNAL", "podnetd made no pod", { hint: "See its log" });
}
