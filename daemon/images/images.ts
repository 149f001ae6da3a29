import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/clock.ts";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { didYouMean } from "../../core/nearest.ts";
import type { Digest } from "../../images/archive/digest.ts";
import {
  type ImageReference,
  parseReference,
  referenceText,
  repositoryText,
  withRegistry,
} from "../../images/reference.ts";
import type { Database } from "../store/database.ts";
import {
  deleteImage,
  deleteName,
  imageNamed,
  type ImageRow,
  imagesBeginning,
  listImages,
  markRemoving,
  putName,
  touchImage,
} from "./store.ts";

/** An image that is there, with its file. */
export interface StoredImageRow extends ImageRow {
  /** A squashfs, or a disk. It never changes, and is there until the image is removed. */
  readonly file: string;
}

/** Which images may go. */
interface PruneChoice {
  /** Images with names as well. */
  readonly all: boolean;
  /** Only images not used since. */
  readonly untilMs: number | undefined;
}

export interface ImagesParts {
  readonly db: Database;
  /** Where the files are: podnetd's own. */
  readonly directory: string;
  /** The registry of names that have none. */
  readonly registry: string;
  /** Bytes that all files may have, and whether images that no pod needs make room for new ones. */
  readonly mostBytes: number;
  readonly evict: boolean;
  /** Who needs a file of an image, for people. Whoever can hold one says so here. */
  readonly holders: (file: string) => readonly string[];
  readonly clock: Clock;
}

// Shorter ones are more likely a name that was mistyped.
const prefixPattern = /^(?:sha256:)?[0-9a-f]{4,64}$/;

/**
 * The images of this host. A row is committed before its file is made, and deleted after its file:
 * `recover` completes what a podnetd that was killed had begun.
 */
export class Images {
  readonly #parts: ImagesParts;

  constructor(parts: ImagesParts) {
    this.#parts = parts;
  }

  /** Removes files of images that are not ready, and what is left of work on them. */
  recover(): void {
    const { db, directory } = this.#parts;
    perform("file", "make images directory", () =>
      mkdirSync(directory, { recursive: true, mode: 0o700 }),
    );
    for (const image of listImages(db)) if (image.state !== "ready") this.#removeFile(image);
  }

