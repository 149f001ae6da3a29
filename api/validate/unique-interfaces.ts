import { type Family, familyOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { invalid } from "../fields.ts";
import { bareIp, type InterfaceSpec } from "../pod-spec.ts";

/** The name an interface has in the guest: there is one `lo`. */
export const guestNameOf = (spec: InterfaceSpec, position: number): string =>
  spec.kind === "loopback" ? "lo" : (spec.guestName ?? `eth${position}`);

/** What the kernel makes of a route without a metric. */
export const metricOf = (metric: number | undefined, family: Family): number =>
  metric ?? (family === 4 ? 0 : 1024);

interface Key {
  /** A key that two interfaces cannot share. */
  readonly key: string | number;
  /** As messages say it. */
  readonly text: string | number;
}
type Twice = (field: string, text: string | number, other: number) => PodnetError;

/** Throws when two interfaces of a pod have what only one can have; the later one is at fault. */
export function refuseTwice(specs: readonly InterfaceSpec[]): void {
  refuse(specs, "mac", ({ mac }) => one(mac), macTwice);
  refuse(specs, "address", addressKeys, addressTwice);
  refuse(specs, "guest_name", (spec, i) => one(guestNameOf(spec, i)), nameTwice);
  refuse(specs, "tap", ({ tap }) => one(tap), tapTwice);
  refuse(specs, "gateway", gatewayKeys, gatewayTwice);
}

const one = (key: string | undefined): Key[] => (key === undefined ? [] : [{ key, text: key }]);

function refuse(
  specs: readonly InterfaceSpec[],
  name: string,
  keysOf: (spec: InterfaceSpec, position: number) => readonly Key[],
  error: Twice,
): void {
  const seen = new Map<string | number, number>();
  specs.forEach((spec, i) => {
    for (const { key, text } of keysOf(spec, i)) {
      const other = seen.get(key);
      if (other !== undefined) throw error(`interfaces[${i}].${name}`, text, other);
      seen.set(key, i);
    }
  });
}

/** One address may be on two links, of two networks; of one kind of link only once. */
const addressKeys = (spec: InterfaceSpec): Key[] =>
  (spec.addresses ?? []).map((address) => {
    const where = spec.kind === undefined ? spec.network : (spec.kind ?? "");
    return { key: `${bareIp(address)} of ${where}`, text: `${bareIp(address)} of ${where}` };
  });

const gatewayKeys = ({ gateway, metric }: InterfaceSpec): Key[] => {
  if (gateway === undefined) return [];
  const family = familyOf(gateway);
  return [{ key: `${family} ${metricOf(metric, family)}`, text: family }];
};

const macTwice: Twice = (field, key, other) =>
  new PodnetError("MAC_IN_USE", `interfaces[${other}] has ${key} too`, {
    field,
    hint: "Give each interface an address of its own, or leave mac out",
  });
const addressTwice: Twice = (field, key, other) =>
  new PodnetError("ADDRESS_IN_USE", `interfaces[${other}] has ${key} too`, {
    field,
    hint: "Give each interface an address of its own, or leave address out",
  });
const nameTwice: Twice = (field, key, other) =>
  invalid(
    field,
    `interfaces[${other}] is called "${key}" too`,
    "Give each interface a name of its own; unnamed ones are eth0, eth1 and so on",
  );
const tapTwice: Twice = (field, key, other) =>
  new PodnetError("NAME_IN_USE", `interfaces[${other}] has tap "${key}" too`, {
    field,
    hint: "Give each interface a tap of its own, or leave tap out",
  });
const gatewayTwice: Twice = (field, key, other) =>
  new PodnetError(
    "GATEWAY_CONFLICT",
    `interfaces[${other}] has the default route for IPv${key} already, with the same metric`,
    {
      field,
      hint: "Leave one of the two gateways out, or give each another metric",
    },
  );
