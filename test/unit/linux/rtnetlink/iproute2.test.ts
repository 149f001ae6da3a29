/**
 * Our requests alongside those of iproute2 6.1.0, captured on their way into sendmsg(2). Both were
 * sent to the same links: hyper0 2, va 4, vb 3, vx 6, ve0 8.
 */
import test from "ava";
import { type Cidr, type Ip, type IpPrefix, type Mac, parseMac } from "../../../../core/address.ts";
import { addAddress, deleteAddress } from "../../../../linux/rtnetlink/address.ts";
import { parseAttributes } from "../../../../linux/rtnetlink/attributes.ts";
import { addPortVlan, deletePortVlan } from "../../../../linux/rtnetlink/links/bridge-vlan.ts";
import { addFdb, deleteFdb } from "../../../../linux/rtnetlink/fdb.ts";
import {
  addAltName,
  changeBridgePort,
  changeLink,
  deleteGroup,
  deleteLink,
  newBridge,
  newVeth,
  newVxlan,
} from "../../../../linux/rtnetlink/links/link-requests.ts";
import { encodeRequest, parseMessages, type Request } from "../../../../linux/rtnetlink/message.ts";
import { replaceNeighbour } from "../../../../linux/rtnetlink/neighbour.ts";
import { addRoute, deleteRoute, replaceRoute } from "../../../../linux/rtnetlink/route-requests.ts";

const mac: Mac = parseMac("52:54:00:00:00:09");
const seq = 0x6b001f75;

interface Case {
  readonly request: Request;
  readonly captured: string;
  /** Sequence number of the capture, when it was made a second later. */
  readonly seq?: number;
}

/** Byte for byte the same. */
const same: Readonly<Record<string, Case>> = {
  "bridge vlan add dev va vid 10 pvid untagged": {
    request: addPortVlan(4, 10),
    captured:
      "2c00000013000500751f006b00000000070000000400000000000000000000000c001a000800020006000a00",
  },
  "bridge vlan del dev va vid 20": {
    request: deletePortVlan(4, 20),
    captured:
      "2c00000011000500751f006b00000000070000000400000000000000000000000c001a000800020000001400",
  },
  "ip link set dev va master hyper0": {
    request: changeLink(4, { master: 2 }),
    captured: "2800000010000500751f006b000000000000000004000000000000000000000008000a0002000000",
  },
  "ip link set dev va nomaster": {
    request: changeLink(4, { master: 0 }),
    captured: "2800000010000500751f006b000000000000000004000000000000000000000008000a0000000000",
  },
  "ip link set dev va group 73": {
    request: changeLink(4, { group: 73 }),
    captured: "2800000010000500751f006b000000000000000004000000000000000000000008001b0049000000",
  },
  "ip link set dev va alias podnet:pod:a": {
    request: changeLink(4, { alias: "podnet:pod:a" }),
    captured:
      "3000000010000500751f006b000000000000000004000000000000000000000010001400706f646e65743a706f643a61",
  },
  "ip link set dev va mtu 1400": {
    request: changeLink(4, { mtu: 1400 }),
    captured: "2800000010000500751f006b00000000000000000400000000000000000000000800040078050000",
  },
  "ip link set dev va up": {
    request: changeLink(4, { up: true }),
    captured: "2000000010000500751f006b0000000000000000040000000100000001000000",
  },
  "ip link property add dev va altname podnet-pod-abcdefghijkl-0": {
    request: addAltName(4, "podnet-pod-abcdefghijkl-0"),
    captured:
      "440000006c00050e751f006b0000000000000000040000000000000000000000240034801e003500706f646e65742d706f642d6162636465666768696a6b6c2d30000000",
  },
  "ip link del dev ve0": {
    request: deleteLink(8),
    captured: "2000000011000500751f006b0000000000000000080000000000000000000000",
  },
  "ip link del group 99": {
    request: deleteGroup(99),
    seq: seq + 1,
    captured: "2800000011000500761f006b000000000000000000000000000000000000000008001b0063000000",
  },
  "ip addr add 192.168.123.1/24 dev hyper0": {
    request: addAddress(2, "192.168.123.1/24" as IpPrefix),
    captured: "2800000014000506751f006b00000000021800000200000008000200c0a87b0108000100c0a87b01",
  },
  "ip addr replace 192.168.123.1/24 dev hyper0": {
    request: addAddress(2, "192.168.123.1/24" as IpPrefix, { replace: true }),
    captured: "2800000014000505751f006b00000000021800000200000008000200c0a87b0108000100c0a87b01",
  },
  "ip addr del 192.168.123.1/24 dev hyper0": {
    request: deleteAddress(2, "192.168.123.1/24" as IpPrefix),
    captured: "2800000015000500751f006b00000000021800000200000008000200c0a87b0108000100c0a87b01",
  },
  "ip route add 10.9.0.0/16 via 192.168.123.7 dev hyper0 proto 73 metric 5": {
    request: addRoute({
      destination: "10.9.0.0/16" as Cidr,
      gateway: "192.168.123.7" as Ip,
      link: 2,
      protocol: 73,
      metric: 5,
    }),
    captured:
      "3c00000018000506751f006b0000000002100000fe49000100000000080001000a09000008000500c0a87b0708000600050000000800040002000000",
  },
  "ip route add 10.8.0.0/16 dev hyper0 table 1000 src 192.168.123.1": {
    request: addRoute({
      destination: "10.8.0.0/16" as Cidr,
      link: 2,
      table: 1000,
      source: "192.168.123.1" as Ip,
    }),
    captured:
      "3c00000018000506751f006b00000000021000000003fd0100000000080001000a08000008000f00e803000008000700c0a87b010800040002000000",
  },
  "ip -6 route add fd01::/64 via fd00::2 dev hyper0": {
    request: addRoute({ destination: "fd01::/64" as Cidr, gateway: "fd00::2" as Ip, link: 2 }),
    captured:
      "4c00000018000506751f006b000000000a400000fe0300010000000014000100fd01000000000000000000000000000014000500fd0000000000000000000000000000020800040002000000",
  },
  "ip route add blackhole 10.7.0.0/16": {
    request: addRoute({ destination: "10.7.0.0/16" as Cidr, type: "blackhole" }),
    captured: "2400000018000506751f006b0000000002100000fe03000600000000080001000a070000",
  },
  "ip route del 10.9.0.0/16 proto 73": {
    request: deleteRoute({ destination: "10.9.0.0/16" as Cidr, protocol: 73 }),
    captured: "2400000019000500751f006b0000000002100000fe49ff0000000000080001000a090000",
  },
  "ip neigh replace 192.168.123.9 lladdr 52:54:00:00:00:09 dev hyper0": {
    request: replaceNeighbour({ index: 2, address: "192.168.123.9" as Ip, mac }),
    seq: seq + 1,
    captured:
      "300000001c000505761f006b0000000002000000020000008000000008000100c0a87b090a0002005254000000090000",
  },
  "ip neigh replace fd00::9 lladdr 52:54:00:00:00:09 dev hyper0 nud reachable": {
    request: replaceNeighbour({ index: 2, address: "fd00::9" as Ip, mac, state: "reachable" }),
    seq: seq + 1,
    captured:
      "3c0000001c000505761f006b000000000a000000020000000200000014000100fd0000000000000000000000000000090a0002005254000000090000",
  },
  "bridge fdb replace 52:54:00:00:00:0a dev va master static vlan 1": {
    request: addFdb(
      { index: 4, mac: parseMac("52:54:00:00:00:0a"), table: "master", state: "static", vlan: 1 },
      "replace",
    ),
    seq: seq + 1,
    captured:
      "300000001c000505761f006b000000000700000004000000420004000a00020052540000000a00000600050001000000",
  },
};

