import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { FlagWriter } from "../../flags/given.ts";
import { parseCount, parseMemory } from "../../parse.ts";
import { askForPod } from "../../pod-answer.ts";
import { usage } from "../../usage.ts";

interface Options extends OutputOptions {
  readonly vcpu?: string;
  readonly memory?: string;
}

const more = `
The memory and processors of a VM are fixed: a request for other values is refused, a request for the present values
succeeds. To change them, delete the pod and create it again. The network of a pod can change: podnet interface --help.`;

export function addUpdate(program: Command, context: Context): void {
  addOutput(program.command("update").description("compare a pod's resources with those wanted"))
    .argument("<pod>", "name or id")
    .option("--vcpu <count>", "virtual processors")
    .option("--memory <amount>", "memory in MiB, or with a unit: 256M, 1G")
    .addHelpText("after", more)
    .action((idOrName: string, { vcpu, memory, ...options }: Options) => {
      if (vcpu === undefined && memory === undefined)
        throw usage("Nothing is to be updated", "Give --vcpu or --memory");
      const resources: { vcpu?: number; memoryMib?: number } = {};
      const flags = new FlagWriter({ vcpu, memory }, context.given);
      flags.put("vcpu", "resources.vcpu", (text) => {
        resources.vcpu = parseCount("--vcpu", text);
      });
      flags.put("memory", "resources.memory_mib", (text) => {
        resources.memoryMib = parseMemory(text);
      });
      return askForPod(context, options, (pods, signal) =>
        pods.update({ idOrName, resources }, { signal }),
      );
    });
}
