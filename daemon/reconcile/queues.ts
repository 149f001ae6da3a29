import type { Place } from "../../core/guard.ts";

/**
 * The work queues of podnetd, by their names in metrics, and where a defect of each is counted.
 */
export const queuePlaces = {
  pods: "qemu",
  lifetimes: "qemu",
  "container-releases": "cni",
  "container-links": "cni",
  "container-ports": "cni",
  "container-rules": "cni",
  policies: "policies",
  services: "services",
  "overlay-services": "services",
  denials: "netlink",
  drift: "netlink",
  counters: "netlink",
  "overlay-memberships": "overlay",
  "overlay-networks": "overlay",
  "overlay-backends": "overlay",
  "overlay-uplinks": "overlay",
  "overlay-records": "etcd",
  "overlay-kernel": "overlay",
  "overlay-leftovers": "overlay",
  "overlay-files": "overlay",
  "overlay-rows": "overlay",
  "overlay-leaves": "overlay",
  "overlay-remains": "overlay",
} as const satisfies Readonly<Record<string, Place>>;

export type QueueName = keyof typeof queuePlaces;

const degraded = new Map<QueueName, number>(
  Object.keys(queuePlaces).map((name) => [name as QueueName, 0]),
);

/**
 * How many keys of each queue failed last and wait for another try, of all queues of that name in
 * this process.
 */
export const degradedKeys = (): ReadonlyMap<QueueName, number> => degraded;

/** A key of a queue became degraded (1), or is not any more (-1). */
export const countDegraded = (name: QueueName, by: 1 | -1): void =>
  void degraded.set(name, (degraded.get(name) ?? 0) + by);
