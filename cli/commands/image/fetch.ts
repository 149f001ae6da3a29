import { createReadStream } from "node:fs";
import { open, stat } from "node:fs/promises";
import path from "node:path";
import { type Command, Option } from "commander";
import {
  type Image,
  type ImageProgress,
  ImageSchema,
  type ImportImageRequestSchema,
  type PullImageRequestSchema,
} from "../../../api/gen/podnet/v1/image_service_pb.ts";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Podnet } from "../../../api/client.ts";
import { PodnetError } from "../../../core/errors.ts";
import { recognize } from "../../../images/archive/recognize.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { type CredentialFlags, credentialOf } from "../../registry-password.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, size } from "../../views/text.ts";
import { sinceText, ticking, whole } from "../../views/ticking.ts";
import { shortDigest } from "./list.ts";

interface PullOptions extends OutputOptions, CredentialFlags {
  readonly policy: string;
}

interface ImportOptions extends OutputOptions {
  readonly choose?: string;
  readonly onHost?: boolean;
}

const aboutPull = `
Without --username podnetd shows the registry the credentials in its images.auth_file. Those of a call are used once:
podnetd neither stores nor logs them. The image is then there for all callers of podnetd.

Examples:
  podnet image pull registry.example:5000/team/app:1
  podnet image pull -u ci --password-stdin registry.example:5000/team/app:1 < token`;

const aboutImport = `
SOURCE is an archive of docker save, podman save or skopeo, an archive of an OCI layout, the tar archive of a root
directory, or a disk that boots by itself (qcow2, raw); "-" reads it from standard input. podnet sends it to podnetd. With --on-host podnetd reads the path itself, which
may also be a directory: an OCI layout or a root directory. That is for administrators.

Examples:
  podman save app | podnet image import - app
  podnet image import debian-12-generic-amd64.qcow2 debian:12
  podnet image import --on-host /srv/debian-root debian:12`;

const most = 256 * 1024;

/** Commands that get images. */
export function addImageFetch(group: Command, context: Context): void {
  addOutput(group.command("pull").description("get an image from its registry"))
    .argument("<image>", "NAME[:TAG], REGISTRY/NAME[:TAG] or NAME@DIGEST")
    .addOption(
      new Option("--policy <policy>", "when to ask the registry")
        .choices(["missing", "always", "never"])
        .default("missing"),
    )
    .option("-u, --username <name>", "the registry's user, for this pull alone")
    .option("--password-stdin", "read the user's password or token from standard input")
    .addHelpText("after", aboutPull)
    .action(async (reference: string, options: PullOptions) => {
      const { policy } = options;
      const credential = await credentialOf(options, context.io.stdin);
      const request = { reference, policy, ...(credential === undefined ? {} : { credential }) };
      const image = await withPodnet(context, options, (podnet, signal) =>
        pullImage(context, podnet, request, signal),
      );
      await printStored(context, options, image);
    });
  addOutput(group.command("import").description("take an image from an archive or a directory"))
    .argument("<source>", 'the archive, or "-"')
    .argument("[name]", "NAME[:TAG] for the image; the names that it has when left out")
    .option("--choose <name>", "which of several images in the archive")
    .option("--on-host", "podnetd reads the path, on its own host")
    .addHelpText("after", aboutImport)
    .action(async (source: string, name: string | undefined, options: ImportOptions) => {
      const { choose = "", onHost = false } = options;
      const start = { name: name ?? "", choose, path: onHost ? path.resolve(source) : "" };
      const image = await withPodnet(context, options, (podnet, signal) =>
        importImage(context, podnet, start, onHost ? undefined : source, signal),
      );
      await printStored(context, options, image);
    });
}

/** Gets an image from its registry, with its progress on a terminal. */
export const pullImage = (
  context: Context,
  podnet: Podnet,
  request: MessageInitShape<typeof PullImageRequestSchema>,
  signal: AbortSignal,
): Promise<Image> => follow(context, podnet.images.pull(request, { signal }));

interface ImportStart {
  /** Empty: the names that the image has. */
  readonly name: string;
  readonly choose: string;
  /** On podnetd's host; empty: what is sent. */
  readonly path: string;
}

/** Takes an image: sends `source`, unless podnetd reads a path, with progress on a terminal. */
export async function importImage(
  context: Context,
  podnet: Podnet,
  start: ImportStart,
  source: string | undefined,
  signal: AbortSignal,
): Promise<Image> {
  if (source !== undefined && source !== "-") await refuseNoImage(source);
  return follow(context, podnet.images.import(requests(context, start, source), { signal }));
}

/** Before the file is sent: it may be large. */
async function refuseNoImage(source: string): Promise<void> {
  const found = await stat(source).catch((cause: unknown) => {
    throw new PodnetError("IMAGE_MISSING", `There is no image at "${harmless(source)}"`, {
      hint: "Name an archive, or a path of podnetd's host with --on-host",
      cause,
    });
  });
  if (found.isDirectory())
    throw new PodnetError("INVALID_ARGUMENT", `"${harmless(source)}" is a directory`, {
      field: "source",
      hint: "Name its path on podnetd's host with --on-host, or send an archive: tar -C DIR -c . | podnet image import - NAME",
    });
  // (A pipe is read once only: podnetd refuses what comes of it.)
  if (!found.isFile()) return;
  await using file = await open(source);
  await recognize(file, found.size);
}

async function* requests(
  { io }: Context,
  start: ImportStart,
  source: string | undefined,
): AsyncGenerator<MessageInitShape<typeof ImportImageRequestSchema>> {
  yield { input: { case: "start", value: start } };
  if (source === undefined) return;
  const bytes = source === "-" ? io.stdin : createReadStream(source, { highWaterMark: most });
  for await (const part of bytes as AsyncIterable<Uint8Array | string>) {
    const whole = Buffer.from(part as Uint8Array);
    for (let at = 0; at < whole.length; at += most)
      yield { input: { case: "data", value: Uint8Array.from(whole.subarray(at, at + most)) } };
  }
}

/** Shows progress on a terminal until the image is there. */
async function follow({ io }: Context, progress: AsyncIterable<ImageProgress>): Promise<Image> {
  const began = performance.now();
  let image: Image | undefined;
  let latest: ImageProgress | undefined;
  using line = ticking(io.stderr, () =>
    latest === undefined ? "" : lineOf(latest, performance.now() - began),
  );
  for await (const each of progress) {
    image = each.image ?? image;
    latest = each;
    line.draw();
  }
  if (image !== undefined) return image;
  throw new PodnetError("INTERNAL", "podnetd reported no image", {
    hint: "See podnet image list",
  });
}

function lineOf({ stage, bytes, totalBytes, leftMs }: ImageProgress, elapsedMs: number): string {
  if (stage === "") return "";
  const done = size(Number(bytes));
  const share = totalBytes === 0n ? "" : ` of ${size(Number(totalBytes))}`;
  const left = leftMs === undefined ? "" : `, ${whole(Number(leftMs))} left`;
  const far = bytes === 0n ? "" : ` ${done}${share}`;
  return `${harmless(stage)}${far}${sinceText(elapsedMs)}${bytes === 0n ? "" : left} …`;
}

async function printStored(
  { io }: Context,
  { output }: OutputOptions,
  image: Image,
): Promise<void> {
  if (output !== "table") {
    await printDocument(io, output, document("Image", toPlain(ImageSchema, image)));
    return;
  }
  const names = image.names.map(harmless).join(", ") || "an image without a name";
  io.stdout.write(`${shortDigest(image)} is ${names}, ${size(Number(image.bytes))}\n`);
}
