import { execFile } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { bodyOf, post } from "../cni/cni-rig.ts";
import { type Machine, machine } from "../lab/lab.ts";
import { type Worker, openWorker } from "./worker.ts";
import { started } from "./pods.ts";

const exec = promisify(execFile);

/** What a plugin would exit with, and what it would print. */
export interface Said {
  readonly exit: number;
  readonly stdout: string;
}

export interface Asking {
  /** Of the network configuration. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** By OpenShift SDN's form: the host's end of the pair that its plugin made. */
  readonly hostVeth?: string;
  /** The runtime gives up after so many milliseconds. */
  readonly timeoutMs?: number;
}

/**
 * A worker whose podnetd is asked to attach containers: namespaces with nothing in them but what
 * its tests put there.
 */
export interface ContainerWorker extends AsyncDisposable {
  readonly worker: Worker;
  readonly containers: readonly [Machine, Machine, Machine];
  /** Where plugins write down what comes while podnetd is away. */
  readonly pending: string;
  /** Where an installation goes. */
  readonly installed: { readonly dir: string; readonly binDir: string };
  /** What there is with a podnetd that has just started, and no container. */
  readonly alone: string;
  /** Asks as a runtime does; undefined without an answer, or when it gave up. */
  ask(command: string, container: Machine, asking?: Asking): Promise<Said | undefined>;
  /** What is there of an installation. */
  files(): readonly string[];
}

/** The end on the host of a pair that OpenShift SDN's plugin makes. */
export const hostVeth = "vethab";

/** Longest that a runtime waits, milliseconds. */
const patientMs = 30_000;

export async function openContainerWorker(name: string, config: string): Promise<ContainerWorker> {
  await using made = new AsyncDisposableStack();
  const worker = made.use(await openWorker(name, `quarantine_s = 0\n${config}`));
  const { directory } = worker;
  const socket = path.join(directory, "run/cni.sock");
  const pending = path.join(directory, "state/cni-pending");
  const installed = { dir: path.join(directory, "net.d"), binDir: path.join(directory, "bin") };
  mkdirSync(pending, { recursive: true });
  for (const each of Object.values(installed)) mkdirSync(each);
  const containers = ["a", "b", "c"].map((letter) => machine(`${name}-${letter}`));
  for (const container of containers) {
    await exec("ip", ["netns", "add", container.name]);
    made.defer(async () => {
      await exec("ip", ["netns", "del", container.name]);
    });
  }
  await started(worker, []);
  const alone = await worker.inventory();
  const held = made.move();
  return {
    worker,
    containers: containers as [Machine, Machine, Machine],
    pending,
    installed,
    alone,
    async ask(command, container, { config: own = {}, hostVeth, timeoutMs = patientMs } = {}) {
      const asked = bodyOf({ command, container, config: own });
      try {
        if (hostVeth === undefined) {
          const answer = await post(socket, "/cni/v1", asked, AbortSignal.timeout(timeoutMs));
          return JSON.parse(answer.text) as Said;
        }
        const body = JSON.stringify({ ...(JSON.parse(asked) as object), hostVeth });
        const { status, text } = await post(socket, "/", body, AbortSignal.timeout(timeoutMs));
        return { exit: status === 200 ? 0 : 1, stdout: text };
      } catch {
        return undefined;
      }
    },
    files: () =>
      Object.values(installed).flatMap((each) =>
        readdirSync(each).map((file) => path.join(path.basename(each), file)),
      ),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
