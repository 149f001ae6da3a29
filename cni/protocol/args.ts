import { printable } from "../../core/names.ts";
import { cniError, refusal } from "./refusal.ts";
import { truth } from "./json.ts";

/** Keys that `CNI_ARGS` may hold without `IgnoreUnknown`. */
const known: readonly string[] = [
  "IgnoreUnknown",
  "IP",
  "MAC",
  "K8S_POD_NAMESPACE",
  "K8S_POD_NAME",
  "K8S_POD_UID",
  "K8S_POD_INFRA_CONTAINER_ID",
];

/**
 * Reads `CNI_ARGS`, `KEY=VALUE;KEY=VALUE`. `strict` (ADD, CHECK): what podnet does not know is
 * refused unless `IgnoreUnknown` is true. Otherwise what cannot be read is left out. Throws with
 * CNI's error 4.
 */
export function parseArgs(text: string, strict: boolean): ReadonlyMap<string, string> {
  const args = new Map<string, string>();
  for (const pair of text.split(";")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    if (equals > 0) args.set(pair.slice(0, equals), pair.slice(equals + 1));
    else if (strict) throw refuse("CNI_ARGS holds a pair without a key or a value");
  }
  const unknown = [...args.keys()].filter((key) => !known.includes(key));
  if (strict && unknown.length > 0 && truth(args.get("IgnoreUnknown") ?? "") !== true)
    throw refuse(`CNI_ARGS holds what podnet does not know: ${printable(unknown.join(", "))}`);
  return args;
}

const refuse = (message: string) =>
  refusal(message, {
    cni: cniError.environment,
    field: "CNI_ARGS",
    hint: "Write KEY=VALUE;KEY=VALUE, and IgnoreUnknown=1 where other plugins have keys of their own",
  });

/** The pod a runtime acts for, as kubelet's runtimes name it. */
export interface KubernetesPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid?: string;
  readonly infraContainerId?: string;
}

/** Undefined unless both namespace and name are given. */
export function kubernetesPod(args: ReadonlyMap<string, string>): KubernetesPod | undefined {
  const namespace = args.get("K8S_POD_NAMESPACE") ?? "";
  const name = args.get("K8S_POD_NAME") ?? "";
  if (namespace === "" || name === "") return undefined;
  const uid = args.get("K8S_POD_UID") ?? "";
  const infraContainerId = args.get("K8S_POD_INFRA_CONTAINER_ID") ?? "";
  return {
    namespace,
    name,
    ...(uid === "" ? {} : { uid }),
    ...(infraContainerId === "" ? {} : { infraContainerId }),
  };
}
