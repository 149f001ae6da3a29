import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import type {
  MachineStats,
  PodStats,
  StatsResponse,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";
import { create, openStandInRig } from "./standin-rig.ts";

let rig: Rig;
let disk: string;
let pid: number;

test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
  disk = join(rig.directory, "disk.raw");
  writeFileSync(disk, Buffer.alloc(4 << 20, 1));
  const boot = { disks: [{ path: disk }] };
  const { pod } = await rig.client.pods.create({ spec: { name: "one", boot } });
  pid = pod?.vm?.pid ?? 0;
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** So many answers. */
async function answers(
  on: Rig,
  idOrName: string,
  everyMs = 0,
  times = 1,
): Promise<StatsResponse[]> {
  const found: StatsResponse[] = [];
  for await (const answer of on.client.pods.stats({ idOrName, everyMs }))
    if (found.push(answer) === times) break;
  return found;
}
const podNow = async (on = rig, name = "one"): Promise<PodStats | undefined> =>
  (await answers(on, name))[0]?.pods[0];
async function now(): Promise<MachineStats> {
  const machine = (await podNow())?.machine;
  if (machine === undefined) throw new Error("No machine is seen");
  return machine;
}
const podOne = async () => (await rig.client.pods.get({ idOrName: "one" })).pod;
const inGuest = (script: string) => execIn(rig.client, "one", "sh", "-c", script);
/** Its processor is busy for so many seconds. */
const burn = (seconds: number) => inGuest(`while :; do :; done & sleep ${seconds}; kill $!`);

test.serial("processors: what the kernel says they took, and rates that fit it", async (t) => {
  const before = await now();
  await burn(1);
  const after = await now();
  t.true(after.cpuS - before.cpuS > 0.1, `${before.cpuS} ${after.cpuS}`);
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const seen = (Number(fields[11]) + Number(fields[12])) / 100;
  t.true(seen >= after.cpuS && seen < after.cpuS + 1, `${seen} ${after.cpuS}`);
  t.is(after.rates, undefined, "asked once there are no rates");

  const burning = burn(2);
  const [first, second] = await answers(rig, "one", 500, 2);
  await burning;
  const machines = [first, second].map((answer) => answer?.pods[0]?.machine);
  const grown = (machines[1]?.cpuS ?? 0) - (machines[0]?.cpuS ?? 0);
  const elapsedMs = timestampMs(second?.time ?? never()) - timestampMs(first?.time ?? never());
  const percent = machines[1]?.rates?.cpuPercent ?? -1;
  t.is(machines[0]?.rates, undefined);
  t.true(percent > 1, `${percent}`);
  t.true(Math.abs(percent - (grown * 100_000) / elapsedMs) < percent / 2, `${percent} ${grown}`);
});

const never = (): never => {
  throw new Error("An answer says no time");
};

const isMemory = (line: string): boolean => /^(?:\d+:memory|0:):/.test(line);

test.serial("memory: what its control group holds, and what it may", async (t) => {
  const before = await now();
  // Seen in the sandbox without its own part of the path.
  const [line = ""] = readFileSync(`/proc/${pid}/cgroup`, "utf8").split("\n").filter(isMemory);
  const group = line.split("/").slice(-2).join("/");
  const [limit = ""] = [`memory/${group}/memory.limit_in_bytes`, `${group}/memory.max`]
    .map((file) => `/run/cgroup/${file}`)
    .filter((file) => existsSync(file))
    .map((file) => readFileSync(file, "latin1"));
  t.is(before.memoryLimitBytes, BigInt(limit.trim()));
  t.true(before.memoryBytes > 10n << 20n && before.memoryBytes < before.memoryLimitBytes);
  await inGuest("head -c 48000000 /dev/zero > /much");
  const grown = (await now()).memoryBytes - before.memoryBytes;
  // Less than what was written: pages that the guest had used and freed are there already.
  t.true(grown > 15_000_000n && grown < 60_000_000n, `${grown}`);
  await inGuest("rm /much");
});

test.serial("disks: what the guest reads and writes, with rates", async (t) => {
  const before = await now();
  t.is(before.disks[0]?.path, disk);
  const watched = answers(rig, "one", 3000, 2);
  const write = await inGuest(
    "sleep 1; dd if=/dev/zero of=/dev/vda bs=65536 count=16 conv=notrunc; sync; dd if=/dev/vda of=/dev/null bs=65536 skip=40 count=8",
  );
  t.is(write.code, 0, write.output);
  const [after] = (await now()).disks;
  t.true((after?.writeBytes ?? 0n) - (before.disks[0]?.writeBytes ?? 0n) >= 1n << 20n);
  t.true((after?.readBytes ?? 0n) - (before.disks[0]?.readBytes ?? 0n) >= 8n * 65_536n);
  t.true((after?.writeRequests ?? 0n) > 0n && (after?.readRequests ?? 0n) > 0n);
  t.true(((await watched)[1]?.pods[0]?.machine?.disks[0]?.rates?.writeBytesPerS ?? 0) > 0);
});

test.serial(
  "paused it takes no time, after a restart it is counted on, stopped it is no machine",
  async (t) => {
    await rig.client.pods.pause({ idOrName: "one" });
    const [first, second] = (await answers(rig, "one", 1000, 2)).map((a) => a.pods[0]?.machine);
    t.true((second?.cpuS ?? 9) - (first?.cpuS ?? 0) < 0.1, `${first?.cpuS} ${second?.cpuS}`);
    t.true((second?.memoryBytes ?? 0n) > 10n << 20n);
    await rig.client.pods.resume({ idOrName: "one" });
    await rig.restart("kill");
    const again = await now();
    t.true(again.cpuS >= (second?.cpuS ?? Infinity));
    t.is(again.disks.length, 1);
    await rig.client.pods.stop({ idOrName: "one", force: true });
    t.is((await podNow())?.machine, undefined);
    t.deepEqual((await answers(rig, ""))[0]?.pods, [], "of all only those that have one");
    await rig.client.pods.start({ idOrName: "one" });
    t.true((await now()).cpuS < again.cpuS + 60);
  },
);

/** What `GET /metrics` says of single pods. */
async function scraped({ lab, daemon }: Rig): Promise<string[]> {
  const words = ["-s", "--unix-socket", daemon.socket, "http://podnet/metrics"];
  const text = await lab.host.run("curl", ...words);
  return text.split("\n").filter((line) => line.startsWith("podnet_pod_"));
}

test.serial("what stats says of a pod /metrics says, too, by the pod's name", async (t) => {
  const { cpuS, memoryBytes, disks } = await now();
  const lines = new Map((await scraped(rig)).map((line) => line.split(" ") as [string, string]));
  const value = (name: string): number => Number(lines.get(`podnet_pod_${name}`));
  const cpu = value('cpu_seconds_total{pod="one"}');
  t.true(cpu >= cpuS && cpu < cpuS + 60, `${cpu} ${cpuS}`);
  t.true(value('memory_bytes{pod="one"}') > Number(memoryBytes) / 2);
  t.true(value('memory_limit_bytes{pod="one"}') > 64 << 20);
  t.true(
    value('disk_bytes_total{pod="one",disk="0",direction="read"}') >= Number(disks[0]?.readBytes),
  );
  const received = 'network_bytes_total{pod="one",interface="eth0",direction="rx"}';
  const before = value(received);
  t.is(
    (await rig.lab.host.run("ping", "-c", "3", addressOf(await podOne()))).includes(
      "0% packet loss",
    ),
    true,
  );
  const after = (await scraped(rig)).find((line) => line.startsWith(`podnet_pod_${received}`));
  t.true(Number(after?.split(" ")[1]) >= before + 3 * 84, `${after} ${before}`);
});

test.serial("of a QEMU that does not say what its disks do all else is reported", async (t) => {
  await using standIns = await openStandInRig("quarantine_s = 0\n[metrics]\npods = false\n");
  const image = join(standIns.directory, "image.raw");
  writeFileSync(image, Buffer.alloc(1 << 20));
  const disks = [{ path: image, readOnly: true }];
  for (const [name, cmdline] of [
    ["good", ""],
    ["hangs", "standin.qemu=hang:query-blockstats"],
    ["refuses", "standin.qemu=refuse:query-blockstats"],
  ] as const)
    await standIns.client.pods.create({ spec: { name, boot: { cmdline, disks } } });
  await create(standIns.client, "diskless");
  const [answer] = await answers(standIns, "");
  const seen = answer?.pods.map(({ name, machine, interfaces }) => [
    name,
    machine?.disks.length,
    (machine?.memoryBytes ?? 0n) > 1n << 20n,
    interfaces.length,
  ]);
  t.deepEqual(seen, [
    ["good", 1, true, 1],
    ["hangs", 0, true, 1],
    ["refuses", 0, true, 1],
    ["diskless", 0, true, 1],
  ]);
  t.is(answer?.pods[0]?.machine?.memoryLimitBytes, 0n, "not confined: there is none");
  t.deepEqual(await scraped(standIns), [], "switched off");
});
