import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { addSystemd } from "../lab/systemd-root.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
let image: string;
test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  image = busyboxImage(rig.directory, "systemd", addSystemd);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const name = "system";

async function shell(script: string): Promise<string> {
  const { output } = await execIn(rig.client, name, "sh", "-c", `exec 2>&1; ${script}`);
  return output.trimEnd();
}

async function whenSaid(t: ExecutionContext, script: string, wanted: RegExp): Promise<void> {
  let said = "";
  for (let attempt = 0; attempt < 300; attempt++) {
    said = await shell(script);
    if (wanted.test(said)) return;
    await delay(500);
  }
  t.fail(`${script}: ${said}\n${await rig.daemon.podnet("logs", "--console", name)}`);
}

test.serial(
  "systemd is a main process: it starts units, and stops them with the pod",
  async (t) => {
    t.teardown(async () => {
      await rig.client.pods.delete({ idOrName: name, force: true }).catch(() => {});
    });
    const before = await rig.inventory();
    await rig.client.pods.create({
      spec: {
        name,
        resources: { memoryMib: 256 },
        boot: {
          cmdline: "podnet.root=vda",
          disks: [{ path: image, readOnly: true }],
          layer: "persistent",
          layerMib: 64,
        },
        process: { args: ["/usr/lib/systemd/systemd"], stopTimeoutMs: 240_000 },
      },
    });
    await whenSaid(t, "cat /run/probe", /^up$/);
    t.is(await shell("cat /proc/1/comm"), "systemd");
    await whenSaid(t, "systemctl is-active probe.service", /^active$/);
    t.regex(await shell("cat /proc/1/environ | tr '\\0' '\\n'"), /^container=podnet$/m);
    t.regex(await shell("cat /proc/mounts"), /^cgroup2 \/sys\/fs\/cgroup cgroup2 rw/m);
    // Devices are the agent's matter, as is the network.
    t.regex(await shell("echo x > /sys/class/net/eth0/mtu || true"), /Read-only file system/);
    t.regex(await shell("ip -4 addr show eth0"), /inet 192\.168\.123\./);

    await rig.client.pods.stop({ idOrName: name });
    const { pod } = await rig.client.pods.get({ idOrName: name });
    t.is(pod?.state, PodState.STOPPED);
    t.is(pod?.process?.exitCode, 0, pod?.reason);
    await rig.client.pods.start({ idOrName: name });
    t.is(await shell("cat /probe-stopped"), "stopped");
    await rig.client.pods.delete({ idOrName: name, force: true });
    t.deepEqual(await rig.changes(before), []);
  },
);
