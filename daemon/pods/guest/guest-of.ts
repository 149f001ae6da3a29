import type { GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { AttachSpec, PodSpec } from "../../../api/pod-spec.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import { agent } from "./agent.ts";
import { agentless } from "./agentless.ts";
import { hyperstart } from "./hyperstart.ts";
import type { GuestKind } from "./kind.ts";

/** The kind of a pod's guest, as planned. */
export function guestOf({
  agent: choice,
}: {
  readonly agent?: PodPlan["agent"] | undefined;
}): GuestKind {
  switch (choice) {
    case "none":
      return agentless;
    case "hyperstart":
      return hyperstart;
    default:
      return agent;
  }
}

/** The kind of the guest that answered, by its identity: a planned agent may be a hyperstart. */
export const guestThatIs = ({ extension }: GuestIdentity): GuestKind =>
  extension === undefined ? hyperstart : agent;

/**
 * The agent of a new pod's guest, as it is stored in the plan. In a foreign machine without a
 * channel podnet can reach no agent.
 */
export const agentOf = ({ attached, boot }: PodSpec): PodPlan["agent"] =>
  attached !== undefined && !hasChannel(attached) ? "none" : boot.agent;

const hasChannel = ({ channel }: AttachSpec): boolean => channel !== undefined;
