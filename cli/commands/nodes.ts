import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { type OverlayNode, OverlayNodeSchema } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { addOverlayOption, type OverlayOptions } from "../flags/overlay-option.ts";
import { age, duration, harmless, table } from "../views/text.ts";
import { reportStale } from "../views/overlay-text.ts";

const about = `
LEASE is the time since a host's lease was made or renewed, and the time it lasts unless it is renewed: "reserved" has no end.
For other hosts, podnetd asks etcd: "unknown" means that etcd did not answer within a second.`;

export function addNodes(program: Command, context: Context): void {
  const command = program.command("nodes").description("list the hosts of an overlay");
  addOverlayOption(addOutput(command))
    .addHelpText("after", about)
    .action(async (options: OutputOptions & OverlayOptions) => {
      const { io } = context;
      const { overlay = "", output } = options;
      const { nodes, staleMs, subnetManager } = await withPodnet(
        context,
        options,
        (podnet, signal) => podnet.overlays.listNodes({ overlay }, { signal }),
      );
      if (output !== "table") {
        const items = nodes.map((node) => toPlain(OverlayNodeSchema, node));
        const stale = staleMs === undefined ? {} : { staleMs: staleMs.toString() };
        const more = { subnetManager, ...stale };
        await printDocument(io, output, document("NodeList", { ...more, items }));
        return;
      }
      const heading = "HOST SUBNET PUBLIC-IP BACKEND LEASE REACHABLE RTT".split(" ");
      const now = Date.now();
      io.stdout.write(
        table(
          heading,
          nodes.map((node) => rowOf(node, now)),
        ),
      );
      reportStale(io, staleMs, harmless(subnetManager));
    });
}

const rowOf = (node: OverlayNode, now: number): string[] => [
  `${harmless(node.name) || "-"}${node.self ? " (this host)" : ""}`,
  node.subnets.join(","),
  node.publicIps.join(","),
  harmless(node.backend),
  leaseText(node, now),
  node.reachable === undefined ? "-" : node.reachable ? "yes" : "no",
  node.rttMs === undefined ? "-" : duration(node.rttMs),
];

const leaseText = ({ reserved, expiresAt, renewedAt }: OverlayNode, now: number): string => {
  if (reserved) return "reserved";
  if (expiresAt === undefined) return "unknown";
  const old = renewedAt === undefined ? "" : `${age(now - timestampMs(renewedAt))} old, `;
  return `${old}${age(timestampMs(expiresAt) - now)} left`;
};
