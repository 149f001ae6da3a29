import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ServiceParts } from "../api/context.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { isDamaged } from "../pods/store/pod-rows.ts";
import type { Container } from "./containers/container.ts";
import { innerContainerOf } from "./containers/inner-container.ts";
import type { InnerContainers } from "./containers/inner-containers.ts";
import { mainContainer } from "./containers/main-container.ts";
import { type AnyPod, idOf } from "./pod-ids.ts";

/** All pods but Kubernetes' sandboxes, which are kubelet's. */
export class KnownPods {
  readonly #parts: ServiceParts;
  readonly #inner: InnerContainers;

  constructor(parts: ServiceParts, inner: InnerContainers) {
    this.#parts = parts;
    this.#inner = inner;
  }

  /** Oldest first. */
  list(): readonly AnyPod[] {
    return this.#parts.pods
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
      if (isDamaged(row)) return [];
      const { process } = row.plan;
      if (process !== undefined) return [mainContainer(row, process, this.#parts)];
      return this.#inner.of(row).map((each) => innerContainerOf(row, each, this.#inner));
    });
  }

  /** Finds a container by its id, the start of it, its name, or its pod. */
  container(text: string): Container {
    const all = this.containers();
    const wanted = text.replace(/^\//, "");
    const tries: readonly ((each: Container) => boolean)[] = [
      ({ id }) => id === wanted,
      ({ name }) => name === wanted,
      ({ id }) => wanted.length >= 4 && id.startsWith(wanted),
      ({ row }) => idOf(row) === wanted || row.name === wanted || row.id === wanted,
    ];
    for (const fits of tries) {
      const [found, ...more] = all.filter(fits);
      if (found === undefined) continue;
      if (more.length === 0) return found;
      throw new PodnetError("INVALID_ARGUMENT", `${printable(text)} are several containers`, {
        field: "container",
        hint: "Give an id: hyperctl list container shows them",
      });
    }
    throw new PodnetError("CONTAINER_NOT_FOUND", `Can not find container(${printable(text)})`, {
      hint: "hyperctl list container shows those there are",
    });
  }

  #named(id: string): PodRow | undefined {
    if (!/^[a-z0-9-]{1,63}$/.test(id)) return undefined;
    try {
      return this.#parts.pods.find(id);
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
