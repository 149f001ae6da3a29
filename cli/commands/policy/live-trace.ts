import {
  type LiveTraceStarted,
  type TraceLiveResponse,
  TracedPacketSchema,
  type TracedPacket,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Context, OutputOptions } from "../../context.ts";
import { exitCodes } from "../../exit-codes.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { parseCount, parseDuration } from "../../parse.ts";
import { harmless, table } from "../../views/text.ts";

/** The flags of `trace --live`. */
export interface LiveOptions extends OutputOptions {
  readonly live?: boolean;
  readonly packets?: string;
  readonly timeout?: string;
}

/** The bounds that the flags give. */
export const boundsOf = ({ packets, timeout }: LiveOptions) => ({
  packets: packets === undefined ? 0 : parseCount("--packets", packets, 1),
  timeoutMs: timeout === undefined ? 0 : parseDuration("--timeout", timeout),
});

/** Prints each packet as it comes; without any, the command fails. */
export async function printLive(
  context: Context,
  options: LiveOptions,
  events: AsyncIterable<TraceLiveResponse>,
): Promise<void> {
  const { io } = context;
  let packets = 0;
  for await (const { event } of events) {
    if (event.case === "started") io.stderr.write(waiting(event.value));
    else if (event.case === "packet") {
      packets++;
      await print(context, options, event.value);
    }
  }
  if (packets > 0) return;
  io.stderr.write(
    "No packet came: nothing was sent, it was sent elsewhere, or its neighbor was not found\n",
  );
  context.exitCode = exitCodes.failed;
}

const waiting = ({ destination, link }: LiveTraceStarted): string =>
  `Waiting for packets to ${harmless(destination)} by ${harmless(link)}; ctrl-c ends\n`;

async function print({ io }: Context, { output }: OutputOptions, packet: TracedPacket) {
  if (output !== "table") {
    const plain = toPlain(TracedPacketSchema, packet);
    await printDocument(io, output, document("TracedPacket", plain), true);
    return;
  }
  const rows = packet.rules.map((each) =>
    [each.table, each.chain, each.verdict, each.standsFor || "-", each.rule].map(harmless),
  );
  io.stdout.write(`${harmless(packet.packet)}\n`);
  io.stdout.write(table(["TABLE", "CHAIN", "VERDICT", "STANDS FOR", "RULE"], rows));
  io.stdout.write(`${harmless(packet.verdict)}\n`);
}
