import type { InterfaceSpec, PodSpec } from "../../../api/pod-spec.ts";
import { familyOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { configBytes, mostOptions } from "../../dhcp/dhcp4.ts";
import {
  type AnsweringNetwork,
  answeringGateways,
  isAnswered,
  leaseOf,
} from "../interfaces/plan-answers.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";
import { eachBoot, networkConfig } from "./cloud-network.ts";
import type { GuestKind } from "./kind.ts";

/**
 * A guest without an agent: it asks for its network by DHCP and router advertisements, or reads it
 * from its seed disk.
 */
export const agentless: GuestKind = {
  name: "none",
  hasAgent: false,
  takesIpv6: true,
  needsNicsFirst: true,
  hasPowerButton: true,
  choosesLinkLocal: true,
  followsServers: true,
  showsServers: false,
  channel: {},
  steps: {
    boot: [],
    shares: [],
    files: [],
    configure: [],
    plugged: (nic) => (isAnswered(nic) ? [{ kind: "guest.answer", position: nic.position }] : []),
    verify: [],
  },
  text: {
    configureTitle: "Nothing is sent to the guest",
    configureLines: () => [],
    cannot: () => [
      "exec and cp: no agent in the guest runs programs",
      "read-back: what the guest made of its network is not known here",
      "changes of an interface: the guest cannot be notified; add and remove work",
      "addresses of lo: the guest has no agent to set them",
    ],
  },
  refuse,
  refuseDecided,
  refuseChange: (change, { isOwn }) => {
    if (change.kind === "add" && isOwn) refuseInterface(change.spec, "interface");
  },
  world: (snapshot) => snapshot,
  lease: leaseOf,
  dns: (offered) => offered,
  seedFiles: (guest, interfaces) => ({
    "vendor-data": eachBoot,
    "network-config": `${JSON.stringify(networkConfig(guest, interfaces))}\n`,
  }),
  // podnetd may have observed only some of its addresses.
  isConfigured: (addresses, observed) => addresses.every((address) => observed.includes(address)),
};

const cannot = (field: string, message: string, hint: string): PodnetError =>
  new PodnetError("UNSUPPORTED", message, { field, hint });

const byAgent = "Leave it out, or use an image with podnet's agent";
const bySeed = `${byAgent}; or give the guest a seed disk (boot.cloud_init), if cloud-init is in its image`;

/**
 * DHCP and router advertisements alone carry less than a seed disk. A machine that podnet attaches
 * to has been configured by its owner.
 */
function refuse({ attached, interfaces, routes, dns, boot, files, shares }: PodSpec): void {
  if (attached !== undefined) return;
  if (shares !== undefined)
    throw cannot(
      "shares",
      "The guest has no agent to mount directories of the host",
      "Use an image with podnet's agent, or give the guest a disk",
    );
  if (files !== undefined)
    throw cannot(
      "files",
      "The guest has no agent to write files",
      "Use an image with podnet's agent; or write_files in boot.cloud_init, if cloud-init is in its image",
    );
  interfaces.forEach((each, i) => {
    if (each.kind === "loopback")
      throw cannot(
        `interfaces[${i}].loopback`,
        "The guest has no agent to set addresses of lo",
        byAgent,
      );
    if (each.kind === "cni" && boot.cloudInit === undefined)
      throw cannot(
        `interfaces[${i}].cni`,
        "podnet answers no guest on a link of CNI plugins",
        bySeed,
      );
    if (boot.cloudInit === undefined) refuseInterface(each, `interfaces[${i}]`);
  });
  if (boot.cloudInit === undefined)
    routes.forEach(({ metric }, i) => {
      if (metric !== undefined)
        throw cannot(`routes[${i}].metric`, "DHCP carries no metrics of routes", bySeed);
    });
  if ((dns?.options.length ?? 0) > 0)
    throw cannot(
      "dns.options",
      "Neither DHCP nor cloud-init carries options of resolv.conf",
      byAgent,
    );
}

/** Refuses an interface that DHCP and router advertisements alone could not configure. */
function refuseInterface(each: InterfaceSpec, field: string): void {
  const { kind, addresses = [], guestName, metric } = each;
  if (kind === "loopback")
    throw cannot(`${field}.loopback`, "The guest has no agent to set addresses of lo", byAgent);
  if (kind !== undefined && addresses.length > 0)
    throw cannot(
      `${field}.address`,
      "podnet answers no DHCP on a foreign link, which may have a DHCP server of its own",
      'Ask for the address "none", and the guest asks who is there; or give it a seed disk (boot.cloud_init)',
    );
  if (addresses.filter((address) => !address.includes(":")).length > 1)
    throw cannot(`${field}.addresses`, "DHCP gives an interface one IPv4 address", bySeed);
  if (guestName !== undefined)
    throw cannot(`${field}.guest_name`, "The guest names its interfaces itself", bySeed);
  if (metric !== undefined)
    throw cannot(`${field}.metric`, "DHCP carries no metrics of routes", bySeed);
}

function refuseDecided(
  { attached, boot }: PodSpec,
  guest: GuestConfig,
  interfaces: readonly InterfacePlan[],
  networks: readonly AnsweringNetwork[],
): void {
  if (attached !== undefined || boot.cloudInit !== undefined) return;
  for (const each of withNic(interfaces)) {
    const lease = leaseOf(guest, each, networks);
    if (lease === undefined) continue;
    const routers = [
      ...each.gateways.map(({ gateway }) => gateway),
      ...guest.routes.flatMap((route) =>
        route.interface === each.guestName ? (route.gateway ?? []) : [],
      ),
    ];
    const answering = answeringGateways(each, networks);
    const elsewhere = routers.find((ip) => familyOf(ip) === 6 && !answering.includes(ip));
    if (elsewhere !== undefined)
      throw cannot(
        "routes",
        `A router advertises itself alone: the guest cannot be notified of ${elsewhere}`,
        `Use the network's gateway; ${bySeed}`,
      );
    const { v4 } = lease;
    if (v4 !== undefined && configBytes({ ...lease, v4 }).length > mostOptions - 60)
      throw cannot(
        "routes",
        "Routes, servers and domains are more than an answer by DHCP holds",
        "Ask for fewer",
      );
  }
}
