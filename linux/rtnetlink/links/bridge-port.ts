import type { Attributes } from "../attributes.ts";
import type { Writer } from "../writer.ts";

/**
 * Settings of a bridge's port. The numbers are those of IFLA_BRPORT_*, include/uapi/linux/if_link.h
 * (Linux 6.1); IFLA_INFO_SLAVE_DATA and, in AF_BRIDGE messages, IFLA_PROTINFO hold these
 * attributes.
 */
const flags = {
  /** Frames may leave by the port they came in by. */
  hairpin: 4,
  bpduGuard: 5,
  rootBlock: 6,
  fastLeave: 7,
  /** Sources of frames enter the forwarding database. */
  learning: 8,
  /** Frames for unknown unicast addresses are sent out here. */
  unicastFlood: 9,
  proxyArp: 10,
  mcastFlood: 27,
  bcastFlood: 30,
  /** The bridge answers ARP and ND from its neighbour table; needs `learning` off to be of use. */
  neighSuppress: 32,
  /** Isolated ports exchange no frames with each other, only with those that are not isolated. */
  isolated: 33,
  /** Frames from unknown sources are dropped (802.1X). */
  locked: 39,
} as const;

const IFLA_BRPORT_STATE = 1;
const IFLA_BRPORT_PRIORITY = 2;
const IFLA_BRPORT_COST = 3;

type Flag = keyof typeof flags;

/** Settings of a port; those absent stay as they are. */
export type BridgePortSettings = { readonly [Name in Flag]?: boolean } & {
  /** Path cost of the spanning tree. */
  readonly cost?: number;
};

/** A port according to the kernel. Settings a kernel lacks are absent. */
export type BridgePort = BridgePortSettings & {
  /** 0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking. */
  readonly state?: number;
  readonly priority?: number;
};

export function writeBridgePort(writer: Writer, settings: BridgePortSettings): void {
  if (settings.cost !== undefined) writer.attributeU32(IFLA_BRPORT_COST, settings.cost);
  for (const name of Object.keys(flags) as Flag[])
    writer.attributeFlag(flags[name], settings[name]);
}

export function readBridgePort(attributes: Attributes): BridgePort {
  const port: Record<string, number | boolean> = {};
  const put = (name: keyof BridgePort, value: number | boolean | undefined): void => {
    if (value !== undefined) port[name] = value;
  };
  put("state", attributes.u8(IFLA_BRPORT_STATE));
  put("priority", attributes.u16(IFLA_BRPORT_PRIORITY));
  put("cost", attributes.u32(IFLA_BRPORT_COST));
  for (const name of Object.keys(flags) as Flag[]) put(name, attributes.bool(flags[name]));
  return port;
}
