import { kubernetesError } from "./errors.ts";

/**
 * The longest line of a watch, in bytes. An object has at most 1.5 MiB (etcd's limit for a
 * request), and each of its bytes may take six characters in JSON.
 */
export const longestLine = 12 << 20;

const newline = 0x0a;

/** Splits a stream into lines, wherever its chunks are cut. */
export class LineSplitter {
  readonly #longest: number;
  /** The pieces of the line that has not ended. */
  #pieces: Uint8Array[] = [];
  #length = 0;

  constructor(longest = longestLine) {
    this.#longest = longest;
  }

  /** The lines that end in a chunk, without empty ones. Throws `KUBERNETES_FAILED`. */
  push(chunk: Uint8Array): string[] {
    const lines: string[] = [];
    let from = 0;
    for (
      let end = chunk.indexOf(newline);
      end !== -1;
      from = end + 1, end = chunk.indexOf(newline, from)
    ) {
      this.#add(chunk.subarray(from, end));
      const line = Buffer.concat(this.#pieces).toString("utf8").trim();
      this.#pieces = [];
      this.#length = 0;
      if (line !== "") lines.push(line);
    }
    this.#add(chunk.subarray(from));
    return lines;
  }

  #add(piece: Uint8Array): void {
    if (piece.length === 0) return;
    this.#length += piece.length;
    if (this.#length > this.#longest)
      throw kubernetesError(
        "KUBERNETES_FAILED",
        `A watch of Kubernetes' API server has a line of more than ${this.#longest} bytes`,
      );
    this.#pieces.push(piece);
  }
}
