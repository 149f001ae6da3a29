import type { PortChoices } from "../../../api/pod-spec.ts";
import { changedLimits, type LimitsChange } from "../../../core/rate-limits.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { IfName } from "../../../core/names.ts";
import { interfacesOf, withInterfaces } from "../store/pod-interfaces.ts";
import { type InterfacePlan, staying } from "../store/pod-plan.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { keepTrying } from "./keep-trying.ts";
import type { LivePod } from "./live-pod.ts";
import { ensureRules } from "./publish.ts";
import type { Supervision } from "./supervision.ts";

/**
 * A pod with other limits of one interface, or of all that are on bridges. Pure. Throws
 * `INTERFACE_NOT_FOUND`, and `UNSUPPORTED` for an interface that is on no bridge.
 */
export function withLimits(
  pod: PodContents,
  change: LimitsChange,
  name: IfName | undefined,
): PodContents {
  const chosen = new Set(chosenOf(pod.plan.name, staying(pod.plan.interfaces), name));
  const limited = <Each extends { readonly port?: PortChoices }>(each: Each): Each => {
    const { limits, ...rest } = each.port ?? {};
    const after = changedLimits(limits, change);
    return { ...each, port: after === undefined ? rest : { ...rest, limits: after } };
  };
  const interfaces = interfacesOf(pod).map((each) =>
    chosen.has(each.plan)
      ? { request: each.request && limited(each.request), plan: limited(each.plan) }
      : each,
  );
  return withInterfaces(pod, interfaces);
}

function chosenOf(
  pod: string,
  interfaces: readonly InterfacePlan[],
  name: IfName | undefined,
): readonly InterfacePlan[] {
  const limitable = interfaces.filter(({ bridge, nic }) => bridge !== undefined && nic);
  if (name === undefined && limitable.length > 0) return limitable;
  const found = interfaces.find(({ guestName }) => guestName === name);
  if (found !== undefined && limitable.includes(found)) return [found];
  if (found === undefined && name !== undefined)
    throw new PodnetError("INTERFACE_NOT_FOUND", `Pod "${pod}" has no interface "${name}"`, {
      field: "guest_name",
      hint: `Its interfaces are ${interfaces.map(({ guestName }) => guestName).join(", ")}`,
    });
  throw new PodnetError(
    "UNSUPPORTED",
    `podnet limits interfaces on bridges, and ${name === undefined ? `pod "${pod}" has none` : `"${name}" is on none`}`,
    {
      field: "guest_name",
      hint: "CNI plugins limit their links: see the capability bandwidth. A kept tap is limited by its owner",
    },
  );
}

/**
 * Changes limits of a running pod: first in its row, then on the host; a failure is undone. Traffic
 * goes on meanwhile.
 */
export async function changeLimits(
  live: LivePod,
  row: PodRow,
  next: PodContents,
  watch: Supervision,
): Promise<void> {
  const { records } = watch;
  records.replan(live, { ...next, text: "limits changed" });
  try {
    await ensureRules(live, watch);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const undo = async (): Promise<void> => {
      const text = `limits not changed: ${error.message}`;
      records.replan(live, { plan: row.plan, spec: row.spec, text });
      await ensureRules(live, watch);
    };
    await undo().catch((left: unknown) => {
      keepTrying(row, "limits are not as they were", left, watch, undo);
    });
    throw error;
  }
}
