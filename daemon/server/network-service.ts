import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/network_service_pb.ts";
import { ipOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { NetworkConfig } from "../config/config.ts";
import { countInterfaces } from "../store/interfaces.ts";
import type { ServiceParts } from "./context.ts";

/** The network service: this node's networks with their pools. */
export function networkService(
  parts: ServiceParts,
): Partial<ServiceImpl<typeof wire.NetworkService>> {
  const { network } = parts.config;
  return {
    get({ name }) {
      if (name !== network.name) {
        throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${printable(name)}"`, {
          field: "name",
          hint: `Networks are: ${network.name}`,
        });
      }
      return { network: networkView(network, parts) };
    },
    list() {
      return { networks: [networkView(network, parts)] };
    },
  };
}

function networkView(
  network: NetworkConfig,
  { addresses, db, fragments }: ServiceParts,
): wire.Network {
  const fragment = fragments.find(({ key }) => key === network.name);
  const { size, free, used, reserved, quarantined } = addresses.stats(network.name);
  return create(wire.NetworkSchema, {
    name: network.name,
    bridge: network.bridge,
    mtu: network.mtu,
    subnets: [
      {
        cidr: network.cidr,
        gateway: ipOf(network.gateway),
        size: `${size}`,
        free: `${free}`,
        used: `${used}`,
        reserved: `${reserved}`,
        quarantined: `${quarantined}`,
      },
    ],
    isolated: false,
    masquerade: fragment?.firewall === true && fragment.masquerade.length > 0,
    interfaces: countInterfaces(db, network.name),
  });
}
