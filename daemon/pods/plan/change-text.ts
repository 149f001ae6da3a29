import { queuesOfTap } from "../interfaces/kinds/kind-of.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import { guestOf } from "../guest/guest-of.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { leaseLines } from "../interfaces/plan-answers.ts";
import type { Describers, PlanSection } from "./plan-text.ts";
import { interfaceLine, tapLine } from "./plan-text.ts";
import { sameServers } from "../interfaces/plan-servers.ts";
import { portsOf } from "../interfaces/pod-ports.ts";
import type { PodContents } from "../store/pod-row.ts";
import { type InterfacePlan, type PodPlan, staying, withNic } from "../store/pod-plan.ts";

/** The changes of a running pod as text, in the order of their execution. Pure. */
export function describeChange(
  before: PodContents,
  after: PodContents,
  networks: readonly NetworkDefinition[],
  describe: Pick<Describers, "fragment" | "plug">,
): PlanSection[] {
  const { plan } = after;
  const had = byPosition(before.plan);
  const has = byPosition(plan);
  const added = [...has.values()].filter(({ position }) => !had.has(position));
  const removed = [...had.values()].filter(({ position }) => !has.has(position));
  const changed = [...has.values()].filter((each) => {
    const was = had.get(each.position);
    return was !== undefined && interfaceLine(was) !== interfaceLine(each);
  });
  const nics = withNic(added);
  const portLines = (of: PodPlan): readonly string[] => {
    const { published: _asBefore, ...fragment } = portsOf(of, networks);
    return describe.fragment(fragment);
  };
  const known = new Set(portLines(before.plan));
  return [
    {
      step: "store.claim",
      title: "Written down, before anything happens",
      lines: [
        ...added.map((each) => `+ ${interfaceLine(each)}`),
        ...changed.map((each) => `~ ${interfaceLine(each)}`),
        ...removed.map((each) => `- ${interfaceLine(each)}`),
      ],
    },
    { step: "tap.open", title: "Taps", lines: nics.map(tapLine) },
    {
      step: "port.attach",
      title: "Ports on the bridge",
      lines: portLines(plan).filter((line) => !known.has(line)),
    },
    {
      step: "nic.plug",
      title: "Plugged (QMP)",
      lines: nics.flatMap((each) => describe.plug(each.nic, plan.vm, queuesOfTap(each, plan.vm))),
    },
    {
      step: "nic.unplug",
      title: "Unplugged (QMP), off the bridge before",
      lines: withNic(removed).map(
        ({ nic }) => `device_del ${nic.nicId}, netdev_del ${nic.netdevId}`,
      ),
    },
    {
      step: "guest.configure",
      title: "Sent to the guest, which changes only what differs",
      lines: sentAnew(before, after),
    },
    {
      step: "guest.answer",
      title: "Answered when the guest asks, at its own port",
      lines: answeredAnew(before, after, networks),
    },
  ].filter(({ lines }) => lines.length > 0);
}

const byPosition = ({ interfaces }: PodPlan): Map<number, InterfacePlan> =>
  new Map(staying(interfaces).map((each) => [each.position, each]));

/**
 * Unplugging a NIC removes its configuration in the guest: then the guest is sent other name
 * servers only.
 */
function sentAnew(had: PodContents, has: PodContents): string[] {
  const before = guestConfigOf(had);
  const after = guestConfigOf(has);
  const known = JSON.stringify([before.interfaces, before.loopback ?? [], before.routes]);
  const sent = JSON.stringify([after.interfaces, after.loopback ?? [], after.routes]);
  const fewer = after.interfaces.length < before.interfaces.length;
  const alike = sameServers(before.dns, after.dns);
  return alike && (known === sent || fewer)
    ? []
    : guestOf(has.plan).text.configureLines(after, false);
}

/** For a guest without an agent: the DHCP answers that differ from before. */
function answeredAnew(
  before: PodContents,
  after: PodContents,
  networks: readonly NetworkDefinition[],
): string[] {
  const lines = (pod: PodContents): string[] =>
    withNic(staying(pod.plan.interfaces)).flatMap((each) =>
      leaseLines(each, guestOf(pod.plan).lease(guestConfigOf(pod), each, networks)),
    );
  const known = new Set(lines(before));
  return lines(after).filter((line) => !known.has(line));
}
