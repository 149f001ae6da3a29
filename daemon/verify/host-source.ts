/**
 * An independent check of the host's network for `podnet verify`: a separate program that reads
 * links, addresses, routes and limits through npm's `netlink` and prints them as JSON. It shares no
 * code with podnet, on purpose: an error in podnet's own rtnetlink codec would affect writing and
 * reading alike.
 *
 *   node daemon/verify/host-source.ts LINK...
 *
 * It reports links, routes and limits of the named links; addresses of all links, so that one in
 * the wrong place is seen. netlink 0.3.0 aborts the process on a socket overrun and mixes up dumps
 * that overlap: hence a child process, one dump after the other, no subscription, and the socket
 * closed before the end.
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

/**
 * From linux/rtnetlink.h, pkt_sched.h, pkt_cls.h and tc_mirred.h: what dumps of queues and of the
 * filters of incoming frames are asked for by, and what is read of them.
 */
const trafficDump = {
  queues: 38,
  filters: 46,
  dumpFlags: 0x300,
  // struct tcmsg: family, index, handle, parent, info.
  size: 20,
  ingress: 0xffff_0000,
  kind: 1,
  options: 2,
  bucket: 1,
  // struct tc_tbf_qopt begins with struct tc_ratespec: mpu and rate.
  mpuAt: 6,
  rateAt: 8,
  rate64: 4,
  actions: 7,
  actionOptions: 2,
  mirred: 2,
  // struct tc_mirred ends with the kind of action (1: redirect to where frames leave) and a link.
  redirect: { at: 20, is: 1, linkAt: 24 },
} as const;

const attributesIn = (data: Buffer): ReadonlyMap<number, Buffer> => {
  const found = new Map<number, Buffer>();
  parseAttributes(data, (each) => {
    found.set(each.type & 0x3fff, each.data);
  });
  return found;
};

const asked = (index: number, parent: number): Buffer => {
  const message = Buffer.alloc(trafficDump.size);
  message.writeInt32LE(index, 4);
  message.writeUInt32LE(parent, 12);
  return message;
};

/** Token buckets of links by the link's index. */
async function buckets(): Promise<{ index: number; bytesPerSecond: number; leastCost: number }[]> {
  const { queues, dumpFlags, size, kind, options, bucket, mpuAt, rateAt, rate64 } = trafficDump;
  const [replies] = await socket.socket.request(queues, asked(0, 0), {
    ...timeout,
    flags: dumpFlags,
  });
  return replies.flatMap(({ data }) => {
    const attributes = attributesIn(data.subarray(size));
    if (attributes.get(kind)?.toString("latin1").startsWith("tbf") !== true) return [];
    const own = attributesIn(attributes.get(options) ?? Buffer.alloc(0));
    const parms = own.get(bucket);
    if (parms === undefined) return [];
    const long = own.get(rate64);
    const rate = long === undefined ? parms.readUInt32LE(rateAt) : Number(long.readBigUInt64LE(0));
    const index = data.readInt32LE(4);
    return [{ index, bytesPerSecond: rate, leastCost: parms.readUInt16LE(mpuAt) }];
  });
}

/** The index of the link that takes a link's incoming frames. */
async function redirectOf(index: number): Promise<number | undefined> {
  const { filters, dumpFlags, size, ingress, options, actions } = trafficDump;
  const { actionOptions, mirred, redirect } = trafficDump;
  const [replies] = await socket.socket.request(filters, asked(index, ingress), {
    ...timeout,
    flags: dumpFlags,
  });
  for (const { data } of replies) {
    const own = attributesIn(attributesIn(data.subarray(size)).get(options) ?? Buffer.alloc(0));
    for (const action of attributesIn(own.get(actions) ?? Buffer.alloc(0)).values()) {
      const given = attributesIn(attributesIn(action).get(actionOptions) ?? Buffer.alloc(0));
      const parms = given.get(mirred);
      if (parms?.readInt32LE(redirect.at) === redirect.is)
        return parms.readUInt32LE(redirect.linkAt);
    }
  }
  return undefined;
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
  const queues = (await buckets())
    .filter(({ index }) => wanted.has(names.get(index) ?? ""))
    .map(({ index, ...bucket }) => ({ link: names.get(index), ...bucket }));
  const redirects = [];
  for (const { name, index } of links) {
    // The kernel has no filters for a link without a queue for what comes.
    const to = await redirectOf(index ?? 0).catch(() => undefined);
    if (to !== undefined) redirects.push({ link: name, to: names.get(to) });
  }
  process.stdout.write(JSON.stringify({ links, addresses, routes, queues, redirects }));
} finally {
  socket.socket.close();
}
