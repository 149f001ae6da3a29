import type { Podnet } from "../api/client.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";

/** Of each block some: a host whose own networks cover one has another free. */
const blocks: readonly (readonly [prefix: string, first: number])[] = [
  ["10.210", 0],
  ["172.29", 0],
  ["192.168", 224],
];
const ofEach = 16;

const candidates = blocks.flatMap(([prefix, first]) =>
  Array.from({ length: ofEach }, (_, i) => `${prefix}.${first + i}.0/24`),
);

/**
 * Makes a network with the first subnet that podnetd finds free, of networks and of routes and
 * addresses of the host. podnetd decides at each attempt, so that two creates at once get one
 * each. Throws `NETWORK_OVERLAP` when none is free.
 */
export async function withFreeSubnet<T>(
  podnet: Podnet,
  signal: AbortSignal,
  make: (cidr: string) => Promise<T>,
): Promise<T> {
  const { networks } = await podnet.networks.list({}, { signal });
  const taken = new Set(networks.flatMap(({ subnets }) => subnets.map(({ cidr }) => cidr)));
  for (const cidr of candidates.filter((each) => !taken.has(each))) {
    try {
      return await make(cidr);
    } catch (thrown) {
      if (!isPodnetError(thrown, "NETWORK_OVERLAP")) throw thrown;
    }
  }
  throw new PodnetError("NETWORK_OVERLAP", "None of the subnets to choose from is free", {
    field: "subnets",
    hint: "Give one: --cidr 10.20.0.0/24",
    details: { tried: candidates.length },
  });
}
