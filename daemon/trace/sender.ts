import type { IfName } from "../../core/names.ts";
import type { GuestRoute } from "../../guest-init/protocol/configure.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { type AttachmentPlan, containerText } from "../containers/attachment-plan.ts";
import { hostLinkOf } from "../containers/link-names.ts";
import { type InterfacePlan, type PodPlan, staying } from "../pods/store/pod-plan.ts";

/** Who sends the packet that is traced: a pod, or a container with all its attachments. */
export interface Sender {
  /** `pod web`, or a container. */
  readonly text: string;
  readonly interfaces: readonly SenderInterface[];
  /** Requested routes; default routes are made of the interfaces' gateways. */
  readonly routes: readonly GuestRoute[];
}

export interface SenderInterface
  extends Pick<
    InterfacePlan,
    "guestName" | "network" | "bridge" | "addresses" | "gateways" | "port"
  > {
  /** Who holds it, as policies know it. */
  readonly owner: FragmentKey;
  /** Its link on the host; absent on loopback. */
  readonly link?: IfName;
}

export const podSender = (plan: PodPlan): Sender => ({
  text: `pod ${plan.name}`,
  interfaces: staying(plan.interfaces).map((each) => ({
    ...each,
    owner: { kind: "pod", key: plan.podId },
    ...(each.nic === undefined ? {} : { link: each.nic.tap }),
  })),
  routes: plan.routes,
});

/** The plans are all of one container. Throws `RangeError` without any. */
export function containerSender(plans: readonly AttachmentPlan[]): Sender {
  const [first] = plans;
  if (first === undefined) throw new RangeError("A container without attachments");
  return {
    text: containerText(first),
    interfaces: plans.map((plan) => ({
      guestName: plan.ifName as IfName,
      network: plan.network,
      bridge: plan.bridge,
      addresses: plan.addresses,
      gateways: plan.gateways.map((gateway) => ({ gateway })),
      owner: { kind: "attachment", key: plan.id },
      link: hostLinkOf(plan),
    })),
    routes: [],
  };
}
