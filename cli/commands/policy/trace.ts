import type { JsonObject } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  type TracePodResponse,
  TracePodResponseSchema,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  type TraceContainerResponse,
  TraceContainerResponseSchema,
} from "../../../api/gen/podnet/v1/cni_service_pb.ts";
import { addOutput, type Context, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../views/text.ts";
import { usage } from "../../usage.ts";
import { boundsOf, type LiveOptions, printLive } from "./live-trace.ts";

const traceExamples = `
Without --live nothing is sent, and rules of other programs are not looked at. A pod's name stands
for its address; other names are not resolved. With --live the kernel reports which rules the next
packets meet that the pod itself sends; exits with 1 if none came.

Examples:
  podnet trace web 192.0.2.7:443
  podnet trace web db:5432
  podnet trace web '[2001:db8::7]:53' --protocol udp
  podnet trace web api.example.com:443
  podnet trace web 192.0.2.7:443 --live --timeout 1m`;

interface TraceOptions extends LiveOptions {
  readonly protocol: string;
}

const withFlags = (command: Command, whose: string): Command =>
  addOutput(
    command.description(`show the path of a packet of a ${whose}, and what decides about it`),
  )
    .argument(`<${whose}>`, whose === "pod" ? "the pod" : "its id, or how the id begins")
    .argument("<destination>", "ADDRESS, POD or NAME; with :PORT, else ICMP")
    .option("--protocol <protocol>", "tcp, udp, sctp or icmp; tcp with a port, else icmp", "")
    .option("--live", "trace the next packets that it sends there")
    .option("--packets <count>", "with --live: end after this many, up to 16; default 1")
    .option("--timeout <duration>", "with --live: end after this long; default 30s");

/** `podnet trace`. */
export function addTrace(program: Command, context: Context): void {
  withFlags(program.command("trace"), "pod")
    .addHelpText("after", traceExamples)
    .action(async (idOrName: string, text: string, options: TraceOptions) => {
      const { request, bounds } = askedOf(text, options);
      await withPodnet(context, options, async ({ pods }, signal) => {
        if (bounds !== undefined) {
          const events = pods.traceLive({ idOrName, ...request, bounds }, { signal });
          await printLive(context, options, events);
          return;
        }
        const answer = await pods.trace({ idOrName, ...request }, { signal });
        await print(context, options, answer, toPlain(TracePodResponseSchema, answer));
      });
    });
}

/** `podnet cni trace`. */
export function addTraceOf(group: Command, context: Context): void {
  withFlags(group.command("trace"), "container").action(
    async (container: string, text: string, options: TraceOptions) => {
      const { request, bounds } = askedOf(text, options);
      await withPodnet(context, options, async ({ cni }, signal) => {
        if (bounds !== undefined) {
          const events = cni.traceLive({ container, ...request, bounds }, { signal });
          await printLive(context, options, events);
          return;
        }
        const answer = await cni.trace({ container, ...request }, { signal });
        await print(context, options, answer, toPlain(TraceContainerResponseSchema, answer));
      });
    },
  );
}

function askedOf(text: string, options: TraceOptions) {
  const { live = false, packets, timeout, protocol } = options;
  if (!live && (packets !== undefined || timeout !== undefined))
    throw usage("--packets and --timeout are of live traces", "Add --live");
  const request = { protocol, ...parseDestination(text) };
  return { request, bounds: live ? boundsOf(options) : undefined };
}

async function print(
  { io }: Context,
  { output }: TraceOptions,
  { steps, verdict, destination }: TracePodResponse | TraceContainerResponse,
  plain: JsonObject,
): Promise<void> {
  if (output !== "table") {
    await printDocument(io, output, document("Trace", plain));
    return;
  }
  const rows = steps.map((step) =>
    [step.step, step.verdict, step.rule || "-", step.text].map(harmless),
  );
  io.stdout.write(table(["STEP", "VERDICT", "RULE", "WHAT"], rows));
  io.stdout.write(`${harmless(`${verdict} to ${destination}`)}\n`);
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
