import { isDeepStrictEqual } from "node:util";
import type { PodSpec, SandboxSpec } from "../../api/pod-spec.ts";
import type { CreateSpec } from "../../api/validate/validate.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { isDamaged } from "../pods/store/pod-rows.ts";
import type { Pods } from "../pods/pods.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import { setSysctls } from "./sysctls.ts";

/** A pod that is a sandbox. */
export interface Sandbox extends PodRow {
  readonly spec: PodSpec & { readonly sandbox: SandboxSpec };
}

const isSandbox = (row: PodRow): row is Sandbox => row.spec.sandbox !== undefined;

/** The machine is there. A paused one comes back: kubelet is not to replace it. */
export const isReady = ({ state }: Pick<PodRow, "state">): boolean =>
  state === "running" || state === "paused";

/** The sandboxes among the pods. Other pods are not to be seen or changed from here. */
export class Sandboxes {
  readonly #pods: Pick<Pods, "create" | "stop" | "delete" | "find" | "listAny" | "running">;
  readonly #running = new KeyedLock<string>();

  constructor(pods: Pick<Pods, "create" | "stop" | "delete" | "find" | "listAny" | "running">) {
    this.#pods = pods;
  }

  /**
   * Runs a sandbox. Asked again for one that runs as it is asked for, whose answer was lost say,
   * it is that one; a retry waits for the undo of a call that was given up. Throws `NAME_IN_USE`
   * for metadata of another sandbox, and as a create does.
   */
  async run(asked: CreateSpec, options: CreateOptions): Promise<Sandbox> {
    const { name = "" } = asked.spec;
    const made = await this.#running.run(name, async () => {
      const there = this.#search(name);
      if (there === undefined) return await this.#set(await this.#pods.create(asked, options));
      if (isReady(there) && isSame(there.spec, asked.spec)) return await this.#set(there);
      throw new PodnetError(
        "NAME_IN_USE",
        `Sandbox ${there.id} has this name, namespace, uid and attempt already`,
        { field: "config.metadata", hint: "Remove that sandbox first, or raise attempt" },
      );
    });
    return this.find(made.id);
  }

  /** Sets the kernel of a machine that has come; without it there is no sandbox. */
  async #set({ id }: Pick<PodRow, "id">): Promise<Pick<PodRow, "id">> {
    try {
      const { sysctls = [] } = this.find(id).spec.sandbox;
      if (sysctls.length > 0) await setSysctls(this.#pods.running(id), sysctls);
    } catch (thrown) {
      await this.remove(id);
      throw thrown;
    }
    return { id };
  }

  /** Ends a sandbox's machine at once: its containers have had their time. Absent is stopped. */
  async stop(id: string): Promise<void> {
    await absentIsDone(async () => {
      await this.#pods.stop(this.find(id).id, { force: true });
    });
  }

  /** Ends and deletes a sandbox, and frees what it holds. Absent is removed. */
  async remove(id: string): Promise<void> {
    await this.stop(id);
    await absentIsDone(async () => {
      await this.#pods.delete(this.find(id).id, { force: false });
    });
  }

  /** Finds a sandbox by its whole id. Throws `POD_NOT_FOUND`, also for a pod that is none. */
  find(id: string): Sandbox {
    const row = this.#search(id);
    if (row !== undefined && row.id === id && isSandbox(row)) return row;
    throw new PodnetError("POD_NOT_FOUND", `There is no sandbox "${printable(id)}"`, {
      hint: "crictl pods lists those there are",
    });
  }

  /** All whose run was answered, newest first. */
  list(): readonly Sandbox[] {
    return this.#pods
      .listAny()
      .flatMap((row) => (isDamaged(row) || !isSandbox(row) || isComing(row) ? [] : [row]))
      .toSorted((a, b) => b.createdMs - a.createdMs);
  }

  #search(idOrName: string): PodRow | undefined {
    try {
      return this.#pods.find(idOrName);
    } catch (thrown) {
      if (isPodnetError(thrown) && thrown.code === "POD_NOT_FOUND") return undefined;
      throw thrown;
    }
  }
}

const isComing = ({ state, established }: PodRow): boolean => state === "creating" && !established;

/** Labels of podnet can be changed later. */
const isSame = (has: PodSpec, asked: PodSpec): boolean =>
  isDeepStrictEqual(plain({ ...has, labels: {} }), plain({ ...asked, labels: {} }));

/** As it is stored. */
const plain = (spec: PodSpec): unknown => JSON.parse(JSON.stringify(spec));

async function absentIsDone(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (thrown) {
    if (!isPodnetError(thrown) || thrown.code !== "POD_NOT_FOUND") throw thrown;
  }
}
