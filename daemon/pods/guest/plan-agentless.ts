import type { InterfaceSpec, PodSpec } from "../../../api/pod-spec.ts";
import { familyOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { configBytes, mostOptions } from "../../dhcp/dhcp4.ts";
import { leaseOf } from "../interfaces/plan-answers.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";

const cannot = (field: string, message: string, hint: string): PodnetError =>
  new PodnetError("UNSUPPORTED", message, { field, hint });

const byAgent = "Leave it out, or use an image with podnet's agent";
const bySeed = `${byAgent}; or give the guest a seed disk (boot.cloud_init), if cloud-init is in its image`;

/**
 * Refuses what nobody could tell a guest without an agent: by DHCP and router advertisements alone less than on a seed disk.
 * Throws `UNSUPPORTED` with the field.
 */
export function refuseUntold({ interfaces, routes, dns, boot }: PodSpec): void {
  interfaces.forEach((each, i) => {
    if (each.kind === "loopback")
      throw cannot(
        `interfaces[${i}].loopback`,
        "Nobody in the guest sets addresses of lo",
        byAgent,
      );
    if (each.kind === "cni" && boot.cloudInit === undefined)
      throw cannot(
        `interfaces[${i}].cni`,
        "Nobody answers a guest in the place of a link of CNI plugins",
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

/** The same of one interface that is told by DHCP and router advertisements alone. */
export function refuseInterface(each: InterfaceSpec, field: string): void {
  const { kind, addresses = [], guestName, metric } = each;
  if (kind === "loopback")
    throw cannot(`${field}.loopback`, "Nobody in the guest sets addresses of lo", byAgent);
  if (kind !== undefined && addresses.length > 0)
    throw cannot(
      `${field}.address`,
      "On a link of somebody else podnet answers no DHCP: whoever does already would, too",
      'Ask for the address "none", and the guest asks who is there; or give it a seed disk (boot.cloud_init)',
    );
  if (addresses.filter((address) => !address.includes(":")).length > 1)
    throw cannot(`${field}.addresses`, "DHCP gives an interface one IPv4 address", bySeed);
  if (guestName !== undefined)
    throw cannot(`${field}.guest_name`, "The guest names its interfaces itself", bySeed);
  if (metric !== undefined)
    throw cannot(`${field}.metric`, "DHCP carries no metrics of routes", bySeed);
}

/** What shows only once addresses, gateways and routes are decided. Throws `UNSUPPORTED`. */
export function refuseUntellable(guest: GuestConfig, interfaces: readonly InterfacePlan[]): void {
  for (const each of withNic(interfaces)) {
    const lease = leaseOf(guest, each);
    if (lease === undefined) continue;
    const routers = [
      ...each.gateways.map(({ gateway }) => gateway),
      ...guest.routes.flatMap((route) =>
        route.interface === each.guestName ? (route.gateway ?? []) : [],
      ),
    ];
    const elsewhere = routers.find(
      (ip) => familyOf(ip) === 6 && each.answeredBy?.includes(ip) === false,
    );
    if (elsewhere !== undefined)
      throw cannot(
        "routes",
        `A router advertises itself alone: the guest cannot be told of ${elsewhere}`,
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
