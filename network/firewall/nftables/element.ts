import {
  type Cidr,
  type Family,
  familyOf,
  type Ip,
  ipOf,
  networkOf,
} from "../../../core/address.ts";
import { connectionShares, usualShare } from "../../../core/connection-share.ts";
import {
  type NetworkFragment,
  type PluggedFragment,
  type PublishedDesired,
  redirectedTo,
} from "../../model/desired.ts";
import type { OverlayRuled } from "../../model/overlay.ts";
import { outermost } from "../traffic.ts";
import { type Element, elementId, kindOf } from "../../model/nftables-sets.ts";
import { networkMark, overlayMark, publishedMark } from "../../model/ownership.ts";

/** The subnets of a network's guests. */
const subnetsOf = ({ gateways, masquerade }: NetworkFragment): Cidr[] => [
  ...new Set([...gateways.map(networkOf), ...masquerade]),
];

/** A network's elements. Pure. */
export function networkElements(network: NetworkFragment): Element[] {
  if (!network.firewall) return [];
  const owner = networkMark(network.key);
  const bridge = quoted(network.bridge);
  return [
    { set: "bridges", key: bridge, owner },
    { set: network.isolated === true ? "apart" : "within", key: `${bridge} . ${bridge}`, owner },
    ...(network.acceptTranslated === true
      ? [{ set: "translating", key: bridge, owner } as const]
      : []),
    ...outermost(network.admit ?? []).map(
      (cidr): Element => ({ set: `admitting${familyOf(cidr)}`, key: `${cidr} . ${bridge}`, owner }),
    ),
    ...network.masquerade.map(
      (subnet): Element => ({
        set: `masqueraded${familyOf(subnet)}`,
        key: `${subnet} . ${bridge}`,
        owner,
      }),
    ),
    ...subnetsOf(network).map(
      (subnet): Element => ({
        set: `own${familyOf(subnet)}`,
        key: `${subnet} . ${bridge}`,
        owner,
      }),
    ),
  ];
}

/** A network's elements of the guard of the host and of the cloud's metadata. Pure. */
export function hostGuardElements(network: NetworkFragment): Element[] {
  const { bridge, gateways, cloudMetadata, hostAccess = [], dns = [] } = network;
  const owner = networkMark(network.key);
  const link = quoted(bridge);
  const names = new Set([...gateways.map(ipOf), ...dns]);
  return [
    { set: "within_host", key: link, owner },
    ...(cloudMetadata === true ? [] : [{ set: "no_metadata", key: link, owner } as const]),
    ...(hostAccess === "all" ? [] : [{ set: "host_closed", key: link, owner } as const]),
    ...(hostAccess === "all" ? [] : hostAccess).map(
      ({ protocol, first, last }): Element => ({
        set: "host_ports",
        key: `${link} . ${protocols[protocol]} . ${first === last ? first : `${first}-${last}`}`,
        owner,
      }),
    ),
    ...[...names].map(
      (address): Element => ({
        set: `dns${familyOf(address)}`,
        key: `${link} . ${address}`,
        owner,
      }),
    ),
  ];
}

/** A network's elements of the limit of connections: none without a limit. Pure. */
export function shareElements({
  key,
  bridge,
  connections = usualShare,
}: NetworkFragment): Element[] {
  const share = connectionShares.find((each) => each === connections);
  if (share === undefined) return [];
  return [{ set: `share${share}`, key: quoted(bridge), owner: networkMark(key) }];
}

