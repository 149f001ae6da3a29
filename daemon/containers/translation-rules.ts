import type { Log } from "../../linux/log.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { ruledPart } from "../../network/containers/host-part.ts";
import type { AttachedFragment, PluggedFragment } from "../../network/model/desired.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { AttachmentId } from "../store/holder.ts";

/** Longest one look at the rules of many containers may take, milliseconds. */
const lookMs = 60_000;
/** Until rules that could not be written are tried again, milliseconds, unless given. */
const usualAgainMs = 2000;

/**
 * From an ADD to the commit of its rules, milliseconds: it neither delays the answer, nor that of
 * others under way, whose rules it then has too.
 */
const gatherMs = 20;

export type RulesHost = Pick<HostNetwork, "inspectRules">;

/** The containers whose rules are still to be written. */
export interface Unruled {
  unruled(): readonly { readonly id: AttachmentId; readonly fragment: AttachedFragment }[];
  /** From now on drift repair checks the rules of these containers. */
  ruled(ids: readonly AttachmentId[]): void;
}

export interface TranslationRulesParts {
  readonly host: RulesHost;
  readonly ready: Unruled;
  readonly log: Log;
  readonly againMs?: number;
}

/**
 * The rules by which containers accept connections that other programs on this host translate to
 * them. ADD does not wait for them, as an iptables commit takes tens of milliseconds: the rules of
 * all containers added meanwhile are written in one commit. A program that translates to a
 * container gets its address from ADD's result, and starts programs of its own first.
 */
export class TranslationRules {
  readonly #parts: TranslationRulesParts;
  /** One key: one commit writes the rules of all containers. */
  readonly #queue: WorkQueue<"rules">;

  constructor(parts: TranslationRulesParts) {
    this.#parts = parts;
    const { log, againMs = usualAgainMs } = parts;
    this.#queue = new WorkQueue({
      name: "container-rules",
      backoff: { firstMs: againMs, longestMs: againMs },
      onDegraded: (_, { error }) =>
        log.warn(
          { err: error },
          "Connections translated by others do not reach new containers yet",
        ),
      onRecovered: () => log.info({}, "Connections translated by others reach all containers"),
    });
  }

  /**
   * Has the rules of new containers written; resolves after the attempt. A failure is logged and
   * retried here: drift repair would not notice it, because a failed commit changes nothing of the
   * host's rules.
   */
  write(): Promise<void> {
    return this.#queue.run("rules", () => this.#write()).catch(() => {});
  }

  /** Has them written without waiting. */
  writeSoon(): void {
    this.#queue.add("rules", () => this.#write(), gatherMs);
  }

  /**
   * Stops retrying; resolves when no commit is under way. Missing rules are left to the next start.
   */
  close(): Promise<void> {
    return this.#queue.close();
  }

  async #write(): Promise<void> {
    const { host, ready } = this.#parts;
    const ids = new Map<PluggedFragment, AttachmentId>();
    const now = (): readonly PluggedFragment[] => {
      ids.clear();
      for (const { id, fragment } of ready.unruled()) ids.set(fragment, id);
      return [...ids.keys()];
    };
    let failure: unknown;
    try {
      const seen = await host.inspectRules(now, () => true, AbortSignal.timeout(lookMs));
      for (const [fragment, { error }] of seen) {
        if (error === undefined) continue;
        failure ??= error;
        ids.delete(fragment);
      }
    } catch (err) {
      failure = err;
      ids.clear();
    }
    ready.ruled([...ids.values()]);
    if (failure !== undefined) throw failure;
  }
}

/**
 * Removes the rules of containers whose traffic has ended. Absent is success. Throws the first
 * failure.
 */
export async function removeTranslationRules(
  fragments: readonly AttachmentFragment[],
  host: RulesHost,
): Promise<void> {
  // (Containers with published ports have lost all rules with the ports.)
  const gone = fragments
    .filter(({ published }) => published === undefined)
    .map((fragment) => withoutRules(ruledPart(fragment)));
  if (gone.length === 0) return;
  const seen = await host.inspectRules(
    () => gone,
    () => true,
    AbortSignal.timeout(lookMs),
  );
  for (const { error } of seen.values()) if (error !== undefined) throw error;
}

const withoutRules = (fragment: AttachedFragment): AttachedFragment => ({
  ...fragment,
  ports: [],
  published: [],
  translated: [],
});
