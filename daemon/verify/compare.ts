import { ipOf } from "../../core/address.ts";
import { mark, portGroup } from "../../network/model/desired.ts";
import { absent, type Check, checker } from "./check.ts";
import { compareLimits } from "./compare-limits.ts";
import type { ExpectedInterface } from "./expectation.ts";
import type { HostReport, VmReport } from "./source-reports.ts";

/** The kernel's main routing table. */
const mainTable = 254;

/**
 * Compares a pod's record with the reports of both independent checks, or of the only possible one:
 * a foreign machine has no second monitor. Pure; the order is fixed.
 */
export function comparePod(
  expected: readonly ExpectedInterface[],
  host: HostReport,
  vm: VmReport | undefined,
): Check[] {
  const bridges = new Set(expected.flatMap(({ bridge }) => bridge ?? []));
  return [
    ...[...bridges].flatMap((bridge) => compareBridge(bridge, host)),
    ...expected.flatMap((each) => [
      ...comparePort(each, host),
      ...compareLimits(each, host),
      ...compareReach(each, host),
    ]),
    ...(vm === undefined ? [] : compareVm(expected, vm)),
  ];
}

function compareBridge(bridge: string, host: HostReport): Check[] {
  const check = checker("netlink");
  const link = host.links.find(({ name }) => name === bridge);
  return [
    check(`link ${bridge} kind`, "bridge", link?.kind),
    check(`link ${bridge} up`, true, link?.up),
  ];
}

function comparePort(each: ExpectedInterface, host: HostReport): Check[] {
  if (each.elsewhere !== undefined) return [];
  const check = checker("netlink");
  const link = host.links.find(({ name }) => name === each.tap);
  // One line says enough about a link that is not there.
  if (link === undefined) return [check(`link ${each.tap} kind`, "tun", absent)];
  if (each.foreignTap === true)
    return [
      check(`link ${each.tap} kind`, "tun", link.kind),
      check(`link ${each.tap} podnet's mark`, false, link.alias?.startsWith(mark.alias) ?? false),
    ];
  return [
    check(`link ${each.tap} kind`, "tun", link.kind),
    check(`link ${each.tap} master`, each.bridge, link.master),
    check(`link ${each.tap} up`, true, link.up),
    check(`link ${each.tap} mtu`, each.mtu, link.mtu),
    check(`link ${each.tap} alias`, each.alias, link.alias),
    ...(each.bridge === undefined
      ? []
      : [check(`link ${each.tap} group`, portGroup(each.bridge), link.group)]),
    check(`link ${each.tap} isolated`, each.isolated, link.isolated),
    // A setting that the plan does not contain is up to the bridge.
    ...(each.learning === undefined
      ? []
      : [check(`link ${each.tap} learning`, each.learning, link.learning)]),
    ...(each.vlan === undefined
      ? []
      : [check(`link ${each.tap} VLANs`, `${each.vlan} untagged`, link.vlans?.join(", "))]),
  ];
}

/** A machine's place in a namespace of CNI plugins, next to what a source saw there. Pure. */
export function compareThere(
  { tap, mac, mtu, addresses }: ExpectedInterface,
  link: string,
  there: HostReport,
): Check[] {
  const check = checker("netlink");
  const [own, others] = [tap, link].map((name) => there.links.find((each) => each.name === name));
  return [
    check(`link ${tap} kind`, "tun", own?.kind),
    check(`link ${tap} up`, true, own?.up),
    check(`link ${link} of ${tap} up`, true, others?.up),
    check(`link ${link} of ${tap} mac`, mac, others?.mac),
    check(`link ${link} of ${tap} mtu`, mtu, others?.mtu),
    ...addresses.map((prefix) => {
      const holder = there.addresses.find((a) => `${a.address}/${a.length}` === prefix);
      return check(`address ${prefix} alongside ${tap} on`, link, holder?.link);
    }),
  ];
}

/**
 * How the host reaches the interface: the bridge's addresses, the route, and that no other link has
 * the address.
 */
function compareReach(each: ExpectedInterface, host: HostReport): Check[] {
  const check = checker("netlink");
  const holds = (link: string, prefix: string): boolean =>
    host.addresses.some((a) => a.link === link && `${a.address}/${a.length}` === prefix);
  const { bridge = "" } = each;
  return [
    ...each.gateways.map((prefix) =>
      check(`address ${prefix} on ${bridge}`, true, holds(bridge, prefix)),
    ),
    ...each.routes.map((destination) => {
      const route = host.routes.find(
        (r) => r.destination === destination && r.table === mainTable && r.gateway === undefined,
      );
      return check(`route ${destination} by`, bridge, route?.link);
    }),
    ...each.addresses.map((prefix) => {
      const holder = host.addresses.find(({ address }) => address === ipOf(prefix));
      return check(`address ${ipOf(prefix)} on the host`, undefined, holder?.link);
    }),
  ];
}

function compareVm(expected: readonly ExpectedInterface[], vm: VmReport): Check[] {
  const check = checker("qemu-qmp");
  const perNic = expected.flatMap((each) => {
    const nic = vm.nics.find(({ id }) => id === each.nicId);
    if (nic === undefined) return [check(`nic ${each.nicId} mac`, each.mac, absent)];
    const slot = nic.address === undefined ? undefined : Number.parseInt(nic.address, 16);
    return [
      check(`nic ${each.nicId} mac`, each.mac, nic.mac.toLowerCase()),
      check(`nic ${each.nicId} netdev`, each.netdevId, nic.netdev),
      // QEMU may not report the slot; then there is nothing to compare.
      ...(slot === undefined ? [] : [check(`nic ${each.nicId} slot`, each.slot, slot)]),
    ];
  });
  const known = new Set(expected.map(({ nicId }) => nicId));
  const others = new Set(
    [...vm.nics, ...vm.pci].filter(({ id }) => !known.has(id)).map(({ id }) => id || "without id"),
  );
  return [
    check("vm status", "running", vm.status),
    ...perNic,
    check("nics beyond the record", undefined, [...others].sort().join(", ")),
  ];
}
