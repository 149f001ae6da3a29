import type { Command } from "commander";
import type { ResourcesSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { FlagWriter } from "../../flags/given.ts";
import { parseCount, parseMemory } from "../../parse.ts";
import { printMade } from "../../pod-request.ts";
import { usage } from "../../usage.ts";

interface Options extends OutputOptions {
  readonly vcpu?: string;
  readonly memory?: string;
  readonly maxVcpu?: string;
  readonly maxMemory?: string;
  readonly plan?: boolean;
}

const more = `
A pod that runs takes more processors, and more memory in steps of 128 MiB, up to the maximum that it was created with.
To give it less, or more than that, stop it first: it has the new size from its next start.

  $ podnet create --name web --max-vcpu 4 --max-memory 1G
  $ podnet update web --vcpu 2 --memory 512M`;

export function addUpdate(program: Command, context: Context): void {
  addOutput(program.command("update").description("give a pod more processors and memory"))
    .argument("<pod>", "name or id")
    .option("--vcpu <count>", "virtual processors")
    .option("--memory <amount>", "memory in MiB, or with a unit: 256M, 1G")
    .option("--max-vcpu <count>", "of a stopped pod: the most that it may have while it runs")
    .option("--max-memory <amount>", "likewise of its memory")
    .addHelpText("after", more)
    .option("--plan", "show what would be done, and do nothing")
    .action(async (idOrName: string, options: Options) => {
      const { vcpu, memory, maxVcpu, maxMemory, plan, ...output } = options;
      const asked = { vcpu, memory, maxVcpu, maxMemory };
      if (Object.values(asked).every((value) => value === undefined))
        throw usage("Nothing is to be updated", "Give --vcpu or --memory");
      const resources: Partial<Record<keyof ResourcesSpec, number>> = {};
      const flags = new FlagWriter(asked, context.given);
      flags.put("vcpu", "resources.vcpu", (text) => {
        resources.vcpu = parseCount("--vcpu", text);
      });
      flags.put("memory", "resources.memory_mib", (text) => {
        resources.memoryMib = parseMemory(text);
      });
      flags.put("maxVcpu", "resources.max_vcpu", (text) => {
        resources.maxVcpu = parseCount("--max-vcpu", text);
      });
      flags.put("maxMemory", "resources.max_memory_mib", (text) => {
        resources.maxMemoryMib = parseMemory(text);
      });
      const request = { idOrName, resources, planOnly: plan === true };
      const answer = await withPodnet(context, output, ({ pods }, signal) =>
        pods.update(request, { signal }),
      );
      const shown = answer.plan ?? answer.pod;
      if (shown === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
      await printMade(context.io, output, shown);
    });
}
