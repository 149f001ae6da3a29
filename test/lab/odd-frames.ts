import { type Ip, parseMac } from "../../core/address.ts";
import type { Random } from "../sim/random.ts";
import { type RawEnd, tcpFrame, udpFrame } from "./raw-frame.ts";

/** What an odd frame is made of: addresses by family, and ports that something listens at. */
export interface Oddities {
  readonly from: { readonly 4: readonly Ip[]; readonly 6: readonly Ip[] };
  readonly to: { readonly 4: readonly Ip[]; readonly 6: readonly Ip[] };
  readonly ports: readonly number[];
  /** Payloads that mean something, which are sent whole, cut and changed. */
  readonly payloads: readonly Uint8Array[];
  readonly hostMac: RawEnd["mac"];
  readonly guestMac: RawEnd["mac"];
}

const oddPorts = [0, 0, 1, 53, 67, 68, 546, 547, 4000, 65_535];
const broadcast = parseMac("52:54:00:00:00:ff");

/**
 * A frame such as no program's socket sends: any source, port 0, any flags, a payload that is cut,
 * changed or noise.
 */
export function oddFrame(random: Random, given: Oddities): Uint8Array {
  const family = random.pick([4, 6] as const);
  const port = (): number => (random.chance(0.8) ? random.pick(oddPorts) : random.below(0x1_0000));
  const packet = {
    from: { mac: given.guestMac, ip: random.pick(given.from[family]), port: port() },
    to: {
      mac: random.chance(0.9) ? given.hostMac : broadcast,
      ip: random.pick(given.to[family]),
      port: random.chance(0.9) ? random.pick(given.ports) : port(),
    },
  };
  const payload = oddPayload(random, given.payloads);
  const frame = random.chance(0.6)
    ? udpFrame(packet, payload)
    : tcpFrame(packet, {
        flags: random.below(64),
        sequence: random.below(2 ** 32),
        acknowledged: random.below(2 ** 32),
        payload,
      });
  if (random.chance(0.1)) frame[14 + random.below(frame.length - 14)] = random.below(256);
  return random.chance(0.05) ? frame.subarray(0, 14 + random.below(frame.length - 14)) : frame;
}

function oddPayload(random: Random, known: readonly Uint8Array[]): Uint8Array {
  const payload = Uint8Array.from(random.pick(known));
  switch (random.below(4)) {
    case 0:
      return payload;
    case 1:
      return payload.subarray(0, random.below(payload.length + 1));
    case 2:
      for (let n = 0; n < 3; n++) payload[random.below(payload.length)] = random.below(256);
      return payload;
    default:
      return random.bytes(random.below(300));
  }
}