for (const [command, { request, captured, seq: number }] of Object.entries(same)) {
  test(command, (t) => {
    t.is(Buffer.from(encodeRequest(request, number ?? seq)).toString("hex"), captured);
  });
}

/**
 * Equal but for what the kernel does not look at: order, padding, a final NUL, the flag of a
 * nest.
 */
const alike: Readonly<Record<string, Case & { readonly header: number }>> = {
  "ip link add name br7 mtu 1400 address 52:54:00:12:34:56 group 73 type bridge stp_state 0 forward_delay 200":
    {
      header: 16,
      request: newBridge({
        name: "br7",
        mtu: 1400,
        mac: parseMac("52:54:00:12:34:56"),
        group: 73,
        bridge: { stpState: 0, forwardDelay: 200 },
      }),
      captured:
        "6800000010000506751f006b000000000000000000000000000000000000000008000400780500000a000100525400123456000008001b00490000000800030062723700240012000a000100627269646765000014000200080005000000000008000100c8000000",
    },
  "ip link add name vx type vxlan id 42 local 127.0.0.1 dstport 4789 nolearning ttl 9": {
    header: 16,
    request: newVxlan({
      name: "vx",
      vxlan: { id: 42, local: "127.0.0.1" as Ip, port: 4789, learning: false, ttl: 9 },
    }),
    captured:
      "6400000010000506751f006b000000000000000000000000000000000000000007000300767800003c0012000900010076786c616e0000002c0002000500050009000000080001002a000000080004007f000001050007000000000006000f0012b50000",
  },
  "ip link add name ve0 mtu 1300 type veth peer name ve1 mtu 1200 address 52:54:00:00:00:01": {
    header: 16,
    request: newVeth({
      name: "ve0",
      mtu: 1300,
      peer: { name: "ve1", mtu: 1200, mac: parseMac("52:54:00:00:00:01") },
    }),
    captured:
      "7000000010000506751f006b00000000000000000000000000000000000000000800040014050000080003007665300040001200080001007665746834000200300001000000000000000000000000000000000008000400b00400000a00010052540000000100000800030076653100",
  },
  "ip addr add fd00::1/64 dev hyper0 nodad noprefixroute": {
    header: 8,
    request: addAddress(2, "fd00::1/64" as IpPrefix, { noDad: true, noPrefixRoute: true }),
    captured:
      "4800000014000506751f006b000000000a4000000200000014000200fd000000000000000000000000000001080008000202000014000100fd000000000000000000000000000001",
  },
  "ip route replace default via 192.168.123.9 dev hyper0 onlink mtu 1300": {
    header: 12,
    request: replaceRoute({
      destination: "0.0.0.0/0" as Cidr,
      gateway: "192.168.123.9" as Ip,
      link: 2,
      onlink: true,
      mtu: 1300,
    }),
    captured:
      "3800000018000505751f006b0000000002000000fe0300010400000008000500c0a87b0908000400020000000c0008000800020014050000",
  },
};

