import { assertNever } from "../../core/brand.ts";
import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { subnetsText } from "../../overlay/flannel/key.ts";
import type { Trouble } from "../../overlay/lease-state.ts";
import type { Conflict } from "../../overlay/peers.ts";

/** Why a host's lease is not as planned, in one line. */
export function troubleText(trouble: Trouble): string {
  switch (trouble.kind) {
    case "config-missing":
      return trouble.file === undefined
        ? "etcd has no configuration of the overlay yet"
        : `${trouble.file}, the overlay's configuration, is not there yet`;
    case "config-invalid":
      return trouble.error.message;
    case "exhausted":
      return "no subnet is free";
    case "lost":
      return `the lease of ${subnetsText(trouble.subnets)} is gone, and is being registered again`;
    case "taken":
      return `${trouble.holder} has the lease of ${subnetsText(trouble.subnets)}`;
    case "shared":
      return `the lease ${trouble.holder} names ${trouble.ip}, which is this host's address; it is taken over once its host has not been heard for 5 minutes. If that host is no more: podnet overlay join --take-over, or etcdctl del '${trouble.holder}'`;
    case "no-address":
      return `this host has no address of IPv${trouble.family} for others to send to`;
    case "misfit":
      return `${subnetsText(trouble.subnets)} is none of the overlay's subnets any more`;
    case "node-missing":
      return `Kubernetes has no node ${trouble.node}: see overlay.kubernetes.node_name, and whether the kubelet has registered this host`;
    case "no-pod-cidr":
      return trouble.reason === undefined
        ? `Kubernetes has given node ${trouble.node} no podCIDR of the overlay's families: see kube-controller-manager's options allocate-node-cidrs and cluster-cidr`
        : `the podCIDR of node ${trouble.node} is of no use: ${trouble.reason}`;
    case "unread-address":
      return `the annotation ${trouble.name} of node ${trouble.node} is not an address of its family, and is passed over: "${printable(trouble.text)}"`;
    case "nodes-refused":
      return refusedText(trouble);
    case "failing":
      return hinted(toPodnetError(trouble.error));
    default:
      return assertNever(trouble);
  }
}

function refusedText({ count, some }: Trouble & { kind: "nodes-refused" }): string {
  const named = some.map(([node, reason]) => `${node}: ${reason}`).join("; ");
  const more = count > some.length ? `; and ${count - some.length} more` : "";
  return `${count === 1 ? "a node is" : `${count} nodes are`} refused: ${named}${more}`;
}

/** An unreachable manager is left out: another line reports it, with its duration. */
const isAway = ({ code }: PodnetError): boolean =>
  code === "ETCD_UNREACHABLE" || code === "KUBERNETES_UNREACHABLE";

/** Why changes of the other hosts are not received, one line each. */
export const unreadTexts = (reasons: readonly unknown[]): readonly string[] => {
  const errors = reasons.map((reason) => toPodnetError(reason));
  return [...new Set(errors.filter((error) => !isAway(error)).map(hinted))];
};

/** The hint is included: the reader of a permission error has to fix it elsewhere. */
const hinted = ({ code, message, hint }: PodnetError): string =>
  (code === "ETCD_DENIED" || code === "KUBERNETES_DENIED") && hint !== undefined
    ? `${message}; ${hint}`
    : message;

/**
 * The line that says that packets are sent to other hosts as an earlier podnetd knew them, or to
 * none. Undefined once the manager has listed the hosts, or while the kernel still has them.
 */
export function recalledText(
  manager: string,
  hosts: number,
  former: { readonly writtenMs: number; readonly sameBoot: boolean } | undefined,
  forgotten: boolean,
): readonly string[] {
  const since = former?.sameBoot === false ? "this host was booted" : "podnetd started";
  const silence = `${manager} has not been heard since ${since}`;
  if (hosts === 0 || former === undefined)
    return forgotten
      ? [`${silence}, and no other host is remembered: packets to other hosts are dropped`]
      : [];
  const they = hosts === 1 ? "1 other host is as it was" : `${hosts} other hosts are as they were`;
  return [`${silence}: ${they} at ${new Date(former.writtenMs).toISOString()}`];
}

/** Which hosts cannot both be right, in one line. */
export function conflictText(conflict: Conflict): string {
  const hosts = conflict.keys.join(" and ");
  return conflict.kind === "address"
    ? `the leases ${hosts} name the same address, ${conflict.ip}`
    : `the leases ${hosts} have addresses in common`;
}
