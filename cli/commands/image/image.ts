import type { Command } from "commander";
import type { Context } from "../../context.ts";
import { addConvert } from "./convert.ts";
import { addImageFetch } from "./fetch.ts";
import { addImageList } from "./list.ts";
import { addImageNames } from "./names.ts";
import { addImageRemoval } from "./removal.ts";

/** `podnet image`: what pods start from. */
export function addImage(program: Command, context: Context): void {
  const group = program
    .command("image")
    .alias("images")
    .description("images of containers, and disks, that pods start from");
  addImageFetch(group, context);
  addImageList(group, context);
  addImageNames(group, context);
  addImageRemoval(group, context);
  addConvert(group, context);
}
