import type { InlineRules } from "../../api/pod-spec.ts";
import { type Ip, ipOf } from "../../core/address.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import type { PodFacts } from "../../policy/selector.ts";
import { type AttachmentRow, isDamagedAttachment } from "../containers/attachment-rows.ts";
import { getAttachment, listAttachments } from "../containers/store.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { getPod, listPods } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import type { AttachmentId } from "../store/holder.ts";

/** A pod, or a container on one network, with what policies look at. */
export interface Subject extends PodFacts {
  readonly kind: "pod" | "attachment";
  /** What people call it: the name, or of a container `namespace/name` of its pod, or its id. */
  readonly shown: string;
  readonly networks: readonly NetworkName[];
  /** Its own. */
  readonly rules?: InlineRules;
}

/** The owner of a part of the host; undefined without a row that podnetd can read. */
export function subjectOf(db: Database, { kind, key }: FragmentKey): Subject | undefined {
  if (kind === "pod") {
    const row = getPod(db, key as PodId);
    return row && podSubject(row);
  }
  const row = kind === "attachment" ? getAttachment(db, key as AttachmentId) : undefined;
  return row === undefined || isDamagedAttachment(row) ? undefined : containerSubject(row);
}

/** All pods, and all containers that are not on their way out. */
export const listSubjects = (db: Database): readonly Subject[] => [
  ...listPods(db).map(podSubject),
  ...listAttachments(db)
    .filter(({ state }) => state !== "deleting")
    .map(containerSubject),
];

function podSubject({ name, spec, plan }: PodRow): Subject {
  const given = plan.interfaces.filter(({ network }) => network !== undefined);
  return {
    kind: "pod",
    name,
    shown: name,
    labels: spec.labels,
    addresses: given.flatMap(({ addresses }) => addresses.map((prefix): Ip => ipOf(prefix))),
    networks: given.flatMap(({ network }) => network ?? []),
    ...(spec.policy === undefined ? {} : { rules: spec.policy }),
  };
}

/** (A container whose runtime names no pod is called by its id.) */
function containerSubject({ plan }: AttachmentRow): Subject {
  const { pod, containerId, labels = {}, addresses, network } = plan;
  const slash = pod?.indexOf("/") ?? -1;
  return {
    kind: "attachment",
    name: pod?.slice(slash + 1) ?? containerId,
    shown: pod ?? containerId,
    ...(pod === undefined ? {} : { namespace: pod.slice(0, slash) }),
    labels,
    addresses: addresses.map((prefix): Ip => ipOf(prefix)),
    networks: [network],
  };
}
