import type { Command } from "commander";
import type { Podnet } from "../../api/client.ts";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import type { Io } from "../io.ts";
import { parseCount } from "../parse.ts";
import { printLogs } from "./process/process-logs.ts";
import { sayNothing, tamed, write } from "../terminal.ts";

interface Options extends CommonOptions {
  readonly follow?: boolean;
  readonly tail?: string;
  readonly console?: boolean;
  readonly since?: string;
  readonly timestamps?: boolean;
}

const more = `
Prints what the main process of a pod wrote, its errors to standard error; -f goes on over all its starts. Of a pod
without one, and with --console, prints the output of a guest's serial console. podnetd keeps the last MiB as long as the VM runs. With -f the output is
followed until the pod is deleted or you press ctrl-c; stops and starts of the pod are reported on standard error.
On a terminal, control characters other than line ends and tabs are shown as \\u001b and the like.

Examples:
  podnet logs web
  podnet logs --since 10m --timestamps web
  podnet logs --console web
  podnet logs -f --tail 20 web`;

export function addLogs(program: Command, context: Context): void {
  program
    .command("logs")
    .description("what a pod's main process wrote, or what it printed on its console")
    .argument("<pod>", "name or id")
    .option("-f, --follow", "go on with what follows")
    .option("-n, --tail <lines>", "only the last lines, this many")
    .option("--since <time>", "only what the process wrote since 10m ago, or since a date")
    .option("--timestamps", "a time before each line of the process")
    .option("--console", "the guest's console, also where there is a main process")
    .addHelpText("after", more)
    .action(async (idOrName: string, options: Options) => {
      const lines = options.tail === undefined ? undefined : parseCount("--tail", options.tail);
      await withPodnet(context, options, async (podnet, signal) => {
        if (options.console !== true && (await hasProcess(podnet, idOrName, signal))) {
          const { follow: follows = false, since, timestamps = false } = options;
          const wanted = { idOrName, follow: follows, lines, since, timestamps };
          await printLogs(context.io, podnet, wanted, signal);
          return;
        }
        if (options.follow !== true) {
          await printConsole(context.io, podnet, { idOrName, noFollow: true, lines }, signal);
          return;
        }
        await follow(context.io, podnet, { idOrName, lines }, signal);
      });
    });
}

async function hasProcess(podnet: Podnet, idOrName: string, signal: AbortSignal): Promise<boolean> {
  const { pod } = await podnet.pods.get({ idOrName }, { signal });
  return pod?.process !== undefined;
}

interface Printing {
  readonly idOrName: string;
  readonly noFollow: boolean;
  readonly lines: number | undefined;
}

async function printConsole(
  { stdout, stderr }: Io,
  podnet: Podnet,
  { idOrName, noFollow, lines }: Printing,
  signal: AbortSignal,
): Promise<void> {
  const fit = stdout.isTTY === true ? tamed() : undefined;
  let isKept = true;
  let isEmpty = true;
  for await (const { data } of podnet.pods.console({ idOrName, noFollow }, { signal })) {
    const part = isKept && lines !== undefined ? lastLines(data, lines) : data;
    isKept = false;
    isEmpty &&= data.length === 0;
    await write(stdout, fit?.(part) ?? part);
  }
  if (fit !== undefined) await write(stdout, fit());
  if (noFollow && isEmpty) sayNothing(stderr, "Nothing has been printed on the guest's console");
}

const lineFeed = 10;

/** The last lines; one that has no end yet is one of them. */
export function lastLines(text: Uint8Array, lines: number): Uint8Array {
  if (lines === 0) return text.subarray(text.length);
  let from = text.at(-1) === lineFeed ? text.length - 1 : text.length;
  for (let left = lines; left > 0; left--) {
    // Before the first byte there is nothing to look for; -1 would be the last one.
    from = from === 0 ? -1 : text.lastIndexOf(lineFeed, from - 1);
    if (from === -1) return text;
  }
  return text.subarray(from + 1);
}

/**
 * One machine after the other: the pod is the same by its id, also when another one gets its name.
 */
async function follow(
  io: Io,
  podnet: Podnet,
  wanted: { readonly idOrName: string; readonly lines: number | undefined },
  signal: AbortSignal,
): Promise<void> {
  const { pod } = await podnet.pods.get({ idOrName: wanted.idOrName }, { signal });
  if (pod === undefined) return;
  const { id, name } = pod;
  const report = (what: string): void => void io.stderr.write(`--- ${name} ${what} ---\n`);
  let machine = hasMachine(pod.state) ? (pod.vm?.pid ?? 0) : 0;
  if (machine === 0) report("does not run; its console follows when it does");
  for (let { lines } = wanted; ; lines = undefined) {
    if (machine !== 0) {
      await printConsole(io, podnet, { idOrName: id, noFollow: false, lines }, signal).catch(
        (thrown: unknown) => {
          // The pod was stopped, or deleted, between the check and the call: the next event shows
          // which.
          if (!isPodnetError(thrown, "WRONG_STATE", "POD_NOT_FOUND")) throw thrown;
        },
      );
      report("has ended; its console follows when it runs again");
    }
    const next = await nextMachine(podnet, id, machine, signal);
    if (next === undefined) return report("is deleted");
    machine = next;
    report("runs");
  }
}

const hasMachine = (state: PodState): boolean =>
  state === PodState.RUNNING || state === PodState.PAUSED;

/** Waits for a machine that is another than `before`; undefined when the pod is gone. */
async function nextMachine(
  podnet: Podnet,
  id: string,
  before: number,
  signal: AbortSignal,
): Promise<number | undefined> {
  try {
    for await (const { kind, pod } of podnet.pods.watch({ idOrName: id }, { signal })) {
      if (kind === Kind.DELETED) return undefined;
      const machine = pod?.vm?.pid ?? 0;
      if (pod !== undefined && hasMachine(pod.state) && machine !== 0 && machine !== before) {
        return machine;
      }
    }
  } catch (thrown) {
    if (!isPodnetError(thrown, "POD_NOT_FOUND")) throw thrown;
  }
  return undefined;
}
