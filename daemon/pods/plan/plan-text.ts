import { parseConflist } from "../../../cni/runtime/list.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import type { Fragment } from "../../../network/model/desired.ts";
import {
  type DiskPlan,
  type NicPlan,
  type OverlayPlan,
  templateNicMac,
  type VmPlan,
} from "../../../hypervisor/driver.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import { isHeld } from "../machine/held.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { policyLines } from "../../../policy/policy-text.ts";
import { readInlineRules } from "../../../policy/read-document.ts";
import { fileLine } from "../guest/guest-files.ts";
import { shareLine } from "../guest/guest-shares.ts";
import { guestOf } from "../guest/guest-of.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { leaseLines } from "../interfaces/plan-answers.ts";
import { plannedKind, queuesOfTap } from "../interfaces/kinds/kind-of.ts";
import { portsOf } from "../interfaces/pod-ports.ts";
import { holdSection, publishedText } from "../../published/published-text.ts";
import {
  type InterfacePlan,
  type NicInterface,
  type PodPlan,
  withCni,
  withNic,
} from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";
import { machineOf, templateNicOf } from "./plan-seed.ts";

/** A part of a plan for people: each line is exactly what podnetd would make, run or send. */
export interface PlanSection {
  /** The step it belongs to. */
  readonly step: string;
  readonly title: string;
  readonly lines: readonly string[];
}

/** How the rooms render what is theirs. All pure. */
export interface Describers {
  /** The command line of a machine. */
  command(vm: VmPlan): readonly string[];
  fragment(fragment: Fragment): readonly string[];
  plug(nic: NicPlan, vm: VmPlan, queues: number): readonly string[];
  /** The commands that make a clone of a started machine. */
  restore(): readonly string[];
}

/** The networks of a plan: what all their pods share of the host, and their definitions. */
export interface DescribedHost {
  readonly shared: readonly Fragment[];
  readonly networks: readonly NetworkDefinition[];
}

/** The whole plan as text, in the order it would be carried out. */
export function describePlan(
  pod: PodContents,
  { shared, networks }: DescribedHost,
  describe: Describers,
): readonly PlanSection[] {
  const { plan } = pod;
  const guest = guestConfigOf(pod);
  return [
    {
      step: "store.claim",
      title: "Taken and written down, before anything happens",
      lines: claimLines(plan),
    },
    {
      step: "network.ensure",
      title: "On the host, shared by all pods of the network",
      lines: shared.flatMap((fragment) => describe.fragment(fragment)),
    },
    ...(plan.published === undefined ? [] : [holdSection(plan.published)]),
    ...sandboxSection(plan),
    ...rulesSection(pod),
    {
      step: "tap.open",
      title: "Taps, which end with their machine",
      lines: withNic(plan.interfaces).map(tapLine),
    },
    {
      step: "port.attach",
      title: "Ports on the bridge",
      lines: describe.fragment(portsOf(plan, networks)),
    },
    ...disksSection(plan.vm.disks),
    machine(machineOf(pod), describe),
    ...sharesSection(plan),
    ...filesSection(pod),
    ...sentSection(plan, guest),
    {
      step: "nic.plug",
      title: isHeld(plan)
        ? "NICs plugged before the machine runs (QMP)"
        : "NICs plugged while the guest waits for them (QMP)",
      lines: withNic(plan.interfaces).flatMap((each) => plugLines(each, plan, describe)),
    },
    ...answersSection(plan, guest, networks),
  ];
}

function rulesSection({ plan: { name }, spec: { policy } }: PodContents): PlanSection[] {
  if (policy === undefined) return [];
  const lines = policyLines(readInlineRules(policy, { kind: "pod", name }));
  return [{ step: "port.attach", title: "Rules of its own, before policies", lines }];
}

function sharesSection({ vm, ...plan }: PodPlan): PlanSection[] {
  const { shares } = vm;
  if (shares === undefined) return [];
  return guestOf(plan).steps.shares.map(({ kind }) => ({
    step: kind,
    title:
      "Directories of the host, each served by a confined virtiofsd; the machine boots for them",
    lines: shares.map(shareLine),
  }));
}

