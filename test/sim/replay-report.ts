import type { PodRow } from "../../daemon/pods/store/pod-row.ts";
import { type Report, type ReportedPod, readReport } from "./report.ts";
import { Simulation } from "./simulation.ts";
import { VirtualTime } from "./time.ts";

/**
 * `scripts/node test/sim/replay-report.ts REPORT.tar.gz`: makes what a bug report describes on a
 * simulated host, by today's podnetd: networks, pods with their addresses, states. Then it restarts
 * podnetd, deletes the pods, and checks what every history checks. Prints what differs from the
 * report, and the history when something is not as promised; exits 1 then.
 */
const [file = ""] = process.argv.slice(2);
const report = reportIn(file);
const time = new VirtualTime();
time.takeOver();
const sim = new Simulation(2, time, undefined, report.flags);
process.on("unhandledRejection", (thrown) => sim.violated(`unhandled: ${String(thrown)}`));
const differences: string[] = [];
const outcome = await sim.run(() => replay(sim, report));
if (outcome.violation !== undefined) console.log(outcome.trace.join("\n"));
for (const what of report.leftOut) console.log(`left out: ${what}`);
for (const what of differences) console.log(`differs: ${what}`);
if (outcome.violation !== undefined) console.log(`violation: ${outcome.violation}`);
const last = {
  networks: report.networks.length + 1,
  pods: report.pods.length,
  leftOut: report.leftOut.length,
  differences: differences.length,
  violations: outcome.violation === undefined ? 0 : 1,
};
const failed = last.differences + last.violations > 0;
process.stdout.write(`${JSON.stringify(last)}\n`, () => process.exit(failed ? 1 : 0));

function reportIn(path: string): Report {
  try {
    return readReport(path);
  } catch (thrown) {
    process.stderr.write(`${thrown instanceof Error ? thrown.message : String(thrown)}\n`);
    return process.exit(2);
  }
}

async function replay(simulation: Simulation, { networks, pods }: Report): Promise<void> {
  const refused = (what: string) => (thrown: unknown) => {
    differences.push(`${what}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  };
  for (const spec of networks) {
    simulation.call(`network create ${spec.name}`, async (node) => {
      await node.networks.create(spec, { force: true }).catch(refused(`network ${spec.name}`));
    });
    await simulation.converged();
  }
  const made = new Map<ReportedPod, string>();
  for (const pod of pods) {
    simulation.call(`create ${pod.name}`, async (node) => {
      const signal = new AbortController().signal;
      const progress = { started: () => {}, finished: () => {} };
      await node.pods.create(pod.asked, { signal, progress }).then(
        ({ id }) => {
          made.set(pod, id);
          simulation.promised.add(id);
        },
        refused(`pod ${pod.name}`),
      );
    });
    await simulation.converged();
  }
  for (const [{ name, state }, id] of made) {
    simulation.call(`${state} ${id}`, async ({ pods: all }) => {
      if (state === "stopped") await all.stop(id, { force: false }).catch(refused(`pod ${name}`));
      if (state === "paused") await all.pause(id).catch(refused(`pod ${name}`));
    });
    await simulation.converged();
  }
  await simulation.quiet();
  const rows = simulation.node?.pods.list() ?? [];
  for (const [pod, id] of made) {
    const row = rows.find((each) => each.id === id);
    const now = row === undefined ? [] : partsOf(row);
    for (const line of pod.had)
      if (!now.includes(line)) differences.push(`pod ${pod.name}: reported ${line}`);
    for (const line of now)
      if (!pod.had.includes(line)) differences.push(`pod ${pod.name}: simulated ${line}`);
    // A failure of the reported host is not made again.
    if (["running", "stopped", "paused"].includes(pod.state) && row?.state !== pod.state)
      differences.push(`pod ${pod.name}: reported ${pod.state}, simulated ${row?.state ?? "gone"}`);
  }
}

/** As `had` of a reported pod. */
function partsOf({ plan }: PodRow): readonly string[] {
  return plan.interfaces.map(
    ({ guestName, network, addresses, nic, mtu }) =>
      `${guestName} on ${network ?? ""}: ${addresses.join(" ")}, ${nic?.mac ?? ""}, MTU ${mtu}`,
  );
}