for (const [command, { request, captured, header }] of Object.entries(alike)) {
  test(`${command} (attributes in any order)`, (t) => {
    t.deepEqual(
      normal(encodeRequest(request, seq), header),
      normal(Buffer.from(captured, "hex"), header),
    );
  });
}

test("ip link set dev va type bridge_slave isolated on learning off … (by another name)", (t) => {
  const request = changeBridgePort(4, {
    isolated: true,
    learning: false,
    hairpin: true,
    neighSuppress: true,
    mcastFlood: false,
    unicastFlood: false,
  });
  const captured =
    "6800000010000500751f006b000000000000000004000000000000000000000048001200100001006272696467655f736c61766534000500050021000100000005000800000000000500040001000000050020000100000005001b00000000000500090000000000";
  const linkInfo = 18;
  const slaveData = 5;
  const settings = (bytes: Uint8Array): unknown =>
    normal(
      parseAttributes(parseMessages(bytes)[0]?.payload.subarray(16) as Uint8Array)
        .nested(linkInfo)
        ?.get(slaveData) as Uint8Array,
      undefined,
    );
  t.deepEqual(settings(encodeRequest(request, seq)), settings(Buffer.from(captured, "hex")));
});

test("bridge fdb append … dev vx dst 127.0.0.2 (but for the state's spare bit)", (t) => {
  const request = addFdb(
    {
      index: 6,
      mac: parseMac("00:00:00:00:00:00"),
      table: "self",
      state: "permanent",
      remote: "127.0.0.2" as Ip,
    },
    "append",
  );
  const captured =
    "300000001c00050c761f006b000000000700000006000000c00002000a0002000000000000000000080001007f000002";
  const ours = Buffer.from(encodeRequest(request, seq + 1)).toString("hex");
  t.is(ours.replace("80000200", "c0000200"), captured);
  const unwanted = deleteFdb({
    index: 4,
    mac: parseMac("52:54:00:00:00:0a"),
    table: "master",
    vlan: 1,
  });
  t.is(
    Buffer.from(encodeRequest(unwanted, seq + 1)).toString("hex"),
    "300000001d000500761f006b000000000700000004000000000004000a00020052540000000a00000600050001000000",
  );
});

/** Headers as they are, attributes as a tree sorted by type. */
function normal(bytes: Uint8Array, header: number | undefined): unknown {
  if (header === undefined) return tree(bytes);
  const [message] = parseMessages(bytes);
  const payload = message?.payload as Uint8Array;
  return {
    type: message?.type,
    flags: message?.flags,
    header: Buffer.from(payload.subarray(0, header)).toString("hex"),
    attributes: tree(payload.subarray(header)),
  };
}

function tree(bytes: Uint8Array): unknown {
  const list = parseAttributes(bytes).list.map(({ type, value }) => [type, leafOrTree(value)]);
  return list.sort(([a], [b]) => (a as number) - (b as number));
}

/** Whatever reads as attributes to its last byte is taken for a nest, on both sides alike. */
function leafOrTree(value: Uint8Array): unknown {
  const skip = value.length > 20 && value.subarray(0, 4).every((byte) => byte === 0) ? 16 : 0;
  try {
    const inner = value.subarray(skip);
    const first = parseAttributes(inner).list[0];
    if (inner.length >= 8 && first !== undefined && first.type < 64) return [skip, tree(inner)];
  } catch {}
  return Buffer.from(value).toString("hex").replace(/00$/, "");
}
