/** A user of a network, and the MTU of its interface there. */
export interface SentMtu {
  readonly kind: "pod" | "container";
  /** A pod's name, or a container's id. */
  readonly name: string;
  /** Of a pod's interface. */
  readonly guestName?: string;
  readonly mtu: number;
}

/**
 * What a network's bridge is to carry so that users with a larger MTU than the network's lose
 * nothing among themselves; nothing where there are none. `reported` is of all users of the
 * network. Pure.
 */
export function carriedFor(
  reported: readonly SentMtu[],
  { mtu }: { readonly mtu: number },
): { readonly bridgeMtu?: number } {
  const most = Math.max(mtu, ...reported.map((each) => each.mtu));
  return most === mtu ? {} : { bridgeMtu: most };
}
