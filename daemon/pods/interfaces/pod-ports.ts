import { ipOf } from "../../../core/address.ts";
import type { PortChoices } from "../../../api/pod-spec.ts";
import type { IfName } from "../../../core/names.ts";
import type { PodFragment, PortDesired, SourceDesired } from "../../../network/model/desired.ts";
import { podIfb, podMark } from "../../../network/model/ownership.ts";
import { carried, type NetworkDefinition } from "../../config/network-definition.ts";
import { guestOf } from "../guest/guest-of.ts";
import type { PortRates } from "../../../network/model/rates.ts";
import { portRates } from "../../config/port-rates.ts";
import { publishedDesired } from "../../published/plan-published.ts";
import {
  type InterfacePlan,
  type NicInterface,
  type PodPlan,
  staying,
  withNic,
} from "../store/pod-plan.ts";

type Rules = Pick<PodFragment, "published" | "withdrawn" | "sources">;

/**
 * The pod's part of the host: its bridge ports and its rules, with the networks as they are now. A
 * network that is gone counts as one without settings for ports. Pure.
 */
export const portsOf = (plan: PodPlan, networks: readonly NetworkDefinition[]): PodFragment => ({
  kind: "pod",
  key: plan.podId,
  ports: withNic(staying(plan.interfaces)).flatMap((each) => portOf(each, plan, networks)),
  ...rulesOf(plan),
});

/**
 * The host's rules for a pod. Published ports are absent for a pod that has never had rules, and
 * addresses of `lo` for a pod that has never had such: looking for them would be in vain. Pure.
 */
export function rulesOf({ interfaces, published, withdrawn, hadLoopback }: PodPlan): Rules {
  const desired = publishedDesired(published ?? [], interfaces);
  const sources = sourcesOf(staying(interfaces));
  const hasSources = sources.length > 0 || hadLoopback === true;
  const hasRules = hasSources || desired.length > 0 || withdrawn !== undefined;
  return {
    ...(hasRules ? { published: desired } : {}),
    ...(withdrawn === undefined ? {} : { withdrawn }),
    ...(hasSources ? { sources } : {}),
  };
}

/**
 * Whether two plans of a pod need different rules on the host: for what they publish, or for what
 * the ports that both have may send. Traffic on loopback needs none.
 */
export function rulesDiffer(one: PodPlan, other: PodPlan): boolean {
  if (rulesText(one) !== rulesText(other)) return true;
  const before = new Map(sendersOf(one));
  return sendersOf(other).some(([tap, sends]) => (before.get(tap) ?? sends) !== sends);
}

const rulesText = (plan: PodPlan): string => {
  const { published = [], sources = [] } = rulesOf(plan);
  return JSON.stringify([published, sources]);
};

/** Each tap, and what its guest may send. */
const sendersOf = (plan: PodPlan): [tap: IfName, sends: string][] =>
  portsOf(plan, []).ports.map(({ tap, guestMac, guestAddresses, otherAddresses, sharing }) => [
    tap,
    JSON.stringify([guestMac, guestAddresses, otherAddresses, sharing]),
  ]);

/** The port of one interface alone: enough to remove what is left of it. */
export const portAlone = (
  plan: Pick<PodPlan, "podId" | "agent" | "interfaces">,
  each: InterfacePlan,
  networks: readonly NetworkDefinition[] = [],
): PodFragment => ({
  kind: "pod",
  key: plan.podId,
  ports: withNic([each]).flatMap((nic) => portOf(nic, plan, networks)),
});

/**
 * Everything that the host may have of a pod, also of interfaces that are being removed: a machine
 * or podnetd may end before their removal is complete. Needs the plan alone, as networks may be
 * gone.
 */
export const everyPort = (plan: PodPlan): PodFragment =>
  portsOf(
    { ...plan, interfaces: plan.interfaces.map(({ leaving: _leaving, ...each }) => each) },
    [],
  );

/** Empty for a foreign tap and for a CNI link, which are on no bridge of podnetd's. */
function portOf(
  {
    position,
    network: name,
    bridge,
    bridgeMtu,
    nic,
    addresses,
    fresh,
    mtu,
    port = {},
  }: NicInterface,
  plan: Pick<PodPlan, "podId" | "agent" | "interfaces">,
  networks: readonly NetworkDefinition[],
): PortDesired[] {
  if (bridge === undefined) return [];
  const network = networks.find((known) => known.name === name);
  const { vlan, isolated = network?.isolated ?? false, learning } = port;
  const others = withNic(staying(plan.interfaces))
    .filter((each) => each.bridge === bridge && each.position !== position)
    .flatMap((each) => each.addresses.map(ipOf));
  const rates = ratesOf({ network: name, port }, networks);
  return [
    {
      tap: nic.tap,
      bridge,
      guestMac: nic.mac,
      guestAddresses: addresses,
      alias: podMark(plan.podId, position),
      isolated,
      // The bridge's MTU, not the interface's: a port below it would make the bridge drop larger
      // packets of other ports.
      mtu: network === undefined ? (bridgeMtu ?? mtu) : carried(network),
      ...(vlan === undefined ? {} : { vlan }),
      ...(learning === undefined ? {} : { learning }),
      ...(name === undefined ? { foreign: true as const } : {}),
      ...(fresh === undefined ? {} : { fresh }),
      ...(others.length === 0 ? {} : { otherAddresses: others }),
      ...(isSharing(position, plan) ? { sharing: true as const } : {}),
      ...guardOf(port, plan),
      ifb: podIfb(plan.podId, position),
      ...(rates === undefined ? {} : { rates }),
    },
  ];
}

/**
 * Whether a port shares its pod's limit of connections with another one. Bridges of other programs
 * have no limit. The plan decides, so that a port is alike whether it is looked at alone or with
 * others.
 */
function isSharing(position: number, { interfaces }: Pick<PodPlan, "interfaces">): boolean {
  const limited = withNic(staying(interfaces)).filter(
    ({ network, bridge }) => network !== undefined && bridge !== undefined,
  );
  return limited.length > 1 && limited.some((each) => each.position === position);
}

const guardOf = (
  { guard }: PortChoices,
  plan: Pick<PodPlan, "agent">,
): Pick<PortDesired, "guard"> => {
  if (guard === false) return { guard: "off" };
  return guestOf(plan).choosesLinkLocal ? { guard: "own-link-local" } : {};
};

/** The rates of an interface, with the networks as they are now; undefined: none. Pure. */
export const ratesOf = (
  { network: name, port }: { readonly network?: string | undefined; readonly port?: PortChoices },
  networks: readonly NetworkDefinition[],
): PortRates | undefined =>
  portRates(port?.limits, networks.find((known) => known.name === name)?.limits);

/**
 * A pod may send from the addresses of its `lo` by each of its ports on podnet's networks. (Its
 * other addresses are of its networks' subnets, or refused.)
 */
function sourcesOf(interfaces: readonly InterfacePlan[]): SourceDesired[] {
  const given = interfaces
    .filter(({ nic }) => nic === undefined)
    .flatMap(({ addresses }) => addresses.map(ipOf));
  const by = withNic(interfaces)
    .filter(({ network, bridge }) => network !== undefined && bridge !== undefined)
    .map(({ nic }): IfName => nic.tap);
  return by.flatMap((tap) => given.map((address) => ({ tap, address })));
}
