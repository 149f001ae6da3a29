/**
 * An independent check of the host's network for `podnet verify`: a separate program that reads
 * links, addresses and routes through npm's `netlink` and prints them as JSON. It shares no code
 * with podnet, on purpose: an error in podnet's own rtnetlink codec would affect writing and
 * reading alike.
 *
 *   node daemon/verify/host-source.ts LINK...
 *
 * It reports links and routes of the named links; addresses of all links, so that an address in the
 * wrong place is seen. netlink 0.3.0 aborts the process on a socket overrun and mixes up dumps that
 * overlap: hence a child process, one dump after the other, no subscription, and the socket closed
 * before the end.
 */
import netlink from "netlink";

const { createRtNetlink, ifla, parseAttributes } = netlink;

/** Text of an address's bytes, canonical: the URL parser writes IPv6 as RFC 5952 does. */
function addressText(bytes: Buffer | undefined): string | undefined {
  if (bytes === undefined) return undefined;
  if (bytes.length === 4) return bytes.join(".");
  const groups = bytes.toString("hex").match(/.{4}/g) ?? [];
  return new URL(`http://[${groups.join(":")}]/`).hostname.slice(1, -1);
}

const macText = (bytes: Buffer | undefined): string | undefined =>
  bytes?.length === 6 ? (bytes.toString("hex").match(/../g) ?? []).join(":") : undefined;

/** Kind of a link and settings of a bridge port; all sit in nested attributes left as bytes. */
function linkInfo(bytes: Buffer | undefined): {
  kind?: string;
  isolated?: boolean;
  learning?: boolean;
} {
  if (bytes === undefined) return {};
  const { kind, slaveKind, slaveData } = ifla.parseInfo(bytes);
  const port =
    slaveKind === "bridge" && slaveData !== undefined ? ifla.parseBridgePort(slaveData) : undefined;
  return {
    ...(kind === undefined ? {} : { kind }),
    ...(port?.isolated === undefined ? {} : { isolated: port.isolated[0] === 1 }),
    ...(port?.learning === undefined ? {} : { learning: port.learning === 1 }),
  };
}

/**
 * From linux/rtnetlink.h, if_link.h and if_bridge.h: what a dump of bridge ports with their VLANs
 * is asked for by.
 */
const bridgeDump = {
  type: 18,
  dumpFlags: 0x300,
  // struct ifinfomsg of AF_BRIDGE, and IFLA_EXT_MASK with RTEXT_FILTER_BRVLAN.
  message: Buffer.from([7, ...Array.from({ length: 15 }, () => 0), 8, 0, 29, 0, 2, 0, 0, 0]),
  afSpec: 26,
  vlanInfo: 2,
  byDefault: 2,
  untagged: 4,
} as const;

/**
 * The VLANs of bridge ports by the port's index. The package knows a map of them, which holds the
 * last one alone.
 */
async function vlansOfPorts(): Promise<ReadonlyMap<number, readonly string[]>> {
  const { type, dumpFlags, message, afSpec, vlanInfo, byDefault, untagged } = bridgeDump;
  const found = new Map<number, string[]>();
  const options = { ...timeout, flags: dumpFlags };
  const [replies] = await socket.socket.request(type, message, options);
  for (const { data } of replies) {
    const vlans: string[] = [];
    parseAttributes(data.subarray(16), (attribute) => {
      if (attribute.type !== afSpec) return;
      parseAttributes(attribute.data, (info) => {
        if (info.type !== vlanInfo) return;
        const flags = info.data.readUInt16LE(0);
        const tag = (flags & untagged) === 0 ? "tagged" : "untagged";
        const often = (flags & byDefault) === 0 ? " not by default" : "";
        vlans.push(`${info.data.readUInt16LE(2)} ${tag}${often}`);
      });
    });
    found.set(data.readInt32LE(4), vlans);
  }
  return found;
}

const wanted = new Set(process.argv.slice(2));
const socket = createRtNetlink();
const timeout = { timeout: 5000 };
try {
  const linkMessages = await socket.getLinks({}, {}, timeout);
  const addressMessages = await socket.getAddresses({}, {}, timeout);
  const vlans = await vlansOfPorts();
  const routeMessages = await socket.getRoutes({}, {}, timeout);

  const names = new Map(linkMessages.map(({ data, attrs }) => [data.index, attrs.ifname]));
  const links = linkMessages
    .filter(({ attrs }) => wanted.has(attrs.ifname ?? ""))
    .map(({ data, attrs }) => ({
      name: attrs.ifname,
      index: data.index,
      up: (data.flags as { up?: boolean } | undefined)?.up === true,
      mtu: attrs.mtu,
      group: attrs.group,
      alias: attrs.ifalias,
      mac: macText(attrs.address),
      master: attrs.master === undefined ? undefined : names.get(attrs.master),
      ...linkInfo(attrs.linkinfo),
      ...(attrs.master === undefined ? {} : { vlans: vlans.get(data.index ?? 0) }),
    }));
  const addresses = addressMessages.map(({ data, attrs }) => ({
    link: names.get(data.index ?? 0),
    // A point-to-point link has its own address in `local` and the peer's in `address`.
    address: addressText(attrs.local ?? attrs.address),
    length: data.prefixlen,
  }));
  const routes = routeMessages
    .filter(({ attrs }) => wanted.has(names.get(attrs.oif ?? 0) ?? ""))
    .map(({ data, attrs }) => ({
      destination:
        attrs.dst === undefined
          ? data.family === 10
            ? "::/0"
            : "0.0.0.0/0"
          : `${addressText(attrs.dst)}/${data.dstLen}`,
      link: names.get(attrs.oif ?? 0),
      gateway: addressText(attrs.gateway),
      table: attrs.table ?? data.table,
    }));
  process.stdout.write(JSON.stringify({ links, addresses, routes }));
} finally {
  socket.socket.close();
}
