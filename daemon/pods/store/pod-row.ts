import type { PodSpec } from "../../../api/pod-spec.ts";
import type { PodId, PodName } from "../../../core/names.ts";
import type { GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import type { ErrorRecord } from "../../events/error-record.ts";
import type { Span } from "../../events/span.ts";
import type { PodPlan } from "./pod-plan.ts";

export type PodState =
  | "creating"
  | "running"
  | "paused"
  | "stopping"
  | "stopped"
  | "failed"
  | "deleting";

/** A pod as requested and as planned. */
export interface PodContents {
  readonly spec: PodSpec;
  readonly plan: PodPlan;
}

export interface PodRow {
  readonly id: PodId;
  readonly name: PodName;
  readonly state: PodState;
  /** Why the pod is in this state, or why a running pod is degraded, for people. */
  readonly reason: string | undefined;
  /** The error, with state `failed`. */
  readonly failure: ErrorRecord | undefined;
  readonly spec: PodSpec;
  readonly plan: PodPlan;
  /** The contents that the pod goes back to: a change is under way, or was cut short. */
  readonly before: PodContents | undefined;
  /** The agent that answers in the guest. */
  readonly guest: GuestIdentity | undefined;
  /** The guest's last report. */
  readonly observed: ObservedGuest | undefined;
  /** The steps of bringing it up. */
  readonly spans: readonly Span[];
  /** The pod has run before: a failed start keeps it, while a failed create leaves nothing. */
  readonly established: boolean;
  readonly createdMs: number;
  readonly changedMs: number;
}
