import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { abortError } from "../../core/aborting.ts";
import { guard } from "../../core/guard.ts";
import { PodnetError } from "../../core/errors.ts";
import type { CgroupPlan, ProcessRecord } from "../../hypervisor/driver.ts";
import { ranOutOfMemory } from "../../hypervisor/jail/cgroup.ts";
import { type CgroupLayout, planCgroups } from "../../hypervisor/jail/cgroup-layout.ts";
import { startWorker } from "../../hypervisor/process/worker-program.ts";
import { findProgram } from "../../linux/processes/command.ts";
import type { Digest } from "../../images/archive/digest.ts";
import type { ImagesProgram } from "../../images/worker/program.ts";
import {
  type ImageJob,
  longestMessage,
  type MadeImage,
  parseWorkerMessage,
  type StageProgress,
} from "../../images/worker/messages.ts";

/** How workers are run on this host. */
export interface WorkerHost {
  readonly program: ImagesProgram;
  /** How workers are confined; undefined: not at all, where machines are not either. */
  readonly jail: WorkerJail | undefined;
}

interface WorkerJail {
  readonly uid: number;
  readonly cgroups: CgroupLayout;
  /** Of each worker, its files in the kernel's cache apart. */
  readonly memoryMib: number;
}

/** The control groups of a job's worker. */
export const workerCgroups = ({ jail }: WorkerHost, job: string): readonly CgroupPlan[] =>
  jail === undefined
    ? []
    : planCgroups(jail.cgroups, `images-${job}`, { memoryMib: jail.memoryMib, pids: processes });

export interface WorkerRun {
  readonly host: WorkerHost;
  readonly job: ImageJob;
  /** Its own: `makeJobDirectory`. */
  readonly directory: string;
  /** The archive to read. */
  readonly fd: number | undefined;
  /** Bytes that its image may have, and all that it writes. */
  readonly fileBytes: number;
  readonly allBytes: number;
  readonly progress: (progress: StageProgress) => void;
  /** Puts the layers that are there into the directory, and returns their digests. */
  readonly lend: (wanted: readonly Digest[]) => readonly Digest[];
  /** Groups that are there. */
  readonly cgroups: readonly CgroupPlan[];
  /** Records the worker before it gets anything to do. */
  readonly started: (worker: ProcessRecord) => void;
  readonly signal: AbortSignal;
}

const openFiles = 256;
/** Threads of a worker, and of all of them: Node's, and those that pack. */
const processes = 512;
const lookMs = 1000;
/** What finds a registry's address. */
const resolverFiles = [
  "/etc/resolv.conf",
  "/etc/hosts",
  "/etc/nsswitch.conf",
  "/etc/host.conf",
  "/etc/gai.conf",
];

/**
 * Has a worker make an image's file. Its process has ended when this returns, whatever comes of it.
 * Throws what the worker reports, `CANCELLED`, `LIMIT_REACHED`, `JAIL_FAILED`, `INTERNAL`.
 */
export async function runWorker(run: WorkerRun): Promise<MadeImage> {
  const { host, job, directory, fd, fileBytes, allBytes, cgroups, signal } = run;
  const { program, jail } = host;
  const packer = findProgram("sqfstar");
  if (packer === undefined)
    throw new PodnetError("COMMAND_FAILED", 'The command "sqfstar" is not installed', {
      hint: "Install the package squashfs-tools",
    });
  const network = job.source.kind === "registry";
  const files = [
    ...program.files,
    packer,
    ...(network ? resolverFiles.filter((file) => existsSync(file)) : []),
  ];
  const worker = await startWorker({
    name: "podnet-images",
    argv: [...program.argv],
    directory,
    fds: fd === undefined ? [] : [fd],
    fileBytes,
    jail:
      jail === undefined
        ? undefined
        : { uid: jail.uid, files, openFiles, network, processes, cgroups },
  });
  try {
    run.started(worker.record);
  } catch (thrown) {
    worker.kill();
    await worker.ended;
    throw thrown;
  }
  let failure: PodnetError | undefined;
  const fail = (error: PodnetError): void => {
    failure ??= error;
    worker.kill();
  };
  const onAbort = (): void => fail(abortError(signal, "The work on the image"));
  signal.addEventListener("abort", onAbort, { once: true });
  const looks = setInterval(
    () =>
      guard("images", () => {
        if (bytesIn(directory) > allBytes) fail(tooLarge());
      }),
    lookMs,
  );
  let made: MadeImage | undefined;
  try {
    if (signal.aborted) onAbort();
    worker.input.write(`${JSON.stringify(job)}\n`);
    for await (const line of boundedLines(worker.output)) {
      const message = parseWorkerMessage(line);
      if ("progress" in message) run.progress(message.progress);
      if ("wants" in message)
        worker.input.write(`${JSON.stringify({ had: run.lend(message.wants) })}\n`);
      if ("made" in message) made = message.made;
      if ("failed" in message) fail(message.failed);
    }
  } catch (cause) {
    fail(
      new PodnetError("INTERNAL", "The program podnet-images says what it never does", { cause }),
    );
  } finally {
    clearInterval(looks);
    signal.removeEventListener("abort", onAbort);
    worker.input.end();
    if (made === undefined) worker.kill();
  }
  const { how, said } = await worker.ended;
  // Its end, or that of the program that packs, may have been the kernel's doing.
  const isUnexplained = failure === undefined || failure.code === "COMMAND_FAILED";
  if (made === undefined && isUnexplained && ranOutOfMemory(cgroups)) throw outOfMemory(jail);
  if (failure !== undefined) throw failure;
  if (made !== undefined) return made;
  throw new PodnetError("INTERNAL", `The program podnet-images ended with ${how}`, {
    hint: "See whether the host has memory and room for it; report it otherwise",
    details: { said },
  });
}

const tooLarge = (): PodnetError =>
  new PodnetError("LIMIT_REACHED", "The image takes more room than images may", {
    hint: "Raise images.max_mib or images.image_max_mib, or remove images",
  });

export const outOfMemory = (jail: WorkerJail | undefined): PodnetError =>
  new PodnetError("LIMIT_REACHED", `Work on an image may use ${jail?.memoryMib} MiB of memory`, {
    hint: "Make the image of fewer files",
  });

function bytesIn(directory: string): number {
  return readdirSync(directory).reduce((sum, name) => {
    const found = statSync(join(directory, name), { throwIfNoEntry: false });
    return sum + (found?.isFile() === true && found.nlink === 1 ? found.blocks * 512 : 0);
  }, 0);
}

/** Lines of a stream. Throws when one is longer than a message may be. */
async function* boundedLines(stream: AsyncIterable<unknown>): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  let length = 0;
  for await (const chunk of stream) {
    let rest = chunk as Buffer;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      yield Buffer.concat([...parts, rest.subarray(0, end)]).toString("utf8");
      [parts, length, rest] = [[], 0, rest.subarray(end + 1)];
    }
    length += rest.length;
    if (length > longestMessage) throw new RangeError("A line has no end");
    parts.push(rest);
  }
}
