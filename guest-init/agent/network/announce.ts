import type { Ip, Mac } from "../../../core/address.ts";
import { type Packet, announcement } from "../../network/announcement.ts";
import { sys } from "../sys.ts";

const afPacket = 17;
const sockRaw = 3;

/**
 * Open for good once it was needed: the kernel takes 20 ms to close a packet socket (it waits for
 * RCU, Linux 6.1).
 */
let socket = -1;

function sendPacket({ to, frame }: Packet): void {
  // Protocol 0: it sends, and is handed nothing.
  if (socket < 0) socket = sys.socket(afPacket, sockRaw, 0);
  sys.send(socket, frame, to);
}

/**
 * Announces the current MAC of a link's addresses to its neighbours: the last holder may have had
 * another.
 */
export function announce(index: number, mac: Mac, addresses: readonly Ip[]): void {
  for (const ip of addresses) sendPacket(announcement(index, mac, ip));
}