  /** All that are ready. */
  list(): readonly StoredImageRow[] {
    return listImages(this.#parts.db)
      .filter(({ state }) => state === "ready")
      .map((row) => this.#withFile(row));
  }

  /**
   * The image that a reference means: NAME[:TAG], REGISTRY/NAME[:TAG], NAME@DIGEST, a digest, or at
   * least the first four characters of one. Throws `IMAGE_NOT_FOUND`, `INVALID_ARGUMENT`.
   */
  findImage(reference: string): StoredImageRow {
    const found = this.#named(reference) ?? this.#beginning(reference);
    if (found !== undefined) return this.#withFile(found);
    throw new PodnetError("IMAGE_NOT_FOUND", `There is no image "${printable(reference)}"`, {
      hint: `${this.#meant(reference)}See podnet image list; podnet image pull gets one from a registry`,
    });
  }

  /** A name is often written without its registry and tag. */
  #meant(reference: string): string {
    const names = this.list().flatMap((image) => image.names);
    const short = names.flatMap((name) => {
      const last = name.slice(name.lastIndexOf("/") + 1);
      return [last, last.replace(/[:@].*$/, "")];
    });
    return didYouMean(reference, [...short, ...names]);
  }

  /** Says that a pod was made of the image, for the order in which images are pruned. */
  used({ digest }: Pick<ImageRow, "digest">): void {
    touchImage(this.#parts.db, digest, this.#parts.clock.now());
  }

  /** Gives an image one more name, which another image may lose. */
  tag(reference: string, name: string): StoredImageRow {
    const { digest } = this.findImage(reference);
    putName(this.#parts.db, nameOf(name), digest);
    return this.findImage(digest);
  }

  /** Takes a name from its image, which stays. Whether there was this name. */
  untag(name: string): boolean {
    const { db, registry } = this.#parts;
    const found = candidates(parseReference(name, "name"), registry).find(
      (each) => imageNamed(db, each) !== undefined,
    );
    if (found === undefined) return false;
    deleteName(db, found);
    return true;
  }

  /**
   * Removes an image with all its names and its file. Throws `IMAGE_IN_USE` when a pod needs it,
   * `IMAGE_NOT_FOUND`.
   */
  remove(reference: string): StoredImageRow {
    const image = this.findImage(reference);
    const [holder] = this.#parts.holders(image.file);
    if (holder !== undefined)
      throw new PodnetError(
        "IMAGE_IN_USE",
        `Image "${printable(reference)}" is in use by ${printable(holder)}`,
        { hint: "Delete the pods that use it first", details: { holder } },
      );
    this.#remove(image);
    return image;
  }

  /** Whether a pod needs the file. */
  isHeld(file: string): boolean {
    return this.#parts.holders(file).length > 0;
  }

  /**
   * Removes the images that were used least recently, if it may, until there is room for so many
   * bytes more. Throws `LIMIT_REACHED`, with nothing removed.
   */
  makeRoom(bytes: number): void {
    const { mostBytes, evict } = this.#parts;
    const all = this.list();
    let over = all.reduce((sum, image) => sum + image.bytes, bytes) - mostBytes;
    const going: StoredImageRow[] = [];
    for (const image of evict ? all.toSorted((a, b) => a.usedMs - b.usedMs) : []) {
      if (over <= 0) break;
      if (this.isHeld(image.file)) continue;
      going.push(image);
      over -= image.bytes;
    }
    if (over > 0)
      throw new PodnetError("LIMIT_REACHED", "The images of this host would take too much room", {
        hint: "podnet image prune removes images without a name; or raise images.max_mib",
      });
    for (const image of going) this.#remove(image);
  }

  /** Removes images that no pod needs. `planOnly` only finds them. */
  prune({ all, untilMs }: PruneChoice, planOnly: boolean): readonly StoredImageRow[] {
    const found = this.list().filter(
      ({ names, usedMs, file }) =>
        (all || names.length === 0) &&
        (untilMs === undefined || usedMs < untilMs) &&
        this.#parts.holders(file).length === 0,
    );
    if (!planOnly) for (const image of found) this.#remove(image);
    return found;
  }

  #remove(image: ImageRow): void {
    markRemoving(this.#parts.db, image.digest);
    this.#removeFile(image);
  }

  #removeFile({ digest }: Pick<ImageRow, "digest">): void {
    perform("file", "remove image", () => rmSync(this.fileOf(digest), { force: true }));
    deleteImage(this.#parts.db, digest);
  }

  #named(reference: string): ImageRow | undefined {
    if (reference.startsWith("sha256:")) return undefined;
    const { db, registry } = this.#parts;
    const parsed = parseReference(reference);
    // What was pulled by a digest has it in its name: it may be that of an index.
    const named = candidates(
      parsed.digest === undefined ? parsed : { ...parsed, tag: undefined },
      registry,
    );
    const found = named.map((name) => imageNamed(db, name)).find((each) => each !== undefined);
    if (parsed.digest === undefined || found !== undefined) return found;
    const image = imagesBeginning(db, parsed.digest).at(0);
    // Another repository may have the same bytes, but that is not known.
    const ofRepository = [parsed, withRegistry(parsed, registry)].map(repositoryText);
    return image?.names.some((name) => ofRepository.includes(repositoryText(parseReference(name))))
      ? image
      : undefined;
  }

  #beginning(reference: string): ImageRow | undefined {
    if (!prefixPattern.test(reference)) return undefined;
    const prefix = reference.startsWith("sha256:") ? reference : `sha256:${reference}`;
    const [found, second] = imagesBeginning(this.#parts.db, prefix);
    if (second === undefined) return found;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `Several images have a digest that begins with "${printable(reference)}"`,
      { field: "reference", hint: "Write more of the digest" },
    );
  }

  #withFile(row: ImageRow): StoredImageRow {
    return { ...row, file: this.fileOf(row.digest) };
  }

  fileOf(digest: Digest): string {
    return join(this.#parts.directory, `${digest.replace(":", "-")}.img`);
  }
}

/** A name as it is stored. */
const nameOf = (text: string): string => {
  const reference = parseReference(text, "name");
  if (reference.tag !== undefined && reference.digest === undefined)
    return referenceText(reference);
  throw new PodnetError("INVALID_ARGUMENT", "A name that an image is given has no digest", {
    field: "name",
    hint: "Write NAME:TAG",
  });
};

/** The stored names that a reference may mean: as it is written, then with a registry. */
const candidates = (reference: ImageReference, registry: string): readonly string[] => [
  ...new Set([reference, withRegistry(reference, registry)].map(referenceText)),
];
