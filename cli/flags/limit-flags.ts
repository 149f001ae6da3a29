import type { Command } from "commander";
import type { RateLimits } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { FlagWriter, GivenFlags } from "./given.ts";
import { parseParts } from "../parse.ts";
import { usage } from "../usage.ts";

/** Limits as flags of a command, or as parts of an interface. */
export interface LimitParts {
  readonly in?: string;
  readonly out?: string;
  readonly burst?: string;
  readonly inBurst?: string;
  readonly outBurst?: string;
  readonly pps?: string;
  readonly inPps?: string;
  readonly outPps?: string;
}

/** Adds the flags to a command. */
export const addLimitFlags = (command: Command): Command =>
  command
    .option("--in <rate>", "bandwidth towards the pod, such as 100mbit or 1gbit; none")
    .option("--out <rate>", "bandwidth from the pod; none")
    .option("--burst <bytes>", "what may pass at once after a pause, both ways: 256kb, 1mb")
    .option("--in-burst <bytes>", "towards the pod alone")
    .option("--out-burst <bytes>", "from the pod alone")
    .option("--pps <count>", "packets a second, each way: 10k; none")
    .option("--in-pps <count>", "towards the pod alone")
    .option("--out-pps <count>", "from the pod alone");

/** Limits as parts of one word: of an interface, or of a network. */
export const limitKeys = [
  "in",
  "out",
  "burst",
  "pps",
  "in-burst",
  "out-burst",
  "in-pps",
  "out-pps",
] as const;

/** The limits among such parts. */
export const limitParts = (
  parts: Readonly<Partial<Record<(typeof limitKeys)[number], string>>>,
): LimitParts => {
  const { in: towards, out, burst, pps } = parts;
  const { "in-burst": inBurst, "out-burst": outBurst, "in-pps": inPps, "out-pps": outPps } = parts;
  const all = { in: towards, out, burst, pps, inBurst, outBurst, inPps, outPps };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
};

/** Limits as one word of the command line: `in=100mbit,pps=10k`, or `none`. */
export function limitPartsFrom(flag: string, text: string): LimitParts {
  if (text === "none") return { in: "none", out: "none", pps: "none", burst: "" };
  const { first, rest } = parseParts(flag, text, limitKeys);
  if (first === "") return limitParts(rest);
  throw usage(`${flag} "${first}" is no limit`, "Write in=100mbit,out=50mbit,pps=10k, or none");
}

/** Whether any limit is named. */
export function namesLimits(parts: LimitParts): boolean {
  const { in: towards, out, burst, inBurst, outBurst, pps, inPps, outPps } = parts;
  const all = [towards, out, burst, inBurst, outBurst, pps, inPps, outPps];
  return all.some((part) => part !== undefined);
}

type Limits = {
  readonly [Direction in "in" | "out"]: Readonly<Record<"bandwidth" | "burst" | "packets", string>>;
};

/** The flags that give a part of a limit; the first one that is given counts. */
const sources = {
  in: { bandwidth: ["in"], burst: ["inBurst", "burst"], packets: ["inPps", "pps"] },
  out: { bandwidth: ["out"], burst: ["outBurst", "burst"], packets: ["outPps", "pps"] },
} as const;

/** Limits with what is named in the place of what they had. */
export function limitsFrom(parts: LimitParts, before?: RateLimits, record?: GivenFlags): Limits {
  const flags = new FlagWriter(parts, record ?? new GivenFlags());
  const way = (direction: "in" | "out"): Limits["in"] => {
    const limit = { bandwidth: "", burst: "", packets: "", ...before?.[direction] };
    for (const part of ["bandwidth", "burst", "packets"] as const)
      for (const key of sources[direction][part].toReversed())
        flags.put(key, `limits.${direction}.${part}`, (text) => {
          limit[part] = text;
        });
    const { bandwidth, burst, packets } = limit;
    return { bandwidth, burst, packets };
  };
  return { in: way("in"), out: way("out") };
}

/** Limits in one line: `in 100mbit, 10000 packets/s; out 50mbit`; empty without any. */
export const limitsText = (limits: RateLimits | undefined): string =>
  (["in", "out"] as const)
    .flatMap((direction) => {
      const limit = limits?.[direction];
      if (limit === undefined) return [];
      const { bandwidth, burst, packets } = limit;
      const words = [
        bandwidth,
        burst === "" ? "" : `burst ${burst}`,
        packets === "" ? "" : `${packets} packets/s`,
      ].filter((word) => word !== "");
      return words.length === 0 ? [] : [`${direction} ${words.join(", ")}`];
    })
    .join("; ");
