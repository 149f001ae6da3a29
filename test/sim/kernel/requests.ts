import { type Mac, macFromBytes } from "../../../core/address.ts";
import { decodeUtf8 } from "../../../core/utf8.ts";
import { parseAddress } from "../../../linux/rtnetlink/address.ts";
import { type Attributes, parseAttributes } from "../../../linux/rtnetlink/attributes.ts";
import {
  AF_INET6,
  RTM_DELLINK,
  RTM_DELQDISC,
  RTM_DELROUTE,
  RTM_DELTFILTER,
  RTM_GETQDISC,
  RTM_GETTFILTER,
  RTM_NEWADDR,
  RTM_NEWLINK,
  RTM_NEWQDISC,
  RTM_NEWROUTE,
  RTM_NEWTFILTER,
} from "../../../linux/rtnetlink/constants.ts";
import {
  IFF_UP,
  IFLA_ADDRESS,
  IFLA_AF_SPEC,
  IFLA_GROUP,
  IFLA_IFALIAS,
  IFLA_IFNAME,
  IFLA_INET6_ADDR_GEN_MODE,
  IFLA_INFO_DATA,
  IFLA_INFO_KIND,
  IFLA_LINKINFO,
  IFLA_MASTER,
  IFLA_MTU,
  IFLA_NET_NS_FD,
  IN6_ADDR_GEN_MODE_NONE,
  VETH_INFO_PEER,
} from "../../../linux/rtnetlink/links/link-attributes.ts";
import type { LinkChange, LinkRef, NewLink } from "../../../linux/rtnetlink/links/link-requests.ts";
import { NLM_F_CREATE, NLM_F_EXCL, type Request } from "../../../linux/rtnetlink/message.ts";
import { Reader } from "../../../linux/rtnetlink/reader.ts";
import { parseRoute } from "../../../linux/rtnetlink/route.ts";
import { Errno } from "./errno.ts";
import type { FakeKernel } from "./kernel.ts";
import { answerFilters, answerQueue, changeFilters, changeQueue, removeQueue } from "./queues.ts";

const linkHeader = 16;

/**
 * Carries out one message of rtnetlink's on the fake, and answers payloads: what is sent to a
 * kernel in batches is bytes here, too. `namespace` is what a descriptor of the asking process
 * leads to.
 */
export function carryOut(
  kernel: FakeKernel,
  { type, flags, payload, what }: Request,
  namespace: (fd: number) => FakeKernel,
): Uint8Array[] {
  switch (type) {
    case RTM_NEWLINK:
      if ((flags & NLM_F_CREATE) === 0) kernel.links.change(...linkChangeOf(payload));
      else makeLink(kernel, payload, namespace);
      return [];
    case RTM_DELLINK: {
      const [which, { group }] = linkChangeOf(payload);
      if (which === 0 && group !== undefined) kernel.links.deleteGroup(group);
      else kernel.links.delete(which);
      return [];
    }
    case RTM_NEWADDR: {
      const address = parseAddress(payload);
      if (address === undefined) throw new Errno("EOPNOTSUPP");
      kernel.addAddress(address.index, address.prefix);
      return [];
    }
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
      changeRoute(kernel, payload, type === RTM_NEWROUTE, (flags & NLM_F_EXCL) !== 0);
      return [];
    case RTM_NEWQDISC:
      changeQueue(kernel.links, payload);
      return [];
    case RTM_DELQDISC:
      removeQueue(kernel.links, payload);
      return [];
    case RTM_NEWTFILTER:
    case RTM_DELTFILTER:
      changeFilters(kernel.links, payload, type === RTM_NEWTFILTER);
      return [];
    case RTM_GETQDISC:
      return [answerQueue(kernel.links, payload)];
    case RTM_GETTFILTER:
      return answerFilters(kernel.links, payload);
    default:
      throw new Error(`The fake kernel knows no message ${type}: ${what}`);
  }
}

/** Which link a message is about, and what it says of it. */
function linkChangeOf(payload: Uint8Array): [LinkRef, LinkChange & { readonly group?: number }] {
  const reader = new Reader(payload, "a link");
  const attributes = parseAttributes(reader.rest(linkHeader));
  const index = reader.i32(4);
  const name = attributes.text(IFLA_IFNAME);
  const master = attributes.u32(IFLA_MASTER);
  const alias = attributes.get(IFLA_IFALIAS);
  const ipv6 = attributes.nested(IFLA_AF_SPEC)?.nested(AF_INET6);
  const mode = ipv6?.u8(IFLA_INET6_ADDR_GEN_MODE);
  const changed = {
    ...settingsOf(attributes),
    ...(reader.u32(12) === 0 ? {} : { up: (reader.u32(8) & IFF_UP) !== 0 }),
    ...(master === undefined ? {} : { master }),
    ...(alias === undefined ? {} : { alias: decodeUtf8(alias) }),
    ...(mode === IN6_ADDR_GEN_MODE_NONE ? { linkLocal: false as const } : {}),
  };
  return index === 0 && name !== undefined
    ? [name, changed]
    : [index, name === undefined ? changed : { ...changed, name }];
}

function settingsOf(attributes: Attributes): { mac?: Mac; mtu?: number; group?: number } {
  const mac = attributes.get(IFLA_ADDRESS);
  const mtu = attributes.u32(IFLA_MTU);
  const group = attributes.u32(IFLA_GROUP);
  return {
    ...(mac === undefined ? {} : { mac: macFromBytes(mac) }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(group === undefined ? {} : { group }),
  };
}

const newLinkOf = (attributes: Attributes): NewLink => ({
  name: attributes.text(IFLA_IFNAME) ?? "",
  ...settingsOf(attributes),
});

function makeLink(
  kernel: FakeKernel,
  payload: Uint8Array,
  namespace: (fd: number) => FakeKernel,
): void {
  const attributes = parseAttributes(new Reader(payload, "a link").rest(linkHeader));
  const [, { up }] = linkChangeOf(payload);
  const wanted = { ...newLinkOf(attributes), ...(up === undefined ? {} : { up }) };
  const info = attributes.nested(IFLA_LINKINFO);
  const kind = info?.text(IFLA_INFO_KIND);
  if (kind === "ifb") kernel.links.addIfb(wanted);
  else if (kind === "veth") {
    const peer = info?.nested(IFLA_INFO_DATA)?.get(VETH_INFO_PEER);
    if (peer === undefined) throw new Errno("EOPNOTSUPP");
    const far = parseAttributes(peer.subarray(linkHeader));
    const fd = far.u32(IFLA_NET_NS_FD);
    const home = fd === undefined ? kernel : namespace(fd);
    kernel.links.addPair(wanted, newLinkOf(far), home.links);
  } else throw new Errno("EOPNOTSUPP");
}

function changeRoute(
  kernel: FakeKernel,
  payload: Uint8Array,
  isNew: boolean,
  alone: boolean,
): void {
  const route = parseRoute(payload);
  if (route?.link === undefined) throw new Errno("EOPNOTSUPP");
  const { family, destination, gateway, table, protocol, metric, mtu, advmss, onlink, link } =
    route;
  const fake = {
    family,
    destination,
    ...(gateway === undefined ? {} : { gateway }),
    table,
    protocol,
    metric,
    ...(mtu === undefined ? {} : { mtu }),
    ...(advmss === undefined ? {} : { advmss }),
  };
  if (isNew) kernel.addRoute(link, { ...fake, onlink }, alone);
  else kernel.deleteRoute(link, fake);
}
