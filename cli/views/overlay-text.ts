import type { OverlayTunnel } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import type { Io } from "../io.ts";
import { age, size } from "./text.ts";

/** Says how old what is reported of other hosts is, where the subnet manager is away. */
export function reportStale(io: Io, staleMs: bigint | undefined, manager = "etcd"): void {
  if (staleMs === undefined) return;
  const since = age(Number(staleMs));
  io.stderr.write(`${manager} has not been heard for ${since}: others are as of then\n`);
}

/** Packets that podnetd's own tunnel sent, received and dropped, in one line. */
export function tunnelText(tunnel: OverlayTunnel): string {
  const { device, sentPackets, sentBytes, receivedPackets, receivedBytes } = tunnel;
  const sent = `sent ${sentPackets} packets (${size(Number(sentBytes))})`;
  const received = `received ${receivedPackets} (${size(Number(receivedBytes))})`;
  const drops = Object.entries(tunnel.dropped).map(([reason, count]) => `${count} ${reason}`);
  const dropped = drops.length === 0 ? "dropped none" : `dropped ${drops.sort().join(", ")}`;
  return `${device} ${sent}, ${received}, ${dropped}`;
}
