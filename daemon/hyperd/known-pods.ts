import { createHash } from "node:crypto";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { Pods } from "../pods/pods.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { type DamagedPod, isDamaged } from "../pods/store/pod-rows.ts";

/** A pod that may be unreadable. */
export type AnyPod = PodRow | DamagedPod;

/** A pod with a main process, which is its one container. */
export interface Container {
  readonly id: string;
  readonly name: string;
  readonly row: PodRow;
}

/** The id by which callers of hyperd know a pod: the one they gave, which is its name as well. */
export const idOf = (row: AnyPod): string =>
  isDamaged(row) ? row.name : (row.spec.hyperd?.id ?? row.name);

/** The machine's id; empty where there is none. */
export const vmOf = (row: AnyPod): string =>
  !isDamaged(row) && ["creating", "running", "paused", "stopping"].includes(row.state)
    ? `vm-${row.id}`
    : "";

/** All pods but Kubernetes' sandboxes, which are kubelet's. */
export class KnownPods {
  readonly #pods: Pick<Pods, "find" | "listAny">;

  constructor(pods: Pick<Pods, "find" | "listAny">) {
    this.#pods = pods;
  }

  /** Oldest first. */
  list(): readonly AnyPod[] {
    return this.#pods
      .listAny()
      .filter((row) => isDamaged(row) || row.spec.sandbox === undefined)
      .toSorted((a, b) => a.createdMs - b.createdMs);
  }

  /**
   * Finds a pod by hyperd's id, its name or podnet's id. Throws `POD_NOT_FOUND` with hyperd's
   * sentence, `STATE_CORRUPT`.
   */
  find(id: string, sentence = (shown: string) => `Can not find pod(${shown})`): PodRow {
    const row = this.#named(id) ?? this.#known(id);
    if (row !== undefined && row.spec.sandbox === undefined) return row;
    throw new PodnetError("POD_NOT_FOUND", sentence(printable(id)), {
      hint: "hyperctl list shows the pods there are",
    });
  }

  /** The containers of all pods, or of one. */
  containers(pods: readonly AnyPod[] = this.list()): readonly Container[] {
    return pods.flatMap((row) => {
      if (isDamaged(row) || row.plan.process === undefined) return [];
      const { container } = row.spec.hyperd ?? {};
      const name = container?.name ?? "";
      return [{ id: containerId(row), name: name === "" ? idOf(row) : name, row }];
    });
  }

  /** Finds a container by its id, the start of it, its name, or its pod. */
  container(text: string): Container {
    const all = this.containers();
    const wanted = text.replace(/^\//, "");
    const found =
      all.find(({ id, name }) => id === wanted || name === wanted) ??
      only(all.filter(({ id }) => wanted.length >= 4 && id.startsWith(wanted))) ??
      all.find(({ row }) => idOf(row) === wanted || row.name === wanted || row.id === wanted);
    if (found !== undefined) return found;
    throw new PodnetError("POD_NOT_FOUND", `Can not find container(${printable(text)})`, {
      hint: "hyperctl list container shows those there are",
    });
  }

  #named(id: string): PodRow | undefined {
    if (!/^[a-z0-9-]{1,63}$/.test(id)) return undefined;
    try {
      return this.#pods.find(id);
    } catch (thrown) {
      if (isPodnetError(thrown, "POD_NOT_FOUND")) return undefined;
      throw thrown;
    }
  }

  #known(id: string): PodRow | undefined {
    const found = this.list().find((row) => idOf(row) === id);
    return found === undefined || isDamaged(found) ? undefined : found;
  }
}

/** As docker's ids are: 64 hexadecimal digits. */
const containerId = ({ id }: PodRow): string =>
  createHash("sha256").update(`container of pod ${id}`).digest("hex");

const only = <Item>(items: readonly Item[]): Item | undefined =>
  items.length === 1 ? items[0] : undefined;
