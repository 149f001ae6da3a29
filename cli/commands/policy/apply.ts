import type { JsonObject } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { Policy } from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { collect } from "../../parse.ts";
import { readDocuments } from "../../pod-file.ts";
import { printPolicies } from "./show.ts";

const applyExamples = `
A file has one policy, or several with --- between them: podnet's own, or NetworkPolicy objects of
Kubernetes. With name: pod:NAME they are rules of that pod's own, without applies_to. See
docs/how-to/policies.md.

Examples:
  podnet policy apply -f builds.yaml
  podnet policy apply -f networkpolicy.yaml --plan`;

interface ApplyOptions extends OutputOptions {
  readonly file: readonly string[];
  readonly plan?: boolean;
}

/** `podnet policy apply`. */
export function addApply(group: Command, context: Context): void {
  addOutput(group.command("apply").description("make or replace policies"))
    .requiredOption("-f, --file <file>", "policy file, YAML or JSON; - is standard input", collect)
    .option("--plan", "check them, and show the pods that they choose; nothing changes")
    .addHelpText("after", applyExamples)
    .action(async (options: ApplyOptions) => {
      const documents = (await Promise.all(options.file.map((file) => readDocuments(file)))).flat();
      if (documents.length === 0)
        throw new PodnetError("INVALID_ARGUMENT", "The file has no policy", {
          field: "file",
          hint: "See docs/how-to/policies.md for a policy file",
        });
      const applied = await withPodnet(context, options, async (podnet, signal) => {
        const call = async (value: unknown, planOnly: boolean): Promise<Policy[]> => {
          const request = { document: value as JsonObject, planOnly };
          const { policy } = await podnet.policies.apply(request, { signal });
          return policy === undefined ? [] : [policy];
        };
        // All are checked before the first one changes anything.
        const planned = await Promise.all(documents.map((each) => call(each, true)));
        if (options.plan === true) return planned.flat();
        const made: Policy[] = [];
        for (const each of documents) made.push(...(await call(each, false)));
        return made;
      });
      await printPolicies(context, options, applied);
    });
}
