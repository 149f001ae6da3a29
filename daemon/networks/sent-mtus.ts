/** A user of a network, and the MTU of its interface there. */
export interface SentMtu {
  readonly kind: "pod" | "container";
  /** A pod's name, or a container's id. */
  readonly name: string;
  /** The name of a pod's interface. */
  readonly guestName?: string;
  readonly mtu: number;
}

/**
 * The bridge MTU with which users whose MTU is larger than the network's lose no packets among
 * themselves; empty if there are no such users. `reported` lists all users of the network. Pure.
 */
export function carriedFor(
  reported: readonly SentMtu[],
  { mtu }: { readonly mtu: number },
): { readonly bridgeMtu?: number } {
  const most = Math.max(mtu, ...reported.map((each) => each.mtu));
  return most === mtu ? {} : { bridgeMtu: most };
}
