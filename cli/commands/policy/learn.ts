import { type Command, Option } from "commander";
import type { LearnPolicyResponse } from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { printDocument } from "../../output.ts";
import { parseDuration } from "../../parse.ts";
import { harmless } from "../../views/text.ts";

const learnExamples = `
Use the pod once it says that it learns. The policy has the names that it resolved, for ports 80 and 443, and the
addresses of its other connections. Read it before you apply it: it allows what the pod did.

Examples:
  podnet policy learn build --for 60s > build.yaml
  podnet policy learn --container ci/build-7 --for 5m
  podnet policy apply -f build.yaml`;

interface LearnOptions extends OutputOptions {
  readonly for?: string;
  readonly container?: boolean;
  readonly output: "json" | "yaml";
}

/** `podnet policy learn`. */
export function addLearn(group: Command, context: Context): void {
  group
    .command("learn")
    .description("watch what a pod uses, and print a policy that allows it")
    .argument(
      "<pod>",
      "the pod, which has to run; or a container's ID, or NAMESPACE/NAME of its pod",
    )
    .option("--for <duration>", "how long; until it is interrupted, or the pod stops, if not given")
    .addOption(
      new Option("-o, --output <format>", "how to print").choices(["json", "yaml"]).default("yaml"),
    )
    .option("--container", "the argument is a container of a CNI runtime")
    .addHelpText("after", learnExamples)
    .action(async (pod: string, options: LearnOptions) => {
      const { io } = context;
      const forS =
        options.for === undefined
          ? undefined
          : Math.max(1, Math.ceil(parseDuration("--for", options.for) / 1000));
      const which = options.container === true ? { container: pod } : { pod };
      const until = forS === undefined ? "until it is interrupted" : `for ${forS} s`;
      let last: LearnPolicyResponse | undefined;
      await withPodnet(context, options, async (podnet, signal) => {
        const request = { ...which, ...(forS === undefined ? {} : { forS }) };
        try {
          for await (const answer of podnet.policies.learn(request, { signal })) {
            if (last === undefined)
              io.stderr.write(`Learning what ${harmless(pod)} uses, ${until}\n`);
            last = answer;
          }
        } catch (thrown) {
          if (!signal.aborted || last === undefined) throw thrown;
        } finally {
          // Whoever interrupts it wants what there is, and so does who loses podnetd.
          if (last?.more === true) io.stderr.write("The pod used more than a policy can have\n");
          if (last !== undefined) await printDocument(io, options.output, last.document ?? {});
        }
      });
    });
}
