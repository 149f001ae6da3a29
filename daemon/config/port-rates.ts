import type { RateLimit, RateLimits } from "../../core/rate-limits.ts";
import type { PortRates, Rate } from "../../network/model/rates.ts";

/**
 * The rates in force for an interface's own limits and those of its network; undefined: none. Pure.
 */
export function portRates(
  own: RateLimits | undefined,
  network: RateLimits | undefined,
): PortRates | undefined {
  const toGuest = rateOf(own?.in, network?.in);
  const fromGuest = rateOf(own?.out, network?.out);
  if (toGuest === undefined && fromGuest === undefined) return undefined;
  return {
    ...(toGuest === undefined ? {} : { toGuest }),
    ...(fromGuest === undefined ? {} : { fromGuest }),
  };
}

/** A burst belongs to the bandwidth that it is given with. */
function rateOf(own: RateLimit = {}, network: RateLimit = {}): Rate | undefined {
  const { bandwidth = network.bandwidth ?? 0, packets = network.packets ?? 0 } = own;
  const burst = own.burst ?? (own.bandwidth === undefined ? network.burst : undefined);
  if (bandwidth === 0 && packets === 0) return undefined;
  return {
    ...(bandwidth === 0 ? {} : { bitsPerSecond: bandwidth }),
    ...(bandwidth === 0 || burst === undefined ? {} : { burstBits: burst * 8 }),
    ...(packets === 0 ? {} : { packetsPerSecond: packets }),
  };
}

/** Rates in force as limits, for the API. Pure. */
export const limitsOf = ({ toGuest, fromGuest }: PortRates): RateLimits => ({
  ...(toGuest === undefined ? {} : { in: limitOf(toGuest) }),
  ...(fromGuest === undefined ? {} : { out: limitOf(fromGuest) }),
});

const limitOf = ({ bitsPerSecond, burstBits, packetsPerSecond }: Rate): RateLimit => ({
  ...(bitsPerSecond === undefined ? {} : { bandwidth: bitsPerSecond }),
  ...(burstBits === undefined ? {} : { burst: Math.floor(burstBits / 8) }),
  ...(packetsPerSecond === undefined ? {} : { packets: packetsPerSecond }),
});
