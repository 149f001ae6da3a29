import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { abortError } from "../../core/aborting.ts";
import { guard } from "../../core/guard.ts";
import { PodnetError } from "../../core/errors.ts";
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
  /** The user of workers; undefined: podnetd's own, where machines are not confined either. */
  readonly uid: number | undefined;
}

export interface WorkerRun {
  readonly host: WorkerHost;
  readonly job: ImageJob;
  /** Its own, and its user's. */
  readonly directory: string;
  /** The archive to read. */
  readonly fd: number | undefined;
  /** Bytes that its image may have, and all that it writes. */
  readonly fileBytes: number;
  readonly allBytes: number;
  readonly progress: (progress: StageProgress) => void;
  /** Puts the layers that are there into the directory, and returns their digests. */
  readonly lend: (wanted: readonly Digest[]) => readonly Digest[];
  readonly signal: AbortSignal;
}

const openFiles = 256;
/** Threads of all workers: Node's, and those that pack. */
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
  const { host, job, directory, fd, fileBytes, allBytes, signal } = run;
  const { program, uid } = host;
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
    jail: uid === undefined ? undefined : { uid, files, openFiles, network, processes },
  });
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
