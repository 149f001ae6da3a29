import { createReadStream } from "node:fs";
import { open, rename, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { type Digest, digestOf, hashLike, isDigest } from "../archive/digest.ts";
import type { StoredFiles } from "../archive/stored-files.ts";
import { type ImageReference, referenceText } from "../reference.ts";
import { unreadable } from "../unreadable.ts";
import { isPassing, readAnswer, type RegistryClient } from "./registry-client.ts";
import { unreachable } from "./registry-error.ts";

/** Bytes that a manifest or configuration may have. */
const mostJson = 4 * 2 ** 20;
/** How often a blob may be cut off without a byte more than before. */
const mostCuts = 5;

const accept = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");

/** The name of a blob's file. */
export const blobName = (digest: Digest): string => digest.replace(":", "-");

/**
 * An image of a registry as the files of an OCI layout, in a directory: small ones are fetched when
 * they are opened, layers by `fetchBlob`. What has been asked for by the tag once is asked for by
 * its digest from then on, so that a tag that moves meanwhile changes nothing.
 */
export class RegistryFiles implements StoredFiles {
  readonly #client: RegistryClient;
  readonly #directory: string;
  readonly #reference: ImageReference;
  readonly #signal: AbortSignal;
  #index: Uint8Array | undefined;
  /** Digests that an index names, which are manifests and no blobs. */
  readonly #manifests = new Set<string>();

  constructor(
    client: RegistryClient,
    directory: string,
    reference: ImageReference,
    signal: AbortSignal,
  ) {
    this.#client = client;
    this.#directory = directory;
    this.#reference = reference;
    this.#signal = signal;
  }

  async open(name: string) {
    if (name === "index.json") {
      this.#index ??= await this.#top();
      return inMemory(this.#index);
    }
    const digest = /^blobs\/(.*)$/.exec(name)?.[1]?.replace("/", ":") ?? "";
    if (!isDigest(digest)) return undefined;
    const file = path.join(this.#directory, blobName(digest));
    const found = await stat(file).catch(() => undefined);
    if (found === undefined) return inMemory(await this.#small(digest));
    return { bytes: found.size, read: () => createReadStream(file, { highWaterMark: 2 ** 18 }) };
  }

  /** The index of the layout: it has what the tag or digest leads to. */
  async #top(): Promise<Uint8Array> {
    const { tag, digest: wanted } = this.#reference;
    const bytes = await this.#manifest(wanted ?? tag ?? "latest");
    const digest = digestOf(bytes, wanted);
    if (wanted !== undefined && digest !== wanted)
      throw unreadable(`The registry ${this.#client.host} sent another manifest than ${wanted}`);
    await this.#keep(digest, bytes);
    const mediaType = mediaTypeOf(bytes);
    return Buffer.from(JSON.stringify({ manifests: [{ mediaType, digest, size: bytes.length }] }));
  }

  async #small(digest: Digest): Promise<Uint8Array> {
    const isManifest = this.#manifests.has(digest);
    const bytes = isManifest ? await this.#manifest(digest) : await this.#blob(digest);
    if (digestOf(bytes, digest) !== digest)
      throw unreadable(
        `The registry ${this.#client.host} sent other bytes than those of ${digest}`,
      );
    await this.#keep(digest, bytes);
    return bytes;
  }

  async #keep(digest: Digest, bytes: Uint8Array): Promise<void> {
    for (const each of manifestsIn(bytes)) this.#manifests.add(each);
    await writeFile(path.join(this.#directory, blobName(digest)), bytes, { mode: 0o600 });
  }

  async #manifest(what: string): Promise<Uint8Array> {
    const answer = await this.#client.get(`manifests/${what}`, { accept }, this.#signal);
    if (answer.status === 404) {
      answer.body.destroy();
      const name = printable(referenceText(this.#reference));
      throw new PodnetError("IMAGE_NOT_FOUND", `The registry has no image "${name}"`, {
        hint: "See whether name and tag are right; some registries say so of what you may not see",
        details: { registry: this.#client.host },
      });
    }
    return this.#read(answer.body);
  }

  async #blob(digest: Digest): Promise<Uint8Array> {
    const answer = await this.#client.get(`blobs/${digest}`, {}, this.#signal);
    if (answer.status === 200) return this.#read(answer.body);
    answer.body.destroy();
    throw unreadable(`The registry ${this.#client.host} lacks a part of the image, ${digest}`);
  }

  async #read(body: Parameters<typeof readAnswer>[0]): Promise<Uint8Array> {
    try {
      return await readAnswer(body, mostJson, this.#client.host);
    } catch (thrown) {
      if (thrown instanceof PodnetError || this.#signal.aborted) throw thrown;
      throw unreachable(this.#client.host, thrown);
    }
  }

  /**
   * Fetches a blob of so many bytes, from where it was cut off last. The file has its name when its
   * digest is right. Throws as the client does, and `IMAGE_UNREADABLE`.
   */
  async fetchBlob(digest: Digest, size: number, count: (bytes: number) => void): Promise<void> {
    const file = path.join(this.#directory, blobName(digest));
    const unfinished = `${file}.part`;
    await using handle = await open(unfinished, "w", 0o600);
    let hash = hashLike(digest);
    let had = 0;
    for (let cuts = 0; ; ) {
      const headers = had === 0 ? {} : { range: `bytes=${had}-` };
      const answer = await this.#client.get(`blobs/${digest}`, headers, this.#signal);
      if (answer.status === 404) {
        answer.body.destroy();
        throw unreadable(`The registry ${this.#client.host} lacks a layer of the image, ${digest}`);
      }
      if (had > 0 && !continues(answer.headers["content-range"], answer.status, had)) {
        // It sends all of it again.
        count(-had);
        had = 0;
        hash = hashLike(digest);
      }
      const before = had;
      try {
        for await (const part of answer.body as AsyncIterable<Uint8Array>) {
          if (had + part.length > size) {
            answer.body.destroy();
            throw unreadable(`The registry sent more than ${size} bytes of ${digest}`);
          }
          await handle.write(part, 0, part.length, had);
          hash.update(part);
          had += part.length;
          count(part.length);
        }
        if (had < size) throw Object.assign(new Error("The answer is short"), { code: "EPIPE" });
        break;
      } catch (thrown) {
        if (thrown instanceof PodnetError || this.#signal.aborted) throw thrown;
        if (isDiskFull(thrown)) throw thrown;
        cuts = had > before ? 0 : cuts + 1;
        if (cuts === mostCuts || !isCut(thrown)) throw unreachable(this.#client.host, thrown);
        await delay(100 * 2 ** cuts, undefined, { signal: this.#signal });
      }
    }
    if (!digest.endsWith(`:${hash.digest("hex")}`))
      throw unreadable(
        `The layer ${digest} that the registry ${this.#client.host} sent is damaged: its digest is another`,
        "The registry has damaged files, or someone changes what it sends; push the image again",
      );
    await rename(unfinished, file);
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

/** Whether the answer goes on where the last one was cut off. */
function continues(range: string | undefined, status: number, from: number): boolean {
  return status === 206 && new RegExp(`^bytes ${from}-`).test(range ?? "");
}

const isCut = (thrown: unknown): boolean =>
  isPassing(thrown) || (thrown instanceof Error && thrown.message === "aborted");

const isDiskFull = (thrown: unknown): boolean =>
  thrown instanceof Error &&
  "code" in thrown &&
  /^(?:ENOSPC|EDQUOT|EFBIG)$/.test(String(thrown.code));

const inMemory = (bytes: Uint8Array) => ({
  bytes: bytes.length,
  read: async function* read() {
    yield bytes;
  },
});

/** Parses JSON of which nothing is known. */
function jsonOf(bytes: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes).toString("utf8"));
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Digests of the manifests that an index names: none for all else. */
export function manifestsIn(bytes: Uint8Array): readonly string[] {
  const { manifests } = jsonOf(bytes);
  if (!Array.isArray(manifests)) return [];
  return manifests.flatMap((each: unknown) => {
    const digest =
      typeof each === "object" && each !== null && "digest" in each ? each.digest : undefined;
    return typeof digest === "string" ? [digest] : [];
  });
}

/** By what a manifest is, not by the header that it came with. */
function mediaTypeOf(bytes: Uint8Array): string {
  const isIndex = Array.isArray(jsonOf(bytes)["manifests"]);
  return `application/vnd.oci.image.${isIndex ? "index" : "manifest"}.v1+json`;
}
