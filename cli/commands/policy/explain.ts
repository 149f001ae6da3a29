import type { Command } from "commander";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument } from "../../output.ts";
import { harmless } from "../../views/text.ts";

const explainExamples = `
Examples:
  podnet policy explain web 192.0.2.7 443
  podnet policy explain web api.example.com
  podnet policy explain web 192.0.2.53 53 --protocol udp
  podnet policy explain web 10.0.0.9 80 --ingress
  podnet policy explain --container default/web 192.0.2.7 443`;

interface ExplainOptions extends OutputOptions {
  readonly protocol: string;
  readonly ingress?: boolean;
  readonly container?: boolean;
}

/** `podnet policy explain`. */
export function addExplain(group: Command, context: Context): void {
  addOutput(group.command("explain").description("say what would become of a flow, and why"))
    .argument("<pod>", "the pod; or a container's ID, or NAMESPACE/NAME of its pod")
    .argument("<address>", "the other side's address, or the name that a connection says")
    .argument("[port]", "the port that the connection is opened to; none for ICMP, 443 for a name")
    .option("--protocol <protocol>", "tcp, udp, sctp or icmp; tcp with a port, else icmp", "")
    .option("--ingress", "the other side opens the connection to the pod")
    .option("--container", "the first argument is a container of a CNI runtime")
    .addHelpText("after", explainExamples)
    .action(
      async (pod: string, address: string, port: string | undefined, options: ExplainOptions) => {
        const answer = await withPodnet(context, options, (podnet, signal) =>
          podnet.policies.explain(
            {
              ...(options.container === true ? { container: pod } : { pod }),
              address,
              protocol: options.protocol,
              ingress: options.ingress === true,
              ...(port === undefined ? {} : { port: portNumber(port) }),
            },
            { signal },
          ),
        );
        const { verdict, policy, rule, reason } = answer;
        const { io } = context;
        if (options.output !== "table")
          await printDocument(
            io,
            options.output,
            document("Decision", { verdict, policy, rule, reason }),
          );
        else io.stdout.write(`${verdict} by ${harmless(`${policy}/${rule}: ${reason}`)}\n`);
      },
    );
}

function portNumber(text: string): number {
  if (/^\d{1,5}$/.test(text)) return Number(text);
  throw new PodnetError("INVALID_ARGUMENT", `"${harmless(text)}" is no port`, {
    field: "port",
    hint: "Give a number from 1 to 65535",
  });
}
