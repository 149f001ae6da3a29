import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { findProgram } from "../../linux/processes/command.ts";
import { standInConfig } from "../lab/standin.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  const images = mkdtempSync(join(tmpdir(), "podnet-recovery-"));
  rig = await openRig(`drift_s = 1\nquarantine_s = 0\n${await standInConfig(images)}`);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

async function becomes(name: string, like: (pod: Pod) => boolean): Promise<Pod> {
  const deadline = performance.now() + 40_000;
  for (;;) {
    const { pod } = await rig.client.pods.get({ idOrName: name });
    if (pod !== undefined && like(pod)) return pod;
    if (performance.now() > deadline) throw new Error(`${name} is ${pod?.state}: ${pod?.reason}`);
    await delay(50);
  }
}

/**
 * Waits in line for the machine's monitor, which serves one client at a time, and holds it once the
 * daemon lets go.
 */
function standInLine({ id = "" }: { readonly id?: string | undefined }): Socket {
  const socket = connect(join(rig.daemon.runDir, "pods", id, "qmp.sock"));
  socket.on("error", () => {});
  return socket;
}

test.serial(
  "a machine whose monitor another client holds runs on, and is taken over when it is free",
  async (t) => {
    const { pod } = await rig.client.pods.create({ spec: { name: "held" } });
    const address = addressOf(pod);
    const holder = standInLine(pod ?? {});
    await rig.restart("kill");
    const now = await becomes("held", ({ reason }) => reason !== "");
    t.is(now.state, PodState.RUNNING);
    t.regex(now.reason, /cannot take it over yet/);
    t.is(now.vm?.pid, pod?.vm?.pid);
    await rig.lab.host.ping(address, 1);
    await t.throwsAsync(execIn(rig.client, "held", "true"), { message: /take it over yet/ });
    holder.destroy();
    await becomes("held", ({ reason, state }) => state === PodState.RUNNING && reason === "");
    t.is((await execIn(rig.client, "held", "true")).code, 0);
  },
);

test.serial(
  "one that ends before it is taken over has failed, and what it held is free",
  async (t) => {
    const { pod } = await rig.client.pods.get({ idOrName: "held" });
    const holder = standInLine(pod ?? {});
    await rig.restart("kill");
    process.kill(pod?.vm?.pid ?? -1, "SIGKILL");
    const now = await becomes("held", ({ state }) => state === PodState.FAILED);
    t.is(now.failure?.code, "QEMU_EXITED");
    holder.destroy();
    await rig.client.pods.delete({ idOrName: "held" });
    t.deepEqual(await rig.changes(), []);
  },
);

test.serial("one that is not taken over yet can be deleted", async (t) => {
  const { pod } = await rig.client.pods.create({ spec: { name: "held" } });
  const holder = standInLine(pod ?? {});
  await rig.restart("kill");
  t.true((await rig.client.pods.delete({ idOrName: "held" })).existed);
  t.deepEqual(await rig.changes(), []);
  holder.destroy();
});

test.serial(
  "a down that fails half way leaves a node that works, and may be asked again",
  async (t) => {
    const bin = mkdtempSync(join(tmpdir(), "podnet-recovery-bin-"));
    const broken = join(bin, "broken");
    const program = join(bin, "iptables-nft-restore");
    writeFileSync(
      program,
      `#!/bin/sh\n[ ! -e ${broken} ] || { echo "iptables-restore: out of order" >&2; exit 4; }\nexec ${findProgram("iptables-nft-restore")} "$@"\n`,
    );
    chmodSync(program, 0o755);
    await rig.restart("stop", { PATH: `${bin}:${process.env["PATH"]}` });
    await rig.client.pods.create({ spec: { name: "first" } });
    writeFileSync(broken, "");
    const failed = await rig.daemon.tryPodnet("down", "--yes");
    t.is(failed.exitCode, 1);
    t.regex(failed.stderr, /FIREWALL_FAILED[^]*try again: podnet down|out of order/);
    t.deepEqual((await rig.client.pods.list({})).pods, []);
    rmSync(broken);
    const { pod } = await rig.client.pods.create({ spec: { name: "second" } });
    await rig.lab.host.ping(addressOf(pod), 1);
    for (let i = 0; i < 100 && (await rig.client.node.diff({})).drift; i++) await delay(100);
    t.false((await rig.client.node.diff({})).drift);
    const done = await rig.daemon.tryPodnet("down", "--yes");
    t.is(done.exitCode, 0, done.stderr);
    t.notRegex(await rig.lab.host.run("ip", "-o", "link"), /hyper0/);
    t.notRegex(await rig.lab.host.run("iptables-save"), /podnet/);
  },
);
