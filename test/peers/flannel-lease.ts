import { setTimeout as sleep } from "node:timers/promises";
import type { Gateway } from "./flannel-etcd.ts";
import {
  type Attributes,
  type FlannelConfig,
  type Subnets,
  attributesText,
  parseAttributes,
  parseFlannelConfig,
  parseSubnetKey,
  subnetKey,
} from "./flannel-format.ts";
import { type Net, overlaps, sizeOf } from "./flannel-net.ts";

/** Looks each second until there is a configuration it can use. */
export async function configuration(etcd: Gateway, prefix: string): Promise<FlannelConfig> {
  for (;;) {
    try {
      const text = await etcd.get(`${prefix}/config`);
      if (text === undefined) throw new Error("There is no configuration");
      return parseFlannelConfig(text);
    } catch (error) {
      console.error(`config: ${String(error)}`);
      await sleep(1000);
    }
  }
}

/** What a subnet is got with. */
export interface Acquiring {
  readonly etcd: Gateway;
  readonly subnetsKey: string;
  readonly config: FlannelConfig;
  readonly attributes: Attributes;
  readonly ttlSeconds: number;
  /** Of an old subnet.env. */
  readonly previous: Subnets;
}

/**
 * By flannel's order: the lease that has this public address, the subnet of before, one at random
 * of the first hundred that are free. Throws when another was quicker, as flannel exits.
 */
export async function acquire(by: Acquiring): Promise<Subnets> {
  const { etcd, subnetsKey, config, attributes, ttlSeconds, previous } = by;
  const value = attributesText(attributes);
  const { kvs } = await etcd.list(subnetsKey);
  const leases = kvs.flatMap(({ key, value: text }) => {
    const [subnets, theirs] = [parseSubnetKey(key), parseAttributes(text)];
    return subnets === undefined || theirs === undefined ? [] : [{ key, subnets, theirs }];
  });
  const mine = leases.find(({ theirs }) => theirs.publicIp === attributes.publicIp);
  if (mine !== undefined) {
    if (fits(config, mine.subnets)) {
      await etcd.put(mine.key, value, await etcd.grant(ttlSeconds));
      return mine.subnets;
    }
    await etcd.delete(mine.key);
  }
  const others = leases.filter((lease) => lease !== mine);
  const taken = (net: Net): boolean =>
    others.some(({ subnets }) =>
      [subnets.v4, subnets.v6].some((one) => one !== undefined && overlaps(one, net)),
    );
  const free = [previous.v4, previous.v6].every((net) => net === undefined || !taken(net));
  const chosen = fits(config, previous) && free ? previous : choose(config, taken);
  const lease = await etcd.grant(ttlSeconds);
  if (await etcd.create(`${subnetsKey}/${subnetKey(chosen)}`, value, lease)) return chosen;
  await etcd.revoke(lease);
  throw new Error("subnet already exists");
}

function fits(config: FlannelConfig, subnets: Subnets): boolean {
  const given = [subnets.v4, subnets.v6].filter((net) => net !== undefined);
  return (
    given.length === config.families.length &&
    config.families.every(({ network, subnetLength, min, max }) => {
      const net = given.find(({ family }) => family === network.family);
      return net?.length === subnetLength && net.base >= min && net.base <= max;
    })
  );
}

/** Each family by itself. */
function choose(config: FlannelConfig, taken: (net: Net) => boolean): Subnets {
  const chosen = config.families.map(({ network: { family }, subnetLength, min, max }) => {
    const free: Net[] = [];
    const step = sizeOf({ family, length: subnetLength });
    for (let base = min; base <= max && free.length < 100; base += step) {
      const net: Net = { family, base, length: subnetLength };
      if (!taken(net)) free.push(net);
    }
    const net = free[Math.floor(Math.random() * free.length)];
    if (net === undefined) throw new Error("out of subnets");
    return net;
  });
  const [v4, v6] = [4, 6].map((version) => chosen.find(({ family }) => family === version));
  return { ...(v4 === undefined ? {} : { v4 }), ...(v6 === undefined ? {} : { v6 }) };
}
