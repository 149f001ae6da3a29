import type { IfName } from "../../core/names.ts";

/**
 * A chain of somebody else that drops what is forwarded to pods, whatever podnet's own table
 * accepts.
 */
export interface Obstacle {
  /** `table ip filter, chain FORWARD`. */
  readonly where: string;
  /** The bridges that are cut off by it. */
  readonly bridges: readonly IfName[];
  /** Commands that let pass what goes to the first of them, and what comes from there. */
  readonly remedy: string;
}

/** For people: what is wrong. */
export const obstacleText = ({ where, bridges }: Obstacle): string =>
  `${where} drops what is forwarded to ${bridges.join(", ")}: published ports are not reached from outside`;

/** For people: what to do about it. */
export const obstacleHint = ({ remedy, bridges }: Obstacle): string =>
  `Accept it there${bridges.length > 1 ? ", for each bridge" : ""} (${remedy}), or set firewall = "iptables"`;
