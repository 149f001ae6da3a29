import type { AttachmentName } from "../../daemon/containers/attachment-rows.ts";
import type { AttachmentId } from "../../daemon/store/holder.ts";

export interface Promised {
  readonly name: AttachmentName;
  readonly id: AttachmentId;
  /** What its runtime keeps: the configuration with what ADD answered. */
  readonly checkWith: unknown;
}

export const keyOf = ({ containerId, ifName }: AttachmentName): string =>
  `${containerId} ${ifName}`;

/** What runtimes were answered and have not taken back. */
export class ContainerBook {
  /** Answered ADDs without a DEL. */
  readonly promised = new Map<string, Promised>();
  /** Attachments whose DEL was answered, or written down while the daemon was away. */
  readonly ended = new Set<AttachmentId>();
  /** Attachments that lost routes while later plugins may run: podnetd leaves that so. */
  readonly withoutRoutes = new Set<AttachmentId>();
  /** How often the end of each was asked for: an ADD that was under way then promises nothing. */
  readonly #ends = new Map<string, number>();

  ends(name: AttachmentName): number {
    return this.#ends.get(keyOf(name)) ?? 0;
  }

  /** From here on it may be gone, whatever is answered. */
  end(name: AttachmentName): void {
    this.promised.delete(keyOf(name));
    this.#ends.set(keyOf(name), this.ends(name) + 1);
  }

  promise(promised: Promised, ends: number): void {
    if (ends === this.ends(promised.name)) this.promised.set(keyOf(promised.name), promised);
  }

  clear(): void {
    for (const { name } of this.promised.values()) this.end(name);
    this.ended.clear();
  }
}
