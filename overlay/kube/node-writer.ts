import type { Clock } from "../../core/clock.ts";
import { isPodnetError } from "../../core/errors.ts";
import { guard, guarded } from "../../core/guard.ts";
import { retryAfterOf } from "../../kubernetes/errors.ts";
import type { KubeObject } from "../../kubernetes/objects.ts";
import type { Host } from "../claim.ts";
import type { OverlayConfig } from "../flannel/config.ts";
import type { Subnets } from "../flannel/key.ts";
import {
  isAnnotated,
  isDataOf,
  noAnnotations,
  ownAnnotations,
  type WrittenName,
} from "./annotations.ts";
import type { OverlayNode } from "./node.ts";
import type { NodeStore } from "./node-store.ts";
import { nodePatch } from "./patch.ts";

/** What is to be written into this host's Node, or why it cannot be. */
export type Wanted =
  | {
      readonly kind: "write";
      readonly annotations: Readonly<Partial<Record<WrittenName, string | null>>>;
      /** The condition NetworkUnavailable; undefined leaves it as it is. */
      readonly unavailable: boolean | undefined;
    }
  | { readonly kind: "address"; readonly family: 4 | 6 };

interface Intended {
  readonly leaving: boolean;
  /** It has left, and the Node is no business of its any more. */
  readonly hasLeft: boolean;
  /** The subnets that this host has. */
  readonly has: Subnets | undefined;
  readonly host: Host;
  readonly config: OverlayConfig | undefined;
  readonly isReady: boolean;
  readonly writesCondition: boolean;
}

/** What a Node does not say yet of this host; undefined if it says all of it. Pure. */
export function wantedOf(node: OverlayNode, intended: Intended): Wanted | undefined {
  const { leaving, hasLeft, has, host, config, isReady, writesCondition } = intended;
  if (has === undefined) {
    if (!leaving || hasLeft) return undefined;
    // Another program may have taken the annotations away, and left the condition.
    const says = writesCondition && node.networkUnavailable === "False" && node.isConditionOwn;
    const isTheirs = !isDataOf(node.annotations, host);
    if (!says && (isTheirs || isAnnotated(node.annotations, noAnnotations))) return undefined;
    return {
      kind: "write",
      annotations: isTheirs ? {} : noAnnotations,
      unavailable: writesCondition ? true : undefined,
    };
  }
  if (leaving || config === undefined) return undefined;
  const own = ownAnnotations(host, config, node.annotations);
  if (own.kind === "address") return own;
  const { annotations } = own;
  const unavailable =
    writesCondition && isReady && node.networkUnavailable !== "False" ? false : undefined;
  return unavailable === undefined && isAnnotated(node.annotations, annotations)
    ? undefined
    : { kind: "write", annotations, unavailable };
}

export interface NodeWriterParts {
  readonly store: Pick<NodeStore, "read" | "patch">;
  readonly clock: Clock;
  /** The prefix of flannel's annotations. */
  readonly prefix: string;
  /** This host's Node, as it is known. */
  readonly node: () => OverlayNode | undefined;
  readonly wanted: (node: OverlayNode) => Wanted | undefined;
  /** Called with the Node as an answer has it; undefined: it is not there. */
  readonly onRead: (object: KubeObject | undefined) => void;
  /** Called after each attempt. */
  readonly onChange: () => void;
}

/** Longest for one call, milliseconds. */
const callMs = 10_000;
/** How often a write is decided anew because the Node was changed meanwhile. */
const mostConflicts = 5;
/** The pause after a write, milliseconds, doubled while writes follow each other. */
const firstPauseMs = 250;
const longestPauseMs = 30_000;
/** Writes further apart, milliseconds, do not follow each other. */
const quietMs = 120_000;

/**
 * Writes into this host's Node what it does not say. One write at a time, each under the condition
 * that the Node is as it was when the write was decided. Where another program writes otherwise
 * again and again, or calls fail, the pauses grow.
 */
export class NodeWriter implements AsyncDisposable {
  readonly #parts: NodeWriterParts;
  readonly #stop = new AbortController();
  #writing: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #notBefore = -Infinity;
  #pauseMs = firstPauseMs;
  #failure: unknown;

  constructor(parts: NodeWriterParts) {
    this.#parts = parts;
  }

  /** Why the last write failed; undefined if it did not. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Whether a write is on its way, of which the Node as it is known says nothing yet. */
  get isWriting(): boolean {
    return this.#writing !== undefined;
  }

  /** The Node, or what it is to say, may have changed. */
  wake(): void {
    if (this.#stop.signal.aborted || this.#writing !== undefined) return;
    clearTimeout(this.#timer);
    const { node, wanted, clock } = this.#parts;
    const now = node();
    if (now === undefined || wanted(now)?.kind !== "write") {
      this.#failure = undefined;
      return;
    }
    const waitMs = this.#notBefore - clock.monotonic();
    if (waitMs > 0) {
      this.#timer = setTimeout(
        guarded("kubernetes", () => this.wake()),
        waitMs,
      );
      return;
    }
    this.#writing = guard("kubernetes", () => this.#attempt()).finally(() => {
      this.#writing = undefined;
      if (!this.#stop.signal.aborted) this.#parts.onChange();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#timer);
    await this.#writing;
  }

  async #attempt(): Promise<void> {
    const { clock } = this.#parts;
    const now = clock.monotonic();
    // The pause has grown by writes that followed each other.
    if (now - this.#notBefore > quietMs) this.#pauseMs = firstPauseMs;
    try {
      await this.#write();
      this.#failure = undefined;
    } catch (thrown) {
      this.#failure = thrown;
    }
    // What a busy API server asks for is waited for, and the pause as well.
    this.#notBefore = clock.monotonic() + (retryAfterOf(this.#failure) ?? 0) + this.#pauseMs;
    this.#pauseMs = Math.min(longestPauseMs, 2 * this.#pauseMs);
  }

  async #write(): Promise<void> {
    const { store, node: known, wanted: wantedNow, prefix, onRead, clock } = this.#parts;
    for (let conflicts = 0; ; conflicts++) {
      const node = known();
      const wanted = node && wantedNow(node);
      if (node === undefined || wanted?.kind !== "write") return;
      const { annotations, unavailable } = wanted;
      const condition = unavailable === undefined ? undefined : { unavailable, at: clock.now() };
      try {
        const patch = nodePatch(node, prefix, annotations, condition);
        onRead(await store.patch(node.name, patch, this.#limit()));
        return;
      } catch (thrown) {
        if (!isPodnetError(thrown, "KUBERNETES_CONFLICT") || conflicts >= mostConflicts)
          throw thrown;
        onRead(await store.read(node.name, this.#limit()));
      }
    }
  }

  #limit(): AbortSignal {
    return AbortSignal.any([this.#stop.signal, AbortSignal.timeout(callMs)]);
  }
}
