import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { addOutput, type CommonOptions, type Context, type OutputOptions } from "../../context.ts";
import { withPodnet } from "../../context.ts";
import { parseDuration } from "../../parse.ts";
import { count, size } from "../../views/text.ts";
import { printImages, shortDigest } from "./list.ts";

interface PruneOptions extends OutputOptions {
  readonly all?: boolean;
  readonly until?: string;
  readonly plan?: boolean;
}

/** Commands that remove images. */
export function addImageRemoval(group: Command, context: Context): void {
  group
    .command("rm")
    .description("remove images with all their names; those that pods use are refused")
    .argument("<image...>", "NAME[:TAG], NAME@DIGEST, or the beginning of a digest")
    .action(async (references: readonly string[], options: CommonOptions) => {
      await withPodnet(context, options, async (podnet, signal) => {
        for (const reference of references) {
          const { image } = await podnet.images.remove({ reference }, { signal });
          if (image !== undefined) context.io.stdout.write(`Removed ${shortDigest(image)}\n`);
        }
      });
    });
  addOutput(group.command("prune").description("remove images without a name that no pod uses"))
    .option("--all", "those with names as well")
    .option("--until <duration>", "only those not used for so long: 30m, 12h, 7d")
    .option("--plan", "only show what it would remove")
    .action(async (options: PruneOptions) => {
      const { all = false, plan: planOnly = false } = options;
      const until =
        options.until === undefined
          ? undefined
          : timestampFromMs(Date.now() - parseDuration("--until", options.until));
      const { images } = await withPodnet(context, options, (podnet, signal) =>
        podnet.images.prune(
          { all, planOnly, ...(until === undefined ? {} : { until }) },
          { signal },
        ),
      );
      if (planOnly || options.output !== "table") {
        await printImages(context, options, images);
        return;
      }
      const bytes = images.reduce((sum, image) => sum + Number(image.bytes), 0);
      context.io.stdout.write(`Removed ${count(images.length, "image")}, ${size(bytes)}\n`);
    });
}
