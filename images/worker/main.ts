/**
 * podnet-images: makes an image's disk in the directory that it runs in. podnetd describes the work
 * by a line of JSON on standard input; progress and result go to standard output. The program reads
 * hostile input, so podnetd confines it. It ends when podnetd is gone.
 */
import { fstatSync, read } from "node:fs";
import { rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { readImage } from "../archive/image.ts";
import type { Compression } from "../archive/compression.ts";
import { recognize } from "../archive/recognize.ts";
import { rootfsImage } from "../archive/rootfs.ts";
import { openArchive, type StoredFiles } from "../archive/stored-files.ts";
import { convertStored } from "../convert-image.ts";
import { overhead } from "../layers/bounds.ts";
import { RegistryClient } from "../registry/registry-client.ts";
import { RegistryFiles } from "../registry/registry-files.ts";
import type { ReadableFile } from "../tar/byte-source.ts";
import { copyDisk } from "./copy-disk.ts";
import {
  failedLine,
  type HadBlobs,
  type ImageJob,
  madeFile,
  noConfig,
  type Stage,
} from "./messages.ts";

const archiveFd = 3;
/** Layers that are fetched at a time. */
const fetches = 3;
const everyMs = 100;

const say = (message: object): void => void process.stdout.write(`${JSON.stringify(message)}\n`);

/** Says how far a stage is, now and then. */
function progressOf(stage: Stage): (done: number, all: number) => void {
  let last = -Infinity;
  return (done, all) => {
    const now = performance.now();
    if (now - last < everyMs && done < all) return;
    last = now;
    say({ progress: { stage, done, all } });
  };
}

type Opened = {
  readonly stored: StoredFiles;
  readonly image: Awaited<ReturnType<typeof readImage>>;
};

const readAt = promisify(read);

/** What podnetd gives. */
const given: ReadableFile = {
  read: (buffer, offset, length, position) => readAt(archiveFd, buffer, offset, length, position),
};

type Archive = ImageJob["source"] & { readonly kind: "archive" };

const sizeOf = ({ bytes }: Archive): number => Math.min(bytes, fstatSync(archiveFd).size);

/** An archive of images, or of a root directory: it has neither of the files that say so. */
async function openGiven(
  { architecture, limits }: ImageJob,
  source: Archive,
  compression: Compression | undefined,
): Promise<Opened> {
  const { name } = source;
  const file = given;
  const size = sizeOf(source);
  const stored = await openArchive(file, size).catch((thrown: unknown) => {
    if (thrown instanceof PodnetError && thrown.code === "IMAGE_UNREADABLE") return undefined;
    throw thrown;
  });
  const isImage =
    (await stored?.open("manifest.json")) !== undefined ||
    (await stored?.open("index.json")) !== undefined;
  if (stored === undefined || !isImage)
    return rootfsImage(file, size, {
      architecture,
      compression,
      mostBytes: limits.bytes + overhead,
    });
  return { stored, image: await readImage(stored, { name, architecture }) };
}

/** An image of a registry, all its layers fetched. */
async function fetchImage(
  { architecture }: ImageJob,
  { reference, access }: ImageJob["source"] & { readonly kind: "registry" },
  answers: AsyncIterator<string>,
): Promise<Opened> {
  using client = new RegistryClient(access, reference.repository);
  const stored = new RegistryFiles(client, ".", reference, new AbortController().signal);
  const image = await readImage(stored, { name: undefined, architecture });
  const layers = new Map(
    image.layers.flatMap(({ digest, bytes }) =>
      digest === undefined ? [] : [[digest, bytes ?? 0] as const],
    ),
  );
  say({ wants: [...layers.keys()] });
  const { value } = (await answers.next()) as IteratorResult<string, undefined>;
  const { had } = JSON.parse(value ?? "{}") as HadBlobs;
  const missing = [...layers].filter(([digest]) => !had.includes(digest));
  const all = missing.reduce((sum, [, bytes]) => sum + bytes, 0);
  const report = progressOf("fetching");
  let done = 0;
  report(done, all);
  const queue = missing.values();
  const fetchNext = async (): Promise<void> => {
    for (const [digest, bytes] of queue)
      await stored.fetchBlob(digest, bytes, (more) => report((done += more), all));
  };
  await Promise.all(Array.from({ length: fetches }, fetchNext));
  return { stored, image };
}

async function carryOut(job: ImageJob, answers: AsyncIterator<string>): Promise<void> {
  const { source, limits } = job;
  say({ progress: { stage: "reading", done: 0, all: 0 } });
  const found = source.kind === "archive" ? await recognize(given, sizeOf(source)) : undefined;
  if (source.kind === "archive" && found?.kind === "disk") {
    const digest = await copyDisk(given, sizeOf(source), {
      to: madeFile,
      mostBytes: limits.bytes,
      progress: progressOf("converting"),
    });
    say({ made: { digest, names: [], config: noConfig, disk: found.format } });
    return;
  }
  const { stored, image } =
    source.kind === "archive"
      ? await openGiven(job, source, found?.kind === "archive" ? found.compression : undefined)
      : await fetchImage(job, source, answers);
  await convertStored(stored, image, {
    to: madeFile,
    limits,
    progress: progressOf("converting"),
  });
  const { digest, names, config } = image;
  say({ made: { digest, names, config } });
}

const lines = createInterface({ input: process.stdin });
const answers = lines[Symbol.asyncIterator]();
lines.once("close", () => process.exit(1));
const first = await answers.next();
try {
  await carryOut(JSON.parse(String(first.value)) as ImageJob, answers);
} catch (thrown) {
  await rm(madeFile, { force: true });
  say(failedLine(diskFull(thrown) ?? toPodnetError(thrown)));
}
process.stdout.write("", () => process.exit(0));

/** There is no room for what it writes, or may not be so large. */
function diskFull(thrown: unknown): PodnetError | undefined {
  for (let at = thrown; at instanceof Error; at = at.cause) {
    const said = at instanceof PodnetError ? String(at.details["stderr"] ?? "") : "";
    const code = "code" in at ? String(at.code) : "";
    if (code === "ENOSPC" || code === "EDQUOT" || /No space left|quota exceeded/i.test(said))
      return new PodnetError("STATE_UNWRITABLE", "There is no room for the image", {
        hint: "Make room in the state directory: podnet image prune removes images without a name",
        cause: thrown,
      });
    if (code === "EFBIG" || /File too large/i.test(said))
      return new PodnetError("LIMIT_REACHED", "The image is larger than images may be", {
        hint: "Raise images.max_mib, or remove images",
        cause: thrown,
      });
  }
  return undefined;
}
