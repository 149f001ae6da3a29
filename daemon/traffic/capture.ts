import type { IfName } from "../../core/names.ts";
import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import { PacketStream } from "../../linux/packets/packet-stream.ts";
import { pcapHeader, pcapRecord } from "./pcap.ts";

export interface CaptureOptions {
  readonly link: IfName;
  /** Path of the namespace it is in; absent: podnetd's own. */
  readonly netns?: string;
  readonly snapBytes: number;
  /** Ends after this many packets; undefined goes on. */
  readonly maxPackets: bigint | undefined;
}

/** A part of a pcap file. */
export interface CapturedPart {
  readonly data: Uint8Array;
  /** Packets lost since the beginning. */
  readonly lost: number;
}

/**
 * The packets of a link, as a pcap file in parts: its header first, once all further packets are
 * captured. Ends with the link, or after enough packets. Throws `SYSCALL_FAILED`, `NETNS_UNUSABLE`,
 * `CANCELLED`.
 */
export async function* capture(
  { link, netns, snapBytes, maxPackets }: CaptureOptions,
  signal: AbortSignal,
): AsyncGenerator<CapturedPart> {
  using packets = openThere(netns, () => new PacketStream({ link, snapBytes }));
  let reported = 0;
  yield { data: pcapHeader(snapBytes), lost: reported };
  for (let left = maxPackets; left !== 0n; ) {
    const frames = await packets.next(left === undefined ? Infinity : Number(left), signal);
    if (frames === undefined) break;
    if (left !== undefined) left -= BigInt(frames.length);
    reported = packets.lost;
    yield { data: Buffer.concat(frames.map(pcapRecord)), lost: reported };
  }
  if (packets.lost > reported) yield { data: new Uint8Array(0), lost: packets.lost };
}

/** Opens what listens in a namespace; it stays there, whatever becomes of the path. */
function openThere(netns: string | undefined, open: () => PacketStream): PacketStream {
  if (netns === undefined) return open();
  using namespace = NetworkNamespace.open(netns);
  return namespace.enter(open);
}
