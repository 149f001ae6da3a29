import type { Command } from "commander";
import { type CommonOptions, type Context, withPodnet } from "../../context.ts";
import { harmless } from "../../views/text.ts";

/** Commands that give and take names. */
export function addImageNames(group: Command, context: Context): void {
  group
    .command("tag")
    .description("give an image one more name")
    .argument("<image>", "NAME[:TAG], NAME@DIGEST, or the beginning of a digest")
    .argument("<name>", "the name, as NAME[:TAG]; another image that has it loses it")
    .action(async (reference: string, name: string, options: CommonOptions) => {
      await withPodnet(context, options, (podnet, signal) =>
        podnet.images.tag({ reference, name }, { signal }),
      );
    });
  group
    .command("untag")
    .description("take names from their images, which stay")
    .argument("<name...>", "the names, as NAME[:TAG]")
    .action(async (names: readonly string[], options: CommonOptions) => {
      await withPodnet(context, options, async (podnet, signal) => {
        for (const name of names) {
          const { existed } = await podnet.images.untag({ name }, { signal });
          if (!existed) context.io.stderr.write(`No image had the name ${harmless(name)}\n`);
        }
      });
    });
}
