import { existsSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { RouteWatch } from "./routes.ts";
import { type Site, foreignSubnet } from "./site.ts";

/**
 * Of one start of podnetd on a host that has no route yet, milliseconds from the start of its
 * process.
 */
export interface StartTimes {
  readonly subnetEnvMs: number;
  /** Until the last of the routes. */
  readonly routesMs: number;
  /**
   * What podnetd took of processors until then, and a little later: on a busy machine it says more
   * than the time.
   */
  readonly cpuMs: number;
}

/**
 * Starts podnetd of the first host, with so many other hosts in etcd, as after a boot: device,
 * routes and subnet.env are gone.
 */
export async function startTimes(
  { first }: Site,
  watch: RouteWatch,
  count: number,
): Promise<StartTimes> {
  await first.end();
  for (const link of ["flannel.1", "hyper0"])
    await first.machine.run("ip", "link", "delete", link).catch(() => "");
  rmSync(first.subnetFile, { force: true });
  const seen = watch.all(Array.from({ length: count }, (_, n) => foreignSubnet(n)));
  const begin = performance.now();
  const reported = (async () => {
    while (!existsSync(first.subnetFile)) await delay(2);
    return performance.now() - begin;
  })();
  const started = first.start();
  const routesMs = (await seen) - begin;
  await started;
  const cpuMs = cpuOf(first.podnetd.process.pid ?? 0);
  return { subnetEnvMs: await reported, routesMs, cpuMs };
}

/** Of a process, user and system (proc(5): fields 14 and 15, in hundredths of a second). */
function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
