import type { Command } from "commander";
import { PodnetError } from "../../../core/errors.ts";

/** What people know from other tools is refused with the reason, and not as a word misspelt. */
export function addRename(program: Command): void {
  program
    .command("rename", { hidden: true })
    .argument("[words...]", "ignored")
    .allowUnknownOption()
    .action(() => {
      throw new PodnetError("UNSUPPORTED", "A pod keeps its name: policies choose pods by it", {
        hint: "Label it instead (podnet label POD KEY=VALUE), or create another pod with the other name",
      });
    });
}
