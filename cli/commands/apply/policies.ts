import type { JsonObject } from "@bufbuild/protobuf";
import type { Podnet } from "../../../api/client.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { isSame, textOf } from "./differences.ts";
import { type Change, changed, type Item, type Step, type ToCome } from "./item.ts";

/** What a policy's document means. podnetd reads it, and says what it is called. */
export async function planPolicy(
  podnet: Podnet,
  named: JsonObject,
  { pods, networks }: ToCome,
  signal: AbortSignal,
): Promise<Item> {
  const apply: Step = (client, at) => client.policies.apply({ document: named }, { signal: at });
  const create = (name: string): Item => ({
    kind: "policy",
    name,
    action: "create",
    changes: fieldsOf({}, named),
    steps: [apply],
  });
  const own = typeof named["name"] === "string" ? named["name"] : "";
  // podnetd has no such pod or network yet to give rules to.
  const [, kind, of = ""] = /^(pod|network):(.*)$/s.exec(own) ?? [];
  if (kind === "pod" ? pods.has(of) : networks.get(of) === "create") return create(own);
  const { policy: planned } = await podnet.policies.apply(
    { document: named, planOnly: true },
    { signal },
  );
  if (planned === undefined) throw new PodnetError("INTERNAL", "podnetd read no policy");
  const before = await found(podnet, planned.name, signal);
  if (before === undefined) return create(planned.name);
  const changes = fieldsOf(before, planned.document ?? {});
  return changed("policy", planned.name, { changes, steps: [apply] });
}

async function found(
  podnet: Podnet,
  name: string,
  signal: AbortSignal,
): Promise<JsonObject | undefined> {
  try {
    return (await podnet.policies.get({ name }, { signal })).policy?.document;
  } catch (thrown) {
    if (isPodnetError(thrown, "POLICY_NOT_FOUND")) return undefined;
    throw thrown;
  }
}

/** The fields in which two documents differ: a policy is replaced whole. */
export function fieldsOf(before: JsonObject, after: JsonObject): Change[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .filter((field) => !isSame(before[field], after[field]))
    .map((field) => ({ field, was: textOf(before[field]), becomes: textOf(after[field]) }));
}
