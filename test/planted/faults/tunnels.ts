import type { Fault } from "../fault.ts";

const unit = "test/unit/network/overlay/udp.test.ts";
const segments = {
  file: unit,
  title:
    "one connection's segments leave as their sender would have sent them, and come together again",
};

/** The overlay's backend udp: what podnetd does to packets that pass through it. */
export const tunnelFaults: readonly Fault[] = [
  {
    kind: "record",
    name: "what was damaged on the way gets a checksum that is right",
    file: "network/overlay/udp/ingress.ts",
    find: "if (this.#isIntact) return isIntact(memory, at, total);",
    put: "if (this.#isIntact) return true;",
    noticedBy: segments,
  },
  {
    kind: "record",
    name: "each of several segments says that the sender has sent all",
    file: "network/overlay/udp/segment.ts",
    find: "if (!isLast) flags &= ~(flagFin | flagPush);",
    put: "if (!isLast) flags &= ~flagFin;",
    noticedBy: segments,
  },
  {
    kind: "bound",
    name: "a packet in a tunnel that leads back to itself never ends",
    file: "network/overlay/udp/ipv4.ts",
    find: "if (ttl <= 1) return false;",
    put: "if (ttl < 1) return false;",
    noticedBy: {
      file: unit,
      title: "a hop less is a header whose checksum is right, as counted anew",
    },
  },
  {
    kind: "bound",
    name: "an answer to an answer",
    file: "network/overlay/udp/unreachable.ts",
    find: "bytes[at + 9] === protocolIcmp ||",
    put: "bytes[at + 9] === 256 * protocolIcmp ||",
    noticedBy: {
      file: unit,
      title:
        "a packet for no host is answered from the overlay's first address, but never ICMP nor a later fragment",
    },
  },
  {
    kind: "repair",
    name: "a tunnel whose device has gone is taken for a good one",
    file: "network/overlay/udp/plan.ts",
    find: "    isThere &&\n",
    put: "    (isThere || true) &&\n",
    noticedBy: {
      file: unit,
      title: "a tunnel stays while it is as it is to be, works, and has its device",
    },
  },
  {
    kind: "bound",
    name: "an overlay with IPv6 goes by udp, which carries none of it",
    file: "daemon/overlays/lease/refuse-backend.ts",
    find: "udp: (_, { v6 }) => (v6 ? [noIpv6] : []),",
    put: "udp: () => [],",
    noticedBy: {
      file: "test/unit/daemon/overlays/refused.test.ts",
      title:
        "an overlay with IPv6 is refused by udp, whose tunnel carries none, and by no other for that",
    },
  },
];
