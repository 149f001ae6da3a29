/**
 * Labels whose keys begin so are set and removed by administrators alone: a policy that chooses
 * pods by them decides about a pod whatever its operator does. (As Kubernetes keeps
 * `node-restriction.kubernetes.io/` from a kubelet.)
 */
export const protectedPrefix = "admin.podnet/";

/** The first of the keys that only administrators may set or remove. Pure. */
export const protectedKey = (keys: readonly string[]): string | undefined =>
  keys.find((key) => key.startsWith(protectedPrefix));
