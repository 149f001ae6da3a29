import { connect } from "node:net";
import { join } from "node:path";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { vmSockets } from "../../hypervisor/driver.ts";
import { channelPorts } from "../../hypervisor/argv/argv.ts";
import { leastMemoryMib } from "../../hypervisor/argv/preflight.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  // What the test changes of the host must stay so until it has looked.
  rig = await openRig("drift_s = 0\n");
  // The least the default image is said to boot with.
  await rig.client.pods.create({ spec: { name: "one", resources: { memoryMib: leastMemoryMib } } });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/**
 * Puts another listening socket of the same path behind the machine's control channel, which ends
 * the one in use.
 */
async function replaceChannel(runDir: string): Promise<void> {
  const monitor = connect(join(runDir, vmSockets.verify));
  const addr = { type: "unix", data: { path: vmSockets.channel } };
  const change = (backend: object) => ({
    execute: "chardev-change",
    arguments: { id: channelPorts[0], backend },
  });
  const commands = [
    { execute: "qmp_capabilities" },
    // First something without a path: the old socket takes its file with it when it goes.
    change({ type: "null", data: {} }),
    change({ type: "socket", data: { addr, server: true, wait: false } }),
  ];
  for (const each of commands) monitor.write(`${JSON.stringify(each)}\n`);
  let answers = "";
  for await (const bytes of monitor) {
    answers += String(bytes);
    if (/"error"/.test(answers)) throw new Error(answers);
    if ((answers.match(/"return"/g) ?? []).length === commands.length) return;
  }
}

test.serial("a channel that is lost is opened anew while the pod runs on", async (t) => {
  const { pod } = await rig.client.pods.get({ idOrName: "one" });
  const runDir = join(rig.daemon.runDir, "pods", pod?.id ?? "");
  const ended = new AbortController();
  const watch = rig.client.pods.watch({ idOrName: "one" }, { signal: ended.signal });
  const reported: string[] = [];
  for await (const { kind, text, pod: now } of watch) {
    if (kind === Kind.SYNCED) await replaceChannel(runDir);
    if (kind !== Kind.UPDATED) continue;
    reported.push(text);
    if (/lost/.test(text)) t.regex(now?.reason ?? "", /the agent is lost: .*closed/);
    t.is(now?.state, PodState.RUNNING);
    if (text === "the agent is back") break;
  }
  ended.abort();
  await rig.lab.host.ping("192.168.123.2", 2);
  t.regex(reported[0] ?? "", /the agent is lost/);
  t.is(reported.length, 2);
  const hello = await execIn(rig.client, "one", "echo", "back");
  t.deepEqual(hello, { output: "back\n", code: 0 });
  t.is((await rig.client.pods.get({ idOrName: "one" })).pod?.reason, "");
});

test.serial("verify looks at the bridge's own addresses too", async (t) => {
  const verify = () => rig.client.pods.verify({ idOrName: "one" });
  t.true((await verify()).ok);
  await rig.lab.host.run("ip", "addr", "del", "192.168.123.1/24", "dev", "hyper0");
  const { ok, checks } = await verify();
  t.false(ok);
  t.regex(JSON.stringify(checks.filter((check) => !check.ok)), /192\.168\.123\.1\/24/);
  await rig.lab.host.run("ip", "addr", "add", "192.168.123.1/24", "dev", "hyper0");
  t.true((await verify()).ok);
});

test.serial("one MiB less than the default image needs is refused", async (t) => {
  const spec = { resources: { memoryMib: leastMemoryMib - 1 } };
  const error = await t.throwsAsync(rig.client.pods.create({ spec }), { code: "MEMORY_TOO_SMALL" });
  t.regex(error?.message ?? "", new RegExp(`${leastMemoryMib}`));
});