function answersSection(
  plan: PodPlan,
  guest: GuestConfig,
  networks: readonly NetworkDefinition[],
): PlanSection[] {
  const lines = withNic(plan.interfaces).flatMap((each) =>
    leaseLines(each, guestOf(plan).lease(guest, each, networks)),
  );
  return lines.length === 0
    ? []
    : [{ step: "guest.answer", title: "Answered when the guest asks, at its own port", lines }];
}

function filesSection({ plan, spec: { files = [] } }: PodContents): PlanSection[] {
  if (files.length === 0) return [];
  const title = "Files that the agent writes";
  return guestOf(plan).steps.files.map(({ kind }) => ({
    step: kind,
    title,
    lines: files.map(fileLine),
  }));
}

function sentSection(plan: PodPlan, guest: GuestConfig): PlanSection[] {
  const { steps, text } = guestOf(plan);
  return steps.configure.map(({ kind }) => ({
    step: kind,
    title: text.configureTitle,
    lines: text.configureLines(guest, true),
  }));
}

function plugLines(each: NicInterface, plan: PodPlan, describe: Describers): readonly string[] {
  if (templateNicOf(plan)?.position !== each.position)
    return describe.plug(each.nic, plan.vm, queuesOfTap(each, plan.vm));
  const { nicId, mac } = each.nic;
  return [`${nicId} is in the template, as ${templateNicMac}; the agent gives it ${mac}`];
}

/** The plugins that set namespaces up, in their order. */
function sandboxSection({ interfaces }: PodPlan): PlanSection[] {
  const lines = withCni(interfaces).flatMap(({ cni: { netns, link, sandbox } }) => {
    if (sandbox === undefined) return [];
    const { containerId, file, list } = sandbox;
    const plugins = parseConflist(encodeUtf8(JSON.stringify(list))).plugins.map(({ type }) => type);
    return [
      `namespace ${netns}`,
      `ADD loopback, ${plugins.join(", ")} of ${file} for ${link} of container ${containerId}`,
    ];
  });
  return lines.length === 0 ? [] : [{ step: "cni.add", title: "Set up by CNI plugins", lines }];
}

function disksSection(disks: readonly DiskPlan[]): PlanSection[] {
  if (disks.length === 0) return [];
  const title = "Disks; what is written over an image goes into a file of the pod's own";
  return [{ step: "disk.make", title, lines: disks.map(diskLine) }];
}

const most = ({ maxBytes }: OverlayPlan): string =>
  maxBytes === undefined ? "" : `, ${maxBytes / 2 ** 20} MiB at the most`;

function diskLine({ path, format, readOnly, overlay }: DiskPlan): string {
  if (overlay !== undefined) return `${format} ${path} below ${overlay.path}${most(overlay)}`;
  return `${format} ${path}, ${readOnly ? "read only" : "written through"}`;
}

function machine(vm: VmPlan, describe: Describers): PlanSection {
  const { steps, text } = machineKindOf(vm);
  return { step: steps.begin.kind, ...text.begin(vm, describe) };
}

function claimLines(plan: PodPlan): string[] {
  const { vm } = plan;
  return [
    machineKindOf(vm).text.claim(plan, vm),
    ...plan.interfaces.map(interfaceLine),
    ...(plan.published ?? []).map((each) => `publish ${publishedText(each)}`),
  ];
}

/** An interface in one line. */
export function interfaceLine(each: InterfacePlan): string {
  const { addresses, nic, mtu, guestName, gateways } = each;
  const routes = gateways.map(
    ({ gateway, metric }) =>
      ` default route by ${gateway}${metric === undefined ? "" : ` metric ${metric}`}`,
  );
  const hardware = nic === undefined ? "" : ` mac ${nic.mac} mtu ${mtu}`;
  const held = addresses.length === 0 ? "no address" : addresses.join(" ");
  return `interface ${guestName} on ${plannedKind(each).whither(each)}: ${held}${hardware}${routes.join("")}`;
}

/** The host's end of a NIC in one line. */
export const tapLine = (each: NicInterface): string => plannedKind(each).tap(each);
