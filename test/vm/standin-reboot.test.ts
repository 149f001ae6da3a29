import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, type Rig } from "./daemon-rig.ts";
import { create, openStandInRig } from "./standin-rig.ts";

const directory = mkdtempSync(join(tmpdir(), "podnet-boot-"));
const bootFile = join(directory, "boot_id");
const boots = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];

let rig: Rig;

test.serial.before(async () => {
  writeFileSync(bootFile, `${boots[0]}\n`);
  // podnetd, and what it starts, sees another boot id: in a mount namespace of its own.
  const script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"';
  rig = await openStandInRig(undefined, (host) => ({
    ...host,
    spawn: (argv, options) =>
      host.spawn(["unshare", "--mount", "sh", "-c", script, bootFile, ...argv], options),
  }));
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/**
 * What a host has lost when it comes up again: processes, links, rules, settings, and what is below
 * /run.
 */
async function reboot(pids: readonly number[]): Promise<void> {
  const { host } = rig.lab;
  await rig.daemon.kill();
  for (const pid of pids) process.kill(pid, "SIGKILL");
  for (const table of ["filter", "nat"]) {
    await host.run("iptables-nft", "-t", table, "-F");
    await host.run("iptables-nft", "-t", table, "-X");
  }
  // What podnet made is gone, whichever of the two it used.
  for (const variant of ["nft", "legacy"])
    if (/podnet|HYPER/.test(await host.run(`iptables-${variant}-save`)))
      throw new Error(`Rules are left in iptables-${variant}`);
  await host.run("ip", "link", "del", "dev", "hyper0");
  await host.run("sysctl", "-qw", "net.ipv4.ip_forward=0");
  rmSync(rig.daemon.runDir, { recursive: true, force: true });
  writeFileSync(bootFile, `${boots[1]}\n`);
}

test.serial(
  "a host that restarts: every pod failed, nothing left, started again as before",
  async (t) => {
    const names = ["one", "two", "three"];
    const pods = await Promise.all(names.map((name) => create(rig.client, name)));
    const bootIds = (): unknown[] => {
      using db = new DatabaseSync(join(rig.daemon.stateDir, "state.db"), { readOnly: true });
      return db
        .prepare("SELECT DISTINCT boot_id FROM runs")
        .all()
        .map((row) => row["boot_id"]);
    };
    t.deepEqual(bootIds(), [boots[0]], "the daemon sees the boot that the test made");

    const pids = pods.map(({ vm }) => vm?.pid ?? Number.NaN);
    await reboot(pids);
    // By now the pid and the time since boot are those of another process.
    const foreign = spawn("sleep", ["1000"], { stdio: "ignore" });
    await once(foreign, "spawn");
    t.teardown(() => foreign.kill("SIGKILL"));
    const stat = (): string =>
      readFileSync(`/proc/${foreign.pid}/stat`, "latin1").replace(/^.*\) /, "");
    {
      using db = new DatabaseSync(join(rig.daemon.stateDir, "state.db"));
      const start = stat().split(" ")[19] ?? "";
      db.prepare("UPDATE runs SET pid = ?, start_time = ?").run(foreign.pid ?? 0, start);
    }
    await rig.restart("kill");

    const { pods: found } = await rig.client.pods.list({});
    t.is(found.length, names.length);
    for (const pod of found) {
      t.is(pod.state, PodState.FAILED);
      t.is(pod.failure?.code, "HOST_RESTARTED");
      t.truthy(pod.failure?.hint);
    }
    const podsDir = join(rig.daemon.runDir, "pods");
    t.deepEqual(existsSync(podsDir) ? readdirSync(podsDir) : [], []);
    const kept = (await rig.changes()).filter(
      (line) => !/^[-+] (?:row (?:pods|interfaces|leases)|in-use) /.test(line),
    );
    t.deepEqual(kept, []);
    t.notRegex(await rig.lab.host.run("ip", "-o", "link"), /pn[a-z2-7]{12}/);
    t.regex(stat(), /^S /, "the foreign process lives");

    for (const pod of pods) {
      const again = await rig.client.pods.start({ idOrName: pod.name });
      t.is(again.pod?.state, PodState.RUNNING);
      t.deepEqual(again.pod?.interfaces[0]?.addresses, pod.interfaces[0]?.addresses);
      t.is(again.pod?.interfaces[0]?.mac, pod.interfaces[0]?.mac);
      await rig.lab.host.ping(addressOf(again.pod), 1);
      t.is((await execIn(rig.client, pod.name, "true")).code, 0);
    }
    t.deepEqual(bootIds(), [boots[1]]);
    await Promise.all(names.map((idOrName) => rig.client.pods.delete({ idOrName })));
    t.deepEqual(await rig.changes(), []);
    t.regex(stat(), /^S /);
  },
);
