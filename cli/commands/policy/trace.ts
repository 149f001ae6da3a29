import type { Command } from "commander";
import { TracePodResponseSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../text.ts";
import { usage } from "../../usage.ts";

const traceExamples = `
Nothing is sent, and rules of other programs are not looked at. A pod's name stands for its address;
other names are not resolved.

Examples:
  podnet trace web 192.0.2.7:443
  podnet trace web db:5432
  podnet trace web '[2001:db8::7]:53' --protocol udp
  podnet trace web api.example.com:443`;

interface TraceOptions extends OutputOptions {
  readonly protocol: string;
}

/** `podnet trace`. */
export function addTrace(program: Command, context: Context): void {
  addOutput(
    program
      .command("trace")
      .description("show the path of a packet that a pod would send, and what decides about it"),
  )
    .argument("<pod>", "the pod")
    .argument("<destination>", "ADDRESS, POD or NAME; with :PORT, else ICMP")
    .option("--protocol <protocol>", "tcp, udp, sctp or icmp; tcp with a port, else icmp", "")
    .addHelpText("after", traceExamples)
    .action(async (idOrName: string, text: string, options: TraceOptions) => {
      const { io } = context;
      const request = { idOrName, protocol: options.protocol, ...parseDestination(text) };
      const answer = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.trace(request, { signal }),
      );
      if (options.output !== "table") {
        const plain = toPlain(TracePodResponseSchema, answer);
        await printDocument(io, options.output, document("Trace", plain));
        return;
      }
      const rows = answer.steps.map((step) =>
        [step.step, step.verdict, step.rule || "-", step.text].map(harmless),
      );
      io.stdout.write(table(["STEP", "VERDICT", "RULE", "WHAT"], rows));
      io.stdout.write(`${harmless(`${answer.verdict} to ${answer.destination}`)}\n`);
    });
}

/** `ADDRESS`, `NAME`, either with `:PORT`; an IPv6 address with a port is in brackets. */
function parseDestination(text: string): {
  readonly destination: string;
  readonly port?: number;
} {
  const match = /^(?:\[([^\]]*)\]|([^:]*))(?::(\d{1,5}))?$/.exec(text);
  const { 1: bracketed, 2: bare, 3: port } = match ?? [];
  // More colons are in IPv6 addresses alone.
  const destination =
    bracketed ?? bare ?? (/^[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*$/.test(text) ? text : "");
  if (destination === "")
    throw usage(
      `"${harmless(text)}" is no destination`,
      "Write ADDRESS, POD or NAME, with :PORT after it; an IPv6 address with a port in brackets",
    );
  return port === undefined ? { destination } : { destination, port: Number(port) };
}
