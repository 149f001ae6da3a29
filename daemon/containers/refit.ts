import type { Log } from "../../linux/log.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import type { AttachedFragment } from "../../network/model/desired.ts";
import type { CniSettings } from "../config/cni.ts";
import type { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { type AttachmentRow, isDamagedAttachment } from "./attachment-rows.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import { type AttachmentPlan, settledPlan } from "./attachment-plan.ts";
import type { ReadyAttachments } from "./ready.ts";
import type { AttachmentRecords } from "./records.ts";

/** The MTU of a container that asks for none. Pure. */
export const usualMtu = (
  network: Pick<NetworkDefinition, "mtu">,
  settings: Pick<CniSettings, "mtu">,
): number => Math.min(settings.mtu ?? network.mtu, network.mtu);

/**
 * A container's plan after a network update; undefined when nothing differs. Isolation changes, and
 * the MTU where the container asked for none; name servers stay, as its runtime has written them
 * down. The plan stops waiting for later plugins: from here on, a difference inside may be the
 * update that is yet to be applied. Pure.
 */
export function refitted(
  plan: AttachmentPlan,
  network: Pick<NetworkDefinition, "isolated" | "mtu">,
  settings: Pick<CniSettings, "mtu">,
): AttachmentPlan | undefined {
  const { isolated } = network;
  const mtu = plan.mtuOfNetwork === true ? usualMtu(network, settings) : plan.mtu;
  if (plan.fragment.isolated === isolated && plan.mtu === mtu) return undefined;
  const settled = settledPlan(plan);
  return { ...settled, mtu, fragment: { ...settled.fragment, isolated, mtu } };
}

export interface RefitParts {
  readonly network: Pick<AttachmentNetwork, "ensure">;
  readonly records: AttachmentRecords;
  readonly ready: ReadyAttachments;
  /** By container. */
  readonly locks: KeyedLock<string>;
  readonly settings: Pick<CniSettings, "mtu">;
  readonly log: Log;
}

/** The host's part of what a network's new definition would change. Takes nothing. */
export const refitAttachmentPlan = (
  network: NetworkDefinition,
  { records, settings }: Pick<RefitParts, "records" | "settings">,
): AttachedFragment[] =>
  onNetwork(network, records).flatMap(({ plan }) => {
    const next = refitted(plan, network, settings);
    return next === undefined ? [] : hostPart(next.fragment);
  });

/**
 * Applies a network update to the network's containers, in their rows and in the kernel. A failure
 * in the kernel becomes drift.
 */
export async function refitAttachments(
  network: NetworkDefinition,
  parts: RefitParts,
): Promise<void> {
  const { records, locks } = parts;
  await Promise.all(
    onNetwork(network, records).map(({ id, containerId }) =>
      locks.run(containerId, async () => {
        const row = records.get(id);
        if (row?.state !== "ready" || isDamagedAttachment(row)) return;
        if (refitted(row.plan, network, parts.settings) === undefined) return;
        // Changes of later plugins are written down before podnetd changes anything else.
        await parts.ready.settle(id, AbortSignal.timeout(60_000), true);
        const now = records.get(id);
        if (now?.state === "ready" && !isDamagedAttachment(now))
          await refitOne(now.plan, network, parts);
      }),
    ),
  );
}

async function refitOne(
  plan: AttachmentPlan,
  network: NetworkDefinition,
  { records, ready, settings, log, network: kernel }: RefitParts,
): Promise<void> {
  const next = refitted(plan, network, settings);
  if (next === undefined) return;
  records.replan(next, "its network was changed");
  ready.enter(next);
  await kernel.ensure(next.fragment, AbortSignal.timeout(60_000)).catch((err: unknown) => {
    log.error({ container: plan.containerId, err }, "A container cannot follow its network yet");
  });
}

const onNetwork = ({ name }: NetworkDefinition, records: AttachmentRecords): AttachmentRow[] =>
  records.list().filter(({ network }) => network === name);
