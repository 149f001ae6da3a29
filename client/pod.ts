import type { Podnet } from "../api/client.ts";
import type { Pod as PodRecord } from "../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../core/errors.ts";
import { Files } from "./files.ts";
import { type ProgramOptions, type ProgramResult, runProgram } from "./run-program.ts";
import { type Condition, type Waiting, waitFor } from "./wait-for.ts";

/** A pod that its block deletes: `await using pod = await podnet.pods.create()`. */
export type CreatedPod = Pod & AsyncDisposable;

/** One pod. Its `record` is what podnetd last said of it; `refresh` asks again. */
export class Pod {
  readonly #services: Podnet;
  readonly id: string;
  readonly files: Files;
  record: PodRecord;

  constructor(services: Podnet, record: PodRecord) {
    this.#services = services;
    this.id = record.id;
    this.record = record;
    this.files = new Files(this);
  }

  get name(): string {
    return this.record.name;
  }

  /** The addresses of its interfaces, without their lengths. */
  get addresses(): string[] {
    return this.record.interfaces
      .flatMap(({ addresses }) => addresses)
      .map((address) => address.replace(/\/.*$/, ""));
  }

  async refresh(): Promise<this> {
    const { pod } = await this.#services.pods.get({ idOrName: this.id });
    if (pod !== undefined) this.record = pod;
    return this;
  }

  /**
   * Runs a program in the pod to its end. A text is a command of the pod's shell. Resolves however
   * the program ends, unless `check` is set.
   */
  exec(program: string | readonly string[], options: ProgramOptions = {}): Promise<ProgramResult> {
    const args = typeof program === "string" ? ["sh", "-c", program] : [...program];
    return runProgram(this.#services, this.id, args, options);
  }

  /**
   * Waits until the pod is `running`, is `configured` (its guest has reported all addresses),
   * accepts a connection from here at a TCP port (`port:22`), or is `stopped` (its VM has ended).
   * Throws `DEADLINE_EXCEEDED`, the reason of a pod that fails, `POD_NOT_FOUND` for one that is
   * deleted meanwhile.
   */
  async waitFor(condition: Condition, options: Waiting = {}): Promise<this> {
    this.record = await waitFor(this.#services, this.record, condition, options);
    return this;
  }

  async start(): Promise<this> {
    await this.#services.pods.start({ idOrName: this.id });
    return this.refresh();
  }

  async stop(): Promise<this> {
    await this.#services.pods.stop({ idOrName: this.id });
    return this.refresh();
  }

  async pause(): Promise<this> {
    await this.#services.pods.pause({ idOrName: this.id });
    return this.refresh();
  }

  async resume(): Promise<this> {
    await this.#services.pods.resume({ idOrName: this.id });
    return this.refresh();
  }

  /** Deletes the pod. `force` does not wait for its guest. */
  async delete({ force = false }: { readonly force?: boolean } = {}): Promise<void> {
    await this.#services.pods.delete({ idOrName: this.id, force });
  }
}

/** The pod, deleted at the end of its block unless it has gone already. */
export function createdPod(services: Podnet, record: PodRecord): CreatedPod {
  const pod = new Pod(services, record);
  const remove = async (): Promise<void> => {
    try {
      await pod.delete();
    } catch (thrown) {
      if (!isPodnetError(thrown, "POD_NOT_FOUND")) throw thrown;
    }
  };
  return Object.assign(pod, { [Symbol.asyncDispose]: remove });
}
