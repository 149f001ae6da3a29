import {
  type Cidr,
  contains,
  type IpPrefix,
  ipOf,
  type Mac,
  networkOf,
} from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { NetworkFragment } from "../../network/model/desired.ts";
import type { PortRates } from "../../network/model/rates.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { portsOf } from "../pods/interfaces/pod-ports.ts";
import { plannedKind } from "../pods/interfaces/kinds/kind-of.ts";
import type { CniPlan } from "../pods/interfaces/cni-plan.ts";
import { type PodPlan, staying, withNic } from "../pods/store/pod-plan.ts";

/** The expected findings about one NIC of a running pod. */
export interface ExpectedInterface {
  readonly tap: IfName;
  /** The tap is foreign: it is only expected to exist and to bear no mark. */
  readonly foreignTap?: true;
  /**
   * The tap is in a namespace of CNI plugins', alongside the link in whose place the machine is.
   */
  readonly elsewhere?: Pick<CniPlan, "netns" | "link">;
  /** Absent where the tap is another's. */
  readonly bridge?: IfName;
  readonly alias: string;
  readonly isolated: boolean;
  /** The link that limits what the guest sends, and the limits; absent where podnet makes none. */
  readonly ifb?: IfName;
  readonly rates?: PortRates;
  /** Whether the bridge learns from its port; absent as the bridge has it, as below. */
  readonly learning?: boolean;
  /** The one VLAN its port is in. */
  readonly vlan?: number;
  readonly mtu: number;
  /** The guest's addresses: no link of the host has them. */
  readonly addresses: readonly IpPrefix[];
  /** The bridge's addresses in the networks of these addresses. Empty when none are recorded. */
  readonly gateways: readonly IpPrefix[];
  /** Networks the host reaches by the bridge. */
  readonly routes: readonly Cidr[];
  readonly nicId: string;
  readonly netdevId: string;
  readonly mac: Mac;
  readonly slot: number;
}

/** The networks a pod is on: their own fragments, as far as known, and their definitions. */
export interface ExpectedNetworks {
  readonly fragments: readonly NetworkFragment[];
  readonly definitions: readonly NetworkDefinition[];
}

/** The recorded plan as what sources should find. */
export function expectedInterfaces(
  plan: PodPlan,
  { fragments, definitions }: ExpectedNetworks,
): ExpectedInterface[] {
  const { ports } = portsOf(plan, definitions);
  return withNic(staying(plan.interfaces)).map((each) => {
    const { foreignTap, replaced } = plannedKind(each);
    const port = ports.find(({ tap }) => tap === each.nic.tap);
    const network = fragments.find(({ key }) => key === each.network);
    const gateways = (network?.gateways ?? []).filter((gateway) =>
      each.addresses.some((address) => contains(networkOf(gateway), ipOf(address))),
    );
    const { nicId, netdevId, mac, slot, tap } = each.nic;
    // How the host reaches what is behind a foreign bridge is not podnet's to know.
    const reached =
      each.network === undefined ? [] : gateways.length > 0 ? gateways : each.addresses;
    return {
      tap,
      ...(foreignTap === undefined ? {} : { foreignTap }),
      ...(replaced === undefined ? {} : { elsewhere: replaced }),
      ...(each.bridge === undefined ? {} : { bridge: each.bridge }),
      alias: port?.alias ?? "",
      isolated: port?.isolated ?? false,
      ...(port?.ifb === undefined ? {} : { ifb: port.ifb }),
      ...(port?.rates === undefined ? {} : { rates: port.rates }),
      ...(port?.learning === undefined ? {} : { learning: port.learning }),
      ...(port?.vlan === undefined ? {} : { vlan: port.vlan }),
      mtu: port?.mtu ?? each.mtu,
      addresses: each.addresses,
      gateways,
      routes: [...new Set(reached.map(networkOf))],
      nicId,
      netdevId,
      mac,
      slot,
    };
  });
}
