import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { addressOf, reached, type Rig } from "./daemon-rig.ts";
import { openStandInRig } from "./standin-rig.ts";

// Whose guests boot matters to none of these: with a real one a create is undone in
// test/vm/daemon-lifecycle.test.ts.

let rig: Rig;
const scratch = mkdtempSync(join(tmpdir(), "podnet-failures-"));

test.serial.before(async () => {
  rig = await openStandInRig("quarantine_s = 0\n[timeouts]\ncreate_s = 30\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** A guest so slow that its create takes a second: there is a middle of it. */
const boot = { cmdline: "standin.agent=slow:300" };

/**
 * All that may stay of creates that were undone: for 24 hours, how those with a request id ended.
 */
const remembered = (...ids: readonly string[]): string[] => ids.map((id) => `+ row requests ${id}`);

async function gone(): Promise<void> {
  const ended = new AbortController();
  for await (const { kind } of rig.client.pods.watch({}, { signal: ended.signal })) {
    if (kind === Kind.DELETED) break;
    if (kind === Kind.SYNCED && (await rig.client.pods.list({})).pods.length === 0) break;
  }
  ended.abort();
}

test.serial("a create without a request id is undone when its caller goes away", async (t) => {
  const caller = new AbortController();
  const create = rig.client.pods.create(
    { spec: { name: "left", boot } },
    { signal: caller.signal },
  );
  const seen = reached(rig.client, "vm.start");
  await Promise.race([seen, create]);
  caller.abort();
  await t.throwsAsync(create, { code: "CANCELLED" });
  await gone();
  t.deepEqual(await rig.changes(), []);
});

test.serial("a caller of plain JSON that goes away is noticed too", async (t) => {
  const started = reached(rig.client, "vm.start");
  const curl = rig.lab.host.spawn([
    "curl",
    "-s",
    "--unix-socket",
    rig.daemon.socket,
    "-H",
    "content-type: application/json",
    "-d",
    JSON.stringify({ spec: { name: "curled", boot } }),
    "http://podnet/podnet.v1.PodService/Create",
  ]);
  await started;
  curl.kill("SIGKILL");
  await gone();
  t.deepEqual(await rig.changes(), []);
});

const slow = { name: "slow", boot: { cmdline: "standin.agent=slow:3000" } };

test.serial("a deadline that passes undoes the create and says so", async (t) => {
  const error = await t.throwsAsync(
    rig.client.pods.create({ spec: slow, timeoutMs: 1000, requestId: "slow-1" }),
    { code: "DEADLINE_EXCEEDED" },
  );
  t.true(isPodnetError(error) && error.step !== undefined);
  t.deepEqual(await rig.changes(), remembered("slow-1"));
});

test.serial("a create with rules of its own that fails leaves none of them", async (t) => {
  const policy = { rules: [{ name: "web", action: "allow", cidrs: ["192.0.2.0/24"] }] };
  const spec = { ...slow, name: "ruled", policy };
  const failed = rig.client.pods.create({ spec, timeoutMs: 1000 });
  await reached(rig.client, "port.attach");
  t.regex(await rig.lab.host.run("nft", "list", "ruleset"), /policy_/, "they are there meanwhile");
  await t.throwsAsync(failed, { code: "DEADLINE_EXCEEDED" });
  t.deepEqual(await rig.changes(), remembered("slow-1"));
  t.deepEqual((await rig.client.policies.list({})).policies, []);
});

test.serial("the same request id asked for again gets the same failure", async (t) => {
  await t.throwsAsync(rig.client.pods.create({ spec: slow, requestId: "slow-1" }), {
    code: "DEADLINE_EXCEEDED",
  });
  await t.throwsAsync(rig.client.pods.create({ spec: { name: "other" }, requestId: "slow-1" }), {
    code: "REQUEST_CONFLICT",
  });
  t.deepEqual(await rig.changes(), remembered("slow-1"));
});

test.serial("with a request id two callers get one pod, though the first goes away", async (t) => {
  const first = new AbortController();
  const request = { spec: { name: "joined", boot }, requestId: "join-1" };
  const seen = reached(rig.client, "vm.start");
  const lost = rig.client.pods.create(request, { signal: first.signal });
  await seen;
  first.abort();
  await t.throwsAsync(lost, { code: "CANCELLED" });
  const [second, third] = await Promise.all([
    rig.client.pods.create(request),
    rig.client.pods.create(request),
  ]);
  t.is(second.pod?.id, third.pod?.id);
  t.is(second.pod?.state, PodState.RUNNING);
  const again = await rig.client.pods.create(request);
  t.is(again.pod?.id, second.pod?.id);
  t.is((await rig.client.pods.list({})).pods.length, 1);
});

test.serial("a deleted pod's address serves the next at once, under another MAC", async (t) => {
  const { pod } = await rig.client.pods.get({ idOrName: "joined" });
  const address = addressOf(pod);
  await rig.lab.host.ping(address, 1);
  await rig.client.pods.delete({ idOrName: "joined" });
  const next = await rig.client.pods.create({ spec: { name: "heir", interfaces: [{ address }] } });
  t.not(next.pod?.interfaces[0]?.mac, pod?.interfaces[0]?.mac);
  await rig.lab.host.ping(address, 2);
});

test.serial(
  "a pod deleted while it is created leaves nothing, and its creator gets an error",
  async (t) => {
    const seen = reached(rig.client, "vm.start");
    const create = rig.client.pods.create({ spec: { name: "cut-short", boot } });
    await seen;
    const [deleted] = await Promise.all([
      rig.client.pods.delete({ idOrName: "cut-short" }),
      t.throwsAsync(create, { code: "CANCELLED" }),
    ]);
    t.true(deleted.existed);
    await rig.client.pods.delete({ idOrName: "heir" });
    t.deepEqual(await rig.changes(), remembered("join-1", "slow-1"));
  },
);

test.serial(
  "a daemon killed in the middle of a create undoes it, and asking again creates it",
  async (t) => {
    const seen = reached(rig.client, "vm.start");
    const request = { spec: { name: "cut", boot }, requestId: "cut-1" };
    const create = rig.client.pods.create(request);
    await seen;
    await Promise.all([rig.restart("kill"), t.throwsAsync(create)]);
    t.deepEqual(await rig.changes(), remembered("join-1", "slow-1"));
    const { pod } = await rig.client.pods.create(request);
    t.is(pod?.state, PodState.RUNNING);
    await rig.client.pods.delete({ idOrName: "cut" });
  },
);

test.serial(
  "a daemon that is stopped lets creates under way end, side by side, and takes no more",
  async (t) => {
    const seen = reached(rig.client, "vm.start");
    const creates = ["left", "right"].map((name) =>
      rig.client.pods.create({ spec: { name, boot } }),
    );
    const twin = await t.throwsAsync(rig.client.pods.create({ spec: { name: "left" } }));
    t.true(isPodnetError(twin, "NAME_IN_USE"));
    await seen;
    const restarted = rig.restart("stop");
    for (const { pod } of await Promise.all(creates)) t.is(pod?.state, PodState.RUNNING);
    await restarted;
    const { pods } = await rig.client.pods.list({});
    t.deepEqual(pods.map(({ name, state }) => `${name} ${state}`).toSorted(), [
      `left ${PodState.RUNNING}`,
      `right ${PodState.RUNNING}`,
    ]);
    for (const pod of pods) await rig.lab.host.ping(addressOf(pod), 1);
    await Promise.all(pods.map(({ id }) => rig.client.pods.delete({ idOrName: id })));
    t.deepEqual(await rig.changes(), remembered("cut-1", "join-1", "slow-1"));
  },
);

test.serial(
  "a second daemon on the same state, or in the same namespace, is refused and the first goes on",
  async (t) => {
    const podnetd = join(import.meta.dirname, "../../bin/podnetd");
    await t.throwsAsync(rig.lab.host.run(podnetd, "--config", rig.daemon.configFile), {
      message: /ALREADY_RUNNING/,
    });
    await t.throwsAsync(rig.lab.lan.run(podnetd, "--config", rig.daemon.configFile), {
      message: /ALREADY_RUNNING/,
    });
    await t.throwsAsync(
      rig.lab.host.run(
        podnetd,
        "--state-dir",
        join(scratch, "state"),
        "--run-dir",
        join(scratch, "run"),
      ),
      { message: /network namespace/ },
    );
    t.is((await rig.client.pods.list({})).pods.length, 0);
  },
);

test.serial(
  "what bears our mark and has no row goes at the next start, what does not stays",
  async (t) => {
    const { host } = rig.lab;
    await rig.daemon.stop();
    for (const name of ["stray0", "alien0"])
      await host.run("ip", "link", "add", "name", name, "type", "bridge");
    await host.run(
      "ip",
      "link",
      "set",
      "dev",
      "stray0",
      "alias",
      "podnet:pod:aaaabbbbcccc:0",
      "group",
      "73",
    );
    await rig.restart("stop");
    const [alien, ...more] = await rig.changes();
    t.regex(alien ?? "", /^\+ link ifname="alien0" /);
    t.deepEqual(more, remembered("cut-1", "join-1", "slow-1"));
    await host.run("ip", "link", "del", "dev", "alien0");
  },
);

test.serial("down removes everything podnet made, and the daemon ends", async (t) => {
  const { host } = rig.lab;
  await rig.client.pods.create({ spec: { name: "last" } });
  t.regex(await host.run("iptables-save"), /HYPER/);
  const { removed } = await rig.client.node.down({});
  t.true(removed.includes("pod last"));
  await rig.daemon.stop();
  t.notRegex(await host.run("ip", "-o", "link"), /hyper0|pn[a-z2-7]{12}/);
  t.notRegex(await host.run("iptables-save"), /podnet|HYPER/);
  t.is((await host.run("cat", "/proc/sys/net/ipv4/ip_forward")).trim(), "0");
});
