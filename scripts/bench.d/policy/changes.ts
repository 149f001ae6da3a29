import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Ip } from "../../../core/address.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import { outsideAddress } from "../../../test/lab/firewall-site.ts";
import { row, summarise } from "../../measure.ts";
import {
  allowing,
  type Crowd,
  type GuardedHost,
  measured,
  openGuardedHost,
  other,
} from "./guarded-host.ts";

/** Hosts whose last pod is measured: the only one, or after many with policies in common or not. */
const crowds = {
  alone: { pods: 0, policies: 0 },
  shared: { pods: 1000, policies: 10 },
  own: { pods: 1000, policies: 1000 },
} as const satisfies Record<string, Crowd>;
type CrowdName = keyof typeof crowds;
const names = Object.keys(crowds) as CrowdName[];
export const crowded = crowds.shared;

const changesARound = 30;
const cutsARound = 5;

const noSamples = () => ({
  policy: [] as number[],
  ended: [] as number[],
  guard: [] as number[],
  cut: [] as number[],
});
type Samples = ReturnType<typeof noSamples>;
const titles: Readonly<Record<keyof Samples, string>> = {
  policy: "a changed policy is in force",
  ended: "flows that it does not allow are looked for",
  guard: "an address more in the guard",
  cut: "last packet after a revoked rule's call",
};

/**
 * Milliseconds of a changed policy and of an entry of the guard, of the first pod and of one after
 * a thousand others; and how long after the call a revoked flow's last packet arrives.
 */
export async function measureChanges(rounds: number): Promise<Record<string, number>> {
  const samples = { alone: noSamples(), shared: noSamples(), own: noSamples() };
  for (let round = 0; round < rounds; round++)
    for (const name of names) await measureHost(crowds[name], samples[name]);
  row("ms, p50 and p99", ...names.flatMap((name) => [name, ""]));
  for (const what of Object.keys(titles) as (keyof Samples)[])
    row(
      titles[what],
      ...names.flatMap((name) => {
        const { median, p99 } = summarise(samples[name][what]);
        return [median.toFixed(2), p99.toFixed(2)];
      }),
    );
  const median = (name: CrowdName, what: keyof Samples) => summarise(samples[name][what]).median;
  const growth = (name: CrowdName, what: keyof Samples) =>
    median(name, what) / median("alone", what);
  return {
    guard_ms: median("shared", "guard"),
    guard_growth: growth("shared", "guard"),
    change_ms: median("shared", "policy"),
    change_growth: growth("shared", "policy"),
    own_change_growth: growth("own", "policy"),
    own_guard_growth: growth("own", "guard"),
    cut_ms: median("shared", "cut"),
  };
}

async function measureHost(crowd: Crowd, into: Samples): Promise<void> {
  await using host = await openGuardedHost(crowd);
  const pod = crowd.pods === 0 ? measured : other(crowd.pods);
  await host.police(pod, undefined);
  // (The first change of each kind warms up, and does not count.)
  for (let i = 0; i <= changesARound; i++) {
    const ms = await timed(() => host.guard(i % 2 === 0 ? withSource(pod) : pod));
    if (i > 0) into.guard.push(ms);
  }
  const policies = [allowing("9000-9002"), allowing("9000-9001")];
  for (let i = 0; i <= changesARound; i++) {
    const ms = await timed(() => host.police(pod, policies[i & 1]));
    const ended = await timed(() => host.cut(pod));
    if (i === 0) continue;
    into.policy.push(ms);
    into.ended.push(ended);
  }
  await cutFlows(host, into);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}

/** A pod with an address more that it may send from. */
function withSource(pod: PodFragment): PodFragment {
  const [port] = pod.ports;
  if (port === undefined) throw new Error("A pod without a port");
  return { ...pod, sources: [{ tap: port.tap, address: "203.0.113.77" as Ip }] };
}

/** Flows, one after the other, that end by a change of the policy. */
async function cutFlows({ site, police, cut }: GuardedHost, into: Samples): Promise<void> {
  const script = path.join(import.meta.dirname, "arrivals.ts");
  const start = (machine: string, ...words: string[]) => {
    const [program, ...argv] = site.command(machine, process.execPath, script, ...words);
    return spawn(program, argv, { stdio: ["pipe", "pipe", "inherit"] });
  };
  const listener = start("outside", "hear", "9002");
  const said = listener.stdout.setEncoding("utf8");
  const next = async (): Promise<string> => ((await once(said, "data")) as [string])[0];
  await next();
  const sender = start("pod2", "send", outsideAddress[4], "9002");
  try {
    for (let i = 0; i < cutsARound; i++) {
      await police(measured, allowing("9000-9002"));
      listener.stdin.write("next\n");
      await next();
      const begin = Date.now();
      await police(measured, allowing("9000-9001"));
      await cut(measured);
      await delay(100);
      listener.stdin.write("last\n");
      into.cut.push(Math.max(0, Number(await next()) - begin));
    }
  } finally {
    for (const child of [sender, listener]) {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
  }
}
