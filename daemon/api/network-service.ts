import { create, type JsonObject } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/network_service_pb.ts";
import { limitsView } from "../../core/rate-limits.ts";
import { validateNetwork } from "../../api/validate/network.ts";
import { ipOf } from "../../core/address.ts";
import { usualShare } from "../../core/connection-share.ts";
import { hostAccessTexts } from "../../core/host-access.ts";
import { ipRangeText } from "../../core/ip-range.ts";
import { parseNetworkName } from "../../core/names.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { countInterfaces } from "../pods/store/interfaces.ts";
import { note, type ServiceParts } from "./context.ts";

/** The network service: this node's networks with their pools. */
export function networkService(parts: ServiceParts): ServiceImpl<typeof wire.NetworkService> {
  const { networks, policies, services } = parts;
  return {
    get: ({ name }) => ({ network: networkView(networks.find(name), parts) }),

    list: () => ({ networks: networks.list().map((network) => networkView(network, parts)) }),

    async create({ spec, force, planOnly }, context) {
      const asked = validateNetwork(spec);
      if (planOnly) return { plan: [...(await networks.planCreate(asked, { force }))] };
      note(parts, context, `create network ${asked.name}`);
      return { network: networkView(await networks.create(asked, { force }), parts) };
    },

    async update({ spec, force, planOnly }, context) {
      const asked = validateNetwork(spec);
      if (planOnly) return { plan: [...(await networks.planUpdate(asked, { force }))] };
      note(parts, context, `update network ${asked.name}`);
      const { policy } = networks.find(asked.name);
      const updated = await networks.update(asked, { force });
      if (JSON.stringify(policy) !== JSON.stringify(updated.policy)) await policies.changed();
      await services.changed();
      return { network: networkView(updated, parts) };
    },

    async delete({ name, planOnly }, context) {
      const asked = parseNetworkName(name, "name");
      if (planOnly) {
        const plan = networks.planDelete(asked);
        return { existed: plan.length > 0, plan: [...plan] };
      }
      note(parts, context, `delete network ${asked}`);
      return { existed: await networks.delete(asked) };
    },
  };
}

/** Most addresses in quarantine that an answer names. */
const shownInQuarantine = 256;

function networkView(
  network: NetworkDefinition,
  { addresses, networks, db }: ServiceParts,
): wire.Network {
  const stats = addresses.subnets(network.name);
  return create(wire.NetworkSchema, {
    name: network.name,
    bridge: network.bridge,
    mtu: network.mtu,
    subnets: network.subnets.map(({ cidr, gateway, ranges, reserved }) => ({
      cidr,
      gateway: ipOf(gateway),
      ranges: ranges.map(ipRangeText),
      reservations: reserved.map(ipRangeText),
      quarantinedAddresses: [...addresses.quarantined(network.name, cidr, shownInQuarantine)],
      ...countsOf(stats.find((each) => each.cidr === cidr)),
    })),
    isolated: network.isolated,
    masquerade: masquerades(
      network,
      networks.fragments().find(({ key }) => key === network.name)?.firewall,
    ),
    interfaces: countInterfaces(db, network.name),
    dns: [...network.dns],
    dnsSearch: [...network.dnsSearch],
    vlanFiltering: network.vlanFiltering,
    default: networks.isConfigured(network),
    resolver: networks.isResolving(network),
    cloudMetadata: network.cloudMetadata === true,
    acceptTranslated: network.acceptTranslated === true,
    admit: [...(network.admit ?? [])],
    hostAccess: hostAccessTexts(network.hostAccess ?? []),
    connections: network.connections ?? usualShare,
    ...(network.limits === undefined ? {} : { limits: limitsView(network.limits) }),
    ...(network.policy === undefined ? {} : { policy: network.policy as JsonObject }),
  });
}

/** Without rules there is no NAT, even if it was requested. */
const masquerades = ({ masquerade }: NetworkDefinition, firewall: boolean | undefined): boolean =>
  masquerade && firewall === true;

type Stats = ReturnType<ServiceParts["addresses"]["subnets"]>[number];

const countsOf = (stats: Stats | undefined) =>
  stats === undefined
    ? {}
    : {
        size: `${stats.size}`,
        free: `${stats.free}`,
        used: `${stats.used}`,
        reserved: `${stats.reserved}`,
        quarantined: `${stats.quarantined}`,
      };
