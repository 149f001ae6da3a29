import type { Log } from "../../linux/log.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import type { AttachedFragment } from "../../network/model/desired.ts";
import type { CniSettings } from "../config/cni.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { KeyedLock } from "../reconcile/keyed-lock.ts";
import { attachmentFragment } from "./attachment-fragment.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";
import { type AttachmentRow, isDamagedAttachment } from "./attachment-rows.ts";
import type { ReadyAttachments } from "./ready.ts";
import type { AttachmentRecords } from "./records.ts";

/** Longest that one container may take to follow its network, milliseconds. */
const followMs = 60_000;

export interface FollowParts {
  readonly network: Pick<AttachmentNetwork, "ensure">;
  readonly records: AttachmentRecords;
  readonly ready: ReadyAttachments;
  /** By container. */
  readonly locks: KeyedLock<string>;
  /** A container's part of the host, with its network as it is now. */
  readonly fragmentOf: (plan: AttachmentPlan) => AttachmentFragment;
  readonly settings: Pick<CniSettings, "mtu">;
  readonly log: Log;
}

/** The host's part of what a network's new definition would change. Takes nothing. */
export const changedByNetwork = (
  network: NetworkDefinition,
  { records, fragmentOf, settings }: Pick<FollowParts, "records" | "fragmentOf" | "settings">,
): AttachedFragment[] =>
  onNetwork(network, records).flatMap(({ plan }) => {
    const next = attachmentFragment(plan, [network], settings);
    return isAlike(next, fragmentOf(plan)) ? [] : hostPart(next);
  });

/**
 * Applies a network update to the network's containers in the kernel; their rows stay as they are.
 * A failure becomes drift.
 */
export async function followNetwork(network: NetworkDefinition, parts: FollowParts): Promise<void> {
  const { records, locks } = parts;
  await Promise.all(
    onNetwork(network, records).map(({ id, containerId }) =>
      locks.run(containerId, () => followOne(id, parts)),
    ),
  );
}

async function followOne(
  id: AttachmentRow["id"],
  { records, ready, fragmentOf, log, network }: FollowParts,
): Promise<void> {
  const now = (): AttachmentPlan | undefined => {
    const row = records.get(id);
    return row?.state !== "ready" || isDamagedAttachment(row) ? undefined : row.plan;
  };
  const before = now();
  if (before === undefined || isAlike(fragmentOf(before), ready.fragment(id))) return;
  // Changes of later plugins are written down before podnetd changes anything else.
  await ready.complete(id, AbortSignal.timeout(followMs), true);
  const plan = now();
  if (plan === undefined) return;
  ready.enter(plan);
  records.note(plan, "its network was changed");
  await network.ensure(fragmentOf(plan), AbortSignal.timeout(followMs)).catch((err: unknown) => {
    log.error({ container: plan.containerId, err }, "A container cannot follow its network yet");
  });
}

const isAlike = (one: AttachmentFragment, other: AttachmentFragment | undefined): boolean =>
  JSON.stringify(one) === JSON.stringify(other);

const onNetwork = ({ name }: NetworkDefinition, records: AttachmentRecords): AttachmentRow[] =>
  records.list().filter(({ network }) => network === name);
