import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { CreatePodRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateCreate } from "../../api/validate/validate.ts";
import { systemClock } from "../../core/clock.ts";
import { parseNetworkName } from "../../core/names.ts";
import { type Node, openNode } from "../../daemon/main/node.ts";
import { guestMessage } from "../../daemon/pods/lifecycle/actions.ts";
import { portsOf } from "../../daemon/pods/interfaces/pod-ports.ts";
import { livePod, unsubscribe } from "../../daemon/pods/lifecycle/live-pod.ts";
import { undoSteps } from "../../daemon/pods/plan/steps.ts";
import { actUndo, undoPod } from "../../daemon/pods/lifecycle/undo.ts";
import { Database } from "../../daemon/store/database.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import { plansDirectory } from "../../daemon/pods/store/kept-plans.ts";
import { loopTurns } from "../../linux/loop-turns.ts";
import { openQemuDriver } from "../../hypervisor/qemu/driver.ts";
import { run } from "../../linux/processes/command.ts";
import { openLog } from "../../linux/log.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { openTap } from "../../linux/tun.ts";
import { ownNetns } from "../lab/netns.ts";
import { difference } from "../lab/network.ts";
import { standInQemu } from "../lab/standin.ts";
import { writeTinyGuest } from "../peers/tiny-guest.ts";
import { configuration } from "../unit/daemon/fixtures/node.ts";

const never = new AbortController().signal;
const directory = mkdtempSync(path.join(tmpdir(), "podnet-twice-"));
const opened = new AsyncDisposableStack();
let node: Node;
let db: Database;
let runDir: string;

test.before(async () => {
  await ownNetns();
  const { kernel, initrd } = await writeTinyGuest(directory, "deaf");
  const config = configuration({ "image.kernel": kernel, "image.initrd": initrd });
  ({ runDir } = config);
  for (const made of [config.podsDir, plansDirectory(config)]) mkdirSync(made, { recursive: true });
  db = opened.use(Database.openIn(config.stateDir));
  node = opened.use(
    await openNode({
      config,
      db,
      driver: await openQemuDriver({ qemuPath: standInQemu, leastMemoryMib: 1 }),
      confinement: undefined,
      clock: systemClock,
      turns: loopTurns,
      bootId: bootId(),
      openTap: (name) => openTap(name),
      openGuest: (options) => openGuest(options),
      randomBytes: (count) => randomBytes(count),
      logOf: (component) => openLog({ component, level: "silent" }),
    }),
  );
});

test.after.always(async () => {
  await opened.disposeAsync();
  rmSync(directory, { recursive: true, force: true });
});

/** All that a pod changes: links, addresses, neighbours, rules, files, machines, rows. */
async function everything(): Promise<string> {
  const commands = [
    ["ip", "-o", "link"],
    ["ip", "-o", "address"],
    ["ip", "neighbour"],
    ["iptables-nft-save"],
    ["nft", "list", "table", "inet", "podnet_published"],
    ["bridge", "link"],
  ] as const;
  const shown = await Promise.all(commands.map(async (argv) => (await run(argv)).stdout));
  const machines = await run(["pgrep", "-f", "guest=podnet-"], { okCodes: [0, 1] });
  const files = readdirSync(runDir, { recursive: true });
  const rows = ["pods", "runs", "interfaces"].flatMap((table) =>
    db.all(`SELECT * FROM ${table}`).map((row) => JSON.stringify({ ...row, started_ms: 0 })),
  );
  // Without counters, times, and the carrier, which the kernel changes some time after its cause.
  const unsteady = /\[\d+:\d+\]|^#.*$| \d+sec|NO-CARRIER,|,LOWER_UP| state [A-Z]+/gm;
  const steady = shown.join("").replaceAll(unsteady, "");
  return [steady, machines.stdout, files.join("\n"), ...rows].join("\n");
}

test.serial("every step done twice is the step done once, and so is every undo", async (t) => {
  t.timeout(60_000);
  const before = await everything();
  const asked = validateCreate(create(CreatePodRequestSchema, { spec: { name: "one" } }), {
    network: parseNetworkName("default"),
  });
  const progress = { started: () => {}, finished: () => {} };
  const { id, plan } = await node.pods.create(asked, { signal: never, progress });
  const live = node.pods.live(id);
  if (live?.guest === undefined || live.vm === undefined) throw new Error("The pod is not held");
  const { host } = node;

  const once = await everything();
  t.not(once, before);
  for (const fragment of node.networks.fragments())
    t.deepEqual(await host.network.apply(fragment, never), []);
  t.deepEqual(await host.network.apply(portsOf(plan, node.networks.list()), never), []);
  const again = await live.guest.configure(guestMessage(live, host), never);
  // But for its clock.
  t.deepEqual({ ...again, clockMs: 0 }, { ...live.observed, clockMs: 0 });
  host.recordRun(plan, live.vm.record);
  t.deepEqual(difference(once, await everything()), []);

  // As every end of a pod begins: a guest that goes with its machine is not reported.
  unsubscribe(live);
  const { record } = live;
  for (const step of undoSteps(plan)) {
    await actUndo(step, live, host, { graceful: false });
    const undone = await everything();
    await actUndo(step, live, host, { graceful: false });
    t.deepEqual(difference(undone, await everything()), [], step.kind);
  }
  node.records.forget(plan);
  t.deepEqual(difference(before, await everything()), []);
  // As a recovery does that was killed after it had undone all.
  t.deepEqual(
    await undoPod(livePod({ plan, spec: asked.spec }, record), host, { graceful: false }),
    [],
  );
  t.deepEqual(difference(before, await everything()), []);
});
