import type { IfName } from "../../core/names.ts";

/**
 * A foreign chain that drops packets forwarded to pods, although podnet's own table accepts them.
 */
export interface Obstacle {
  /** `table ip filter, chain FORWARD`. */
  readonly where: string;
  /** The bridges that are cut off by it. */
  readonly bridges: readonly IfName[];
  /** Commands that accept packets to and from the first of the bridges. */
  readonly remedy: string;
}

/** The description of the problem. */
export const obstacleText = ({ where, bridges }: Obstacle): string =>
  `${where} drops what is forwarded to ${bridges.join(", ")}: published ports are not reached from outside`;

/** The hint to solve it. */
export const obstacleHint = ({ remedy, bridges }: Obstacle): string =>
  `Accept it there${bridges.length > 1 ? ", for each bridge" : ""} (${remedy}), or set firewall = "iptables"`;
