import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { type Image, ImageSchema } from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { collect } from "../../parse.ts";
import { age, harmless, size, printTable } from "../../views/text.ts";

interface ListOptions extends OutputOptions {
  readonly name?: string;
  readonly label?: readonly string[];
  readonly dangling?: boolean;
}

/** Commands that show images. */
export function addImageList(group: Command, context: Context): void {
  addOutput(group.command("list", { isDefault: true }).description("list the images of this host"))
    .option("--name <text>", "only those with this in a name")
    .option("--label <name[=value]>", "only those with this label; repeatable", collect)
    .option("--dangling", "only those without a name")
    .action(async (options: ListOptions) => {
      const { name = "", label = [], dangling = false } = options;
      const { images } = await withPodnet(context, options, (podnet, signal) =>
        podnet.images.list({ name, labels: [...label], dangling }, { signal }),
      );
      await printImages(context, options, images);
    });
  addOutput(group.command("inspect").description("show what an image is, and what it runs"))
    .argument("<image>", "NAME[:TAG], NAME@DIGEST, or the beginning of a digest")
    .action(async (reference: string, options: OutputOptions) => {
      const { image } = await withPodnet(context, options, (podnet, signal) =>
        podnet.images.get({ reference }, { signal }),
      );
      if (image !== undefined) await printImage(context, options, image);
    });
}

/** Prints images, a line each. */
export async function printImages(
  { io }: Context,
  { output }: OutputOptions,
  images: readonly Image[],
): Promise<void> {
  if (output !== "table") {
    const items = images.map((image) => toPlain(ImageSchema, image));
    await printDocument(io, output, document("ImageList", { items }));
    return;
  }
  const rows = images.flatMap((image) =>
    (image.names.length === 0 ? ["-"] : image.names).map((name) => [
      harmless(name),
      shortDigest(image),
      harmless(image.type),
      size(Number(image.bytes)),
      image.usedAt === undefined ? "-" : age(Date.now() - timestampMs(image.usedAt)),
    ]),
  );
  printTable(io.stdout, ["NAME", "DIGEST", "TYPE", "SIZE", "USED"], rows);
}

/** As much of a digest as people compare. */
export const shortDigest = ({ digest }: Image): string =>
  harmless(digest.slice(digest.indexOf(":") + 1, digest.indexOf(":") + 13));

/** Prints all there is to say of an image. */
async function printImage({ io }: Context, { output }: OutputOptions, image: Image): Promise<void> {
  if (output !== "table") {
    await printDocument(io, output, document("Image", toPlain(ImageSchema, image)));
    return;
  }
  const { config } = image;
  const rows: [string, string][] = [
    ["Names", image.names.join(", ") || "none"],
    ["Digest", image.digest],
    ["Type", image.type],
    ["Size", size(Number(image.bytes))],
    ...(config === undefined
      ? []
      : ([
          ["Processor", config.architecture],
          ["Command", [...config.entrypoint, ...config.command].join(" ") || "none"],
          ["User", config.user || "root"],
          ["Directory", config.directory || "/"],
          ["Environment", config.environment.join(", ") || "none"],
          ["Ports", config.exposedPorts.join(", ") || "none"],
          ["Stop", config.stopSignal || "SIGTERM"],
          [
            "Labels",
            Object.entries(config.labels)
              .map(([name, value]) => `${name}=${value}`)
              .join(", ") || "none",
          ],
        ] as [string, string][])),
  ];
  io.stdout.write(
    rows.map(([name, text]) => `${`${name}:`.padEnd(13)}${harmless(text)}\n`).join(""),
  );
}
