import test from "ava";
import { type HostsLab, hostGwOverlay, meet, openHosts, reaches } from "../lab/hosts.ts";
import type { Container } from "../lab/overlay-container.ts";
import { isAsFlannelLeavesIt } from "../lab/overlay-golden.ts";
import type { OverlayLabHost } from "../lab/overlay-host.ts";
import { Random } from "../sim/random.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
/** Of each kind of overlay. */
const schedules = Number(process.env["PODNET_HISTORIES"] ?? (full ? 100 : 3));
const stepsEach = full ? 6 : 4;

/** What may be done to the lab, with a line that says how to do it again. */
interface Step {
  readonly line: string;
  readonly run: () => Promise<unknown>;
}

/** One that can be done as things are. */
function drawStep(lab: HostsLab, random: Random): Step {
  const host = random.pick(lab.hosts);
  const other = random.pick(lab.hosts.filter((one) => one !== host));
  const etcd = lab.etcd.members[0] as (typeof lab.etcd.members)[0];
  const possible: Step[] = [
    { line: `cut ${host.n} from the store`, run: () => lab.underlay.cut(host.n, "store") },
    { line: `mend ${host.n} and the store`, run: () => lab.underlay.mend(host.n, "store") },
    { line: `cut ${host.n} from ${other.n}`, run: () => lab.underlay.cut(host.n, other.n) },
    { line: `mend ${host.n} and ${other.n}`, run: () => lab.underlay.mend(host.n, other.n) },
    host.running
      ? { line: `stop ${host.n}`, run: () => host.end() }
      : { line: `start ${host.n}`, run: () => host.start() },
    host.running
      ? { line: `kill ${host.n}`, run: () => host.end("SIGKILL") }
      : { line: `start ${host.n}`, run: () => host.start() },
    etcd.running
      ? { line: "kill etcd", run: () => etcd.kill() }
      : { line: "start etcd", run: () => Promise.resolve(etcd.start()) },
    ...(etcd.running
      ? [
          { line: "compact", run: () => compact(lab) },
          // Of flanneld it would be the end.
          ...(host.kind === "podnet" && random.chance(0.5)
            ? [{ line: `delete lease of ${host.n}`, run: () => deleteLease(lab, host) }]
            : []),
        ]
      : []),
  ];
  return random.pick(possible);
}

async function compact({ etcd }: HostsLab): Promise<void> {
  await etcd.ready();
  // What is compacted already is refused.
  await etcd.etcdctl("put", "/lab", "x");
  await etcd.compactAll();
}

async function deleteLease(lab: HostsLab, host: OverlayLabHost): Promise<void> {
  await lab.etcd.ready();
  const key = await lab.leaseOf(host);
  if (key !== undefined) await lab.etcd.etcdctl("del", `${lab.prefix}/subnets/${key}`);
}

/** Hosts that can reach each other do so, whatever daemons and etcd do. */
async function goesOn(lab: HostsLab, containers: readonly Container[]): Promise<void> {
  for (const [a, from] of containers.entries())
    for (const [b, to] of containers.entries())
      if (a < b && !lab.underlay.isCut(a + 1, b + 1)) await reaches(from, to.address, 10_000);
}

/** Everything runs again and reaches everything, in an order that is drawn. */
async function recover(lab: HostsLab, random: Random): Promise<readonly string[]> {
  const etcd = lab.etcd.members[0] as (typeof lab.etcd.members)[0];
  const steps: Step[] = [
    ...lab.hosts
      .filter(({ running }) => !running)
      .map((host) => ({ line: `start ${host.n}`, run: () => host.start() })),
    ...(etcd.running ? [] : [{ line: "start etcd", run: () => Promise.resolve(etcd.start()) }]),
    { line: "mend all", run: () => lab.underlay.mendAll() },
  ];
  const order = [...steps];
  for (let left = order.length; left > 1; left--) {
    const drawn = random.below(left);
    [order[left - 1], order[drawn]] = [order[drawn] as Step, order[left - 1] as Step];
  }
  for (const { run } of order) await run();
  await lab.etcd.ready();
  return order.map(({ line }) => line);
}

// (hosts-joined does the most of it by vxlan, in each run.)
for (const [name, overlay] of [
  ["host-gw", hostGwOverlay],
  ["vxlan", undefined],
] as const)
  (full || name === "host-gw" ? test.serial : test.serial.skip)(
    `Hosts find back to each other from whatever happened: ${name}`,
    async (t) => {
      t.log(`PODNET_SEED=${seed}`);
      await using lab = await openHosts({
        kinds: ["podnet", "flannel", "podnet"],
        ...(overlay === undefined ? {} : { overlay }),
      });
      await Promise.all(lab.hosts.map((host) => host.start()));
      const containers = await Promise.all(lab.hosts.map((host) => host.container()));
      await meet(containers);
      const subnets = [...(await lab.leases()).keys()];
      for (let schedule = 0; schedule < schedules; schedule++) {
        const random = new Random(seed + schedule);
        const reported: string[] = [];
        try {
          for (let step = 0; step < stepsEach; step++) {
            const { line, run } = drawStep(lab, random);
            reported.push(line);
            await run();
            // Until a lease was taken: the others then do as etcd says.
            if (!reported.some((one) => one.startsWith("delete"))) await goesOn(lab, containers);
          }
          reported.push(...(await recover(lab, random)));
          await meet(containers);
          for (const host of lab.hosts) await isAsFlannelLeavesIt(lab, host);
          t.deepEqual([...(await lab.leases()).keys()], subnets);
        } catch (error) {
          t.log(`PODNET_SEED=${seed + schedule} PODNET_HISTORIES=1: ${reported.join(", ")}`);
          throw error;
        }
      }
    },
  );