/** An overlay's elements. Pure. */
export function overlayElements(overlay: OverlayRuled): Element[] {
  const owner = overlayMark(overlay.name);
  const { masquerade } = overlay;
  return overlay.sides.flatMap(({ network, subnet }): Element[] => {
    const family = familyOf(network);
    const except = outermost(masquerade?.except ?? []).filter((cidr) => familyOf(cidr) === family);
    const hidden: Element[] =
      masquerade === undefined
        ? []
        : [
            { set: `inside${family}`, key: `${subnet} . ${network}`, owner },
            ...except.flatMap((cidr): Element[] => [
              { set: `shown${family}`, key: `${network} . ${cidr}`, owner },
              { set: `trusted${family}`, key: `${cidr} . ${network}`, owner },
            ]),
            {
              set: `${masquerade.randomFully ? "randomly" : "plainly"}${family}`,
              key: network,
              owner,
            },
          ];
    return [
      { set: `lease${family}`, key: subnet, owner },
      { set: `admitted${family}`, key: `${network} . ${subnet}`, owner },
      ...hidden,
    ];
  });
}

/**
 * The elements by which what a pod has published is reached, and by which it takes what others
 * translate. Pure.
 */
export function podElements(pod: PluggedFragment): Element[] {
  const owner = publishedMark(pod);
  const foreign = new Set(
    pod.ports.flatMap((port) => (port.foreign === true ? [port.bridge] : [])),
  );
  const elements = (pod.published ?? []).flatMap((published) => [
    ...(foreign.has(published.bridge) ? [hairpin(published, owner)] : []),
    ...publishedElements(published, owner),
  ]);
  const taking = (pod.translated ?? []).map(
    (ip): Element => ({ set: `translated${familyOf(ip)}`, key: ip, owner }),
  );
  const redirected = (pod.loopback ?? []).map(
    ({ protocol, hostIp, hostPort, toPort }): Element => ({
      set: `loopback${familyOf(hostIp)}`,
      key: `${protocols[protocol]} . ${hostIp} . ${hostPort}`,
      value: `${redirectedTo[familyOf(hostIp)]} . ${toPort}`,
      owner,
    }),
  );
  const all = [...elements, ...taking, ...redirected];
  // Elements that several host ports share are written once.
  return [...new Map(all.map((element) => [elementId(element), element])).values()];
}

/** Numbers, for names would be looked up in /etc/protocols. */
const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

const numbers = Object.entries(protocols).map(([name, number]) => [`${number} . `, name] as const);

/** For people: with protocols by their names, as nft itself reports them. */
export function named(element: Element): Element {
  const begins = kindOf(element.set).type.startsWith("inet_proto");
  const by = begins ? numbers.find(([number]) => element.key.startsWith(number)) : undefined;
  if (by === undefined) return element;
  const [number, name] = by;
  return { ...element, key: `${name} . ${element.key.slice(number.length)}` };
}

/**
 * Ranges are one element a port: maps of intervals would have libnftables read the whole map before
 * each change, and cannot shift a range.
 */
function publishedElements(published: PublishedDesired, owner: string): Element[] {
  const { hostIp, hostPort, podIp, podPort, count } = published;
  const family = familyOf(podIp);
  const protocol = protocols[published.protocol];
  const elements: Element[] = [];
  for (let i = 0; i < count; i++) {
    const opened = `${podIp} . ${podPort + i}`;
    elements.push(translation(family, protocol, hostIp, hostPort + i, opened, owner), {
      set: `opened${family}`,
      key: `${protocol} . ${opened}`,
      owner,
    });
  }
  return elements;
}

const hairpin = ({ subnet, bridge, podIp }: PublishedDesired, owner: string): Element => ({
  set: `hairpin${familyOf(podIp)}`,
  key: `${subnet} . ${quoted(bridge)} . ${podIp}`,
  owner,
});

function translation(
  family: Family,
  protocol: number,
  hostIp: Ip | undefined,
  port: number,
  value: string,
  owner: string,
): Element {
  return hostIp === undefined
    ? { set: `everywhere${family}`, key: `${protocol} . ${port}`, value, owner }
    : { set: `published${family}`, key: `${protocol} . ${hostIp} . ${port}`, value, owner };
}

/** Names of links have no character that would have to be escaped (`parseIfName`). */
const quoted = (link: string): string => `"${link}"`;
