import test from "ava";
import { changedLimits, limitsView, validateLimits } from "../../../core/rate-limits.ts";
import type { PodnetError } from "../../../core/errors.ts";
import { limitsOf, portRates } from "../../../daemon/config/port-rates.ts";

const empty = { bandwidth: "", burst: "", packets: "" };
const inwards = (limit: Partial<typeof empty>) =>
  validateLimits({ in: { ...empty, ...limit } }, "limits").in;

const bandwidths: Readonly<Record<string, number>> = {
  "100mbit": 100_000_000,
  "1gbit": 1_000_000_000,
  "250kbit": 250_000,
  "1.5Mbit": 1_500_000,
  "10M": 10_000_000,
  "1mibit": 1_048_576,
  "64000": 64_000,
  "64000bit": 64_000,
  none: 0,
};
for (const [text, bits] of Object.entries(bandwidths))
  test(`a bandwidth is bits a second: ${text}`, (t) => {
    t.is(inwards({ bandwidth: text })?.bandwidth, bits);
  });

test("a burst is bytes in binary steps, a packet rate a number", (t) => {
  t.deepEqual(inwards({ burst: "256kb", packets: "10k" }), { burst: 262_144, packets: 10_000 });
  t.deepEqual(inwards({ burst: "1m", packets: "none" }), { burst: 1_048_576, packets: 0 });
});

for (const [name, text] of [
  ["bandwidth", "fast"],
  ["bandwidth", "-1mbit"],
  ["bandwidth", "1mbps"],
  ["bandwidth", "7999"],
  ["bandwidth", "2tbit"],
  ["burst", "none"],
  ["burst", "1mbit"],
  ["packets", "0"],
  ["packets", "1g"],
] as const)
  test(`what is no limit is refused with its field: ${name} ${text}`, (t) => {
    const error = t.throws(() => inwards({ [name]: text })) as PodnetError;
    t.deepEqual([error.code, error.field], ["INVALID_ARGUMENT", `limits.in.${name}`]);
  });

test("tc's bytes a second are not taken for bits", (t) => {
  const { hint } = t.throws(() => inwards({ bandwidth: "10mbps" })) as Error & { hint: string };
  t.regex(hint, /bytes a second/);
});

test("what a change does not name stays; default is as the network says", (t) => {
  const before = { in: { bandwidth: 1e6, packets: 100 }, out: { bandwidth: 2e6 } };
  const change = validateLimits(
    { in: { ...empty, bandwidth: "3mbit" }, out: { ...empty, bandwidth: "default" } },
    "limits",
  );
  t.deepEqual(changedLimits(before, change), { in: { bandwidth: 3e6, packets: 100 } });
  t.is(changedLimits(undefined, {}), undefined);
});

test("an interface's own limits come before its network's, field by field", (t) => {
  const network = { in: { bandwidth: 1e6, burst: 4000, packets: 10 }, out: { bandwidth: 2e6 } };
  t.is(portRates(undefined, undefined), undefined);
  t.deepEqual(portRates(undefined, network), {
    toGuest: { bitsPerSecond: 1e6, burstBits: 32_000, packetsPerSecond: 10 },
    fromGuest: { bitsPerSecond: 2e6 },
  });
  // A burst belongs to its bandwidth.
  t.deepEqual(portRates({ in: { bandwidth: 5e6 }, out: { bandwidth: 0 } }, network), {
    toGuest: { bitsPerSecond: 5e6, packetsPerSecond: 10 },
  });
  t.is(portRates({ in: { bandwidth: 0, packets: 0 } }, undefined), undefined);
});

test("limits in force are shown as a request writes them", (t) => {
  const rates = portRates({ in: { bandwidth: 1e8, burst: 4000 }, out: { packets: 10 } }, undefined);
  const view = rates && limitsView(limitsOf(rates));
  t.deepEqual(view, {
    in: { bandwidth: "100mbit", burst: "4000", packets: "" },
    out: { bandwidth: "", burst: "", packets: "10" },
  });
});
