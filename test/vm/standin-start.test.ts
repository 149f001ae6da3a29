import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { Rig } from "./daemon-rig.ts";
import { startOthersMachine } from "../crash/others-machine.ts";
import { portsOf } from "./ports-rig.ts";
import { openStandInRig } from "./standin-rig.ts";

let rig: Rig;
const directory = mkdtempSync(join(tmpdir(), "podnet-start-"));
test.serial.before(async () => {
  rig = await openStandInRig("drift_s = 3600\nquarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});
test.serial.afterEach.always(async () => {
  for (const { name } of (await rig.client.pods.list({})).pods)
    await rig.client.pods.delete({ idOrName: name });
});

const create = async (from: number, to: number): Promise<void> => {
  for (let i = from; i <= to; i++)
    await rig.client.pods.create({
      spec: { name: `web${i}`, ports: portsOf(`0.0.0.0:${8200 + i}:80`) },
    });
};

const podRules = async (): Promise<number> =>
  (await rig.lab.host.run("nft", "list", "table", "inet", "podnet_published")).split("podnet:pod:")
    .length - 1;

/** Starts podnetd again and answers the commands it has run until it takes connections. */
async function commandsOfStart(how: "stop" | "kill"): Promise<string[]> {
  const file = join(mkdtempSync(join(directory, "record-")), "record");
  await rig.restart(how, { PODNET_FAILPOINTS: `record:${file}` });
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line.startsWith("command:") && line.includes(":before#"))
    .map((line) => line.replace(/#\d+$/, ""));
}

test.serial(
  "on a host without memory a machine is ended before podnetd; a foreign machine is as it was",
  async (t) => {
    const scoreOf = (pid: number | undefined): number =>
      Number(readFileSync(`/proc/${pid}/oom_score_adj`, "latin1"));
    const { pod } = await rig.client.pods.create({ spec: { name: "web1" } });
    t.is(scoreOf(pod?.vm?.pid), 500);
    t.true(scoreOf(rig.daemon.process.pid) < 500);
    await using machine = await startOthersMachine();
    const { qmp: qmpSocket, channel: channelSocket, tty: ttySocket } = machine;
    const attached = await rig.client.pods.attach({
      spec: { name: "theirs" },
      qmpSocket,
      channelSocket,
      ttySocket,
    });
    t.is(scoreOf(attached.pod?.vm?.pid), scoreOf(process.pid));
    await rig.client.pods.detach({ idOrName: "theirs" });
  },
);

test.serial(
  "without descriptors a create says which limit to raise, whatever it meets",
  async (t) => {
    const pid = rig.daemon.process.pid as number;
    const limit = (soft: number): void => {
      execFileSync("prlimit", ["--pid", `${pid}`, `--nofile=${soft}:`]);
    };
    const used = readdirSync(`/proc/${pid}/fd`).length;
    const codes = new Set<string>();
    for (let more = 0; more < 5; more++) {
      limit(used + more);
      const error = await rig.client.pods.create({ spec: { name: "web1" } }).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      limit(4096);
      await rig.client.pods.delete({ idOrName: "web1", force: true });
      if (!isPodnetError(error)) continue;
      codes.add(error.code);
      t.regex(error.hint ?? "", /Raise the limit of open files/, error.message);
    }
    t.true(codes.has("SYSCALL_FAILED"), [...codes].join(" "));
    t.false(codes.has("QEMU_MISSING"));
  },
);

test.serial(
  "a start runs as many firewall commands with five stopped pods as with one",
  async (t) => {
    const stopAll = async (): Promise<void> => {
      for (const { name } of (await rig.client.pods.list({})).pods)
        await rig.client.pods.stop({ idOrName: name });
    };
    await create(1, 1);
    await stopAll();
    const withOne = await commandsOfStart("stop");
    t.true(withOne.length > 0);
    await create(2, 5);
    await stopAll();
    t.deepEqual(await commandsOfStart("stop"), withOne);
  },
);

test.serial(
  "what pods have published that ended meanwhile goes in one commit, and of those that run it stays",
  async (t) => {
    const endMachines = async (...names: string[]): Promise<void> => {
      const pods = (await rig.client.pods.list({})).pods.filter(({ name }) => names.includes(name));
      await rig.daemon.kill();
      for (const { vm } of pods) process.kill(vm?.pid ?? 0, "SIGKILL");
    };
    await create(1, 2);
    const rules = (await podRules()) / 2;
    t.true(rules > 0);
    await endMachines("web1");
    const withOne = await commandsOfStart("kill");
    t.is(await podRules(), rules, "the other's stay");
    await create(3, 5);
    t.is(await podRules(), 4 * rules);
    await endMachines("web3", "web4", "web5");
    t.deepEqual(await commandsOfStart("kill"), withOne);
    t.is(await podRules(), rules);
    const states = (await rig.client.pods.list({})).pods.map(({ name, state }) => [name, state]);
    t.deepEqual(
      new Map(states as [string, PodState][]),
      new Map(
        [1, 2, 3, 4, 5].map((i) => [`web${i}`, i === 2 ? PodState.RUNNING : PodState.FAILED]),
      ),
    );
  },
);

test.serial("podnetd answers calls without a part of Node that it does not use", async (t) => {
  const loaded = join(directory, "loaded");
  const probe = join(directory, "probe.cjs");
  writeFileSync(
    probe,
    `process.on("exit", () => require("fs").writeFileSync("${loaded}", process.moduleLoadList.join("\\n")));`,
  );
  await rig.restart("stop", { NODE_OPTIONS: `--require=${probe}` });
  t.deepEqual((await rig.client.pods.list({})).pods, []);
  await rig.restart("stop");
  const modules = readFileSync(loaded, "utf8").split("\n");
  t.true(modules.includes("NativeModule internal/http2/core"));
  t.deepEqual(
    modules.filter((name) => name.includes("undici")),
    [],
  );
});
