import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type PolicyVerdict,
  TailPolicyResponseSchema,
} from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless } from "../../views/text.ts";

const tailExamples = `
The last 64 verdicts of each pod come first. A pod that is denied much is shown in part; podnet guard
POD has all counts.

Examples:
  podnet policy tail
  podnet policy tail web -o json
  podnet policy tail --last
  podnet policy tail --container default/web`;

interface TailOptions extends OutputOptions {
  readonly container?: boolean;
  readonly last?: boolean;
}

/** `podnet policy tail`. */
export function addTail(group: Command, context: Context): void {
  addOutput(group.command("tail").description("show what policies deny, until interrupted"))
    .argument("[pod]", "the pod; or a container's ID, or NAMESPACE/NAME of its pod; default all")
    .option("--last", "show what was denied last, and end")
    .option("--container", "the argument is a container of a CNI runtime")
    .addHelpText("after", tailExamples)
    .action(async (pod = "", options: TailOptions) => {
      const { io } = context;
      const lastOnly = options.last === true;
      const request = { ...(options.container === true ? { container: pod } : { pod }), lastOnly };
      await withPodnet(context, options, async (podnet, signal) => {
        for await (const answer of podnet.policies.tail(request, { signal })) {
          if (options.output !== "table") {
            const body = toPlain(TailPolicyResponseSchema, answer);
            await printDocument(io, options.output, document("Verdict", body), true);
          } else if (answer.verdict === undefined)
            io.stderr.write(`${answer.lost} more were denied: this was read too slowly\n`);
          else io.stdout.write(`${line(answer.verdict)}\n`);
        }
      });
    });
}

/** One line: time, pod, direction and rule in columns, then what was denied, and why. */
function line(verdict: PolicyVerdict): string {
  const { pod, container, direction, policy, rule, reason, count } = verdict;
  const time =
    verdict.time === undefined ? "" : timestampDate(verdict.time).toISOString().slice(11, 23);
  const columns = [
    time.padEnd(12),
    harmless(pod || container).padEnd(16),
    harmless(direction).padEnd(7),
    harmless(`${policy}/${rule}`).padEnd(24),
  ];
  const times = count > 1n ? [`${count} times`] : [];
  const details = [harmless(flowText(verdict)), harmless(reason), ...times];
  return [...columns, ...details.filter((part) => part !== "")].join("  ").trimEnd();
}

/** `tcp 192.0.2.7:443 (api.example.com)`, or `name api.example.com` for a question. */
function flowText({ unit, protocol, address, port, name }: PolicyVerdict): string {
  if (unit === "questions") return `name ${name}`;
  const host = port > 0 && address.includes(":") ? `[${address}]` : address;
  const place = port > 0 ? `${host}:${port}` : host;
  return [protocol, place, name === "" ? "" : `(${name})`].filter((part) => part !== "").join(" ");
}
