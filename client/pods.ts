import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Podnet } from "../api/client.ts";
import type { PodSpecSchema } from "../api/gen/podnet/v1/pod_spec_pb.ts";
import { PodnetError } from "../core/errors.ts";
import { type CreatedPod, createdPod, Pod } from "./pod.ts";

/** A pod's specification: docs/reference/pod-spec.md, with names in camel case. */
export type PodRequest = MessageInitShape<typeof PodSpecSchema>;

export interface CreateOptions {
  /** A retry with the same id and request joins the first one: 1 to 64 visible characters. */
  readonly requestId?: string;
  /** How long the create may take until it is undone, 1,000 to 600,000 milliseconds. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** The pods of a podnetd. */
export class Pods {
  readonly #services: Podnet;

  constructor(services: Podnet) {
    this.#services = services;
  }

  /**
   * Creates a pod, and resolves when its network works. `await using` deletes it at the end of its
   * block; without that it stays.
   */
  async create(
    request: PodRequest = {},
    { requestId = "", timeoutMs = 0, signal }: CreateOptions = {},
  ): Promise<CreatedPod> {
    const { pod } = await this.#services.pods.create(
      { spec: request, requestId, timeoutMs },
      signal === undefined ? {} : { signal },
    );
    if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
    return createdPod(this.#services, pod);
  }

  /** A pod by its name or id. Throws `POD_NOT_FOUND`. */
  async get(idOrName: string): Promise<Pod> {
    const { pod } = await this.#services.pods.get({ idOrName });
    if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
    return new Pod(this.#services, pod);
  }

  /** Every pod, the oldest first. */
  async list(): Promise<Pod[]> {
    const { pods } = await this.#services.pods.list({});
    return pods.map((pod) => new Pod(this.#services, pod));
  }
}
