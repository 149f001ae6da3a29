import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import {
  type WatchPodsResponse,
  WatchPodsResponse_Kind as Kind,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { standInConfig } from "../lab/standin.ts";
import { addressOf, openRig, type Rig } from "./daemon-rig.ts";

/** Drift has to be healed within so long, milliseconds: promise 20. */
const healedWithinMs = 10_000;

let rig: Rig;
let address: string;
let tap: string;
/** All drift reported so far. */
const reported: WatchPodsResponse[] = [];
const ended = new AbortController();

async function listen(): Promise<void> {
  const after = (await rig.client.pods.list({})).cursor;
  const events = rig.client.pods.watch({ after }, { signal: ended.signal });
  void (async () => {
    for await (const event of events) if (event.kind === Kind.DRIFT) reported.push(event);
  })().catch(() => {});
}

test.serial.before(async () => {
  const images = mkdtempSync(join(tmpdir(), "podnet-drift-"));
  rig = await openRig(`drift_s = 1\n${await standInConfig(images)}`);
  const { pod } = await rig.client.pods.create({ spec: { name: "web" } });
  address = addressOf(pod);
  tap = pod?.interfaces[0]?.tap ?? "";
  await rig.lab.host.ping(address, 1);
  await listen();
});
test.serial.after.always(async () => {
  ended.abort();
  await rig?.[Symbol.asyncDispose]();
});

/** Waits for an event of drift that says so. */
async function reportsOf(pattern: RegExp, since: number): Promise<WatchPodsResponse> {
  const deadline = performance.now() + healedWithinMs;
  for (;;) {
    const found = reported.slice(since).find(({ text }) => pattern.test(text));
    if (found !== undefined) return found;
    if (performance.now() > deadline)
      throw new Error(`Not reported ${pattern}: ${reported.map(({ text }) => text).join("\n")}`);
    await delay(50);
  }
}

/** A change of the host by another program, and its report. */
const harms: readonly (readonly [string, readonly string[], RegExp])[] = [
  ["all rules flushed", ["iptables -F"], /network default: iptables-nft filter is absent.*healed$/],
  ["NAT flushed", ["iptables -t nat -F"], /network default: iptables-nft nat is absent.*healed$/],
  [
    "a jump removed",
    ["iptables -t nat -D PREROUTING 1"],
    /network default: iptables-nft nat is absent.*PREROUTING.*healed$/,
  ],
  [
    "the chain deleted",
    ["iptables -F", "iptables -X HYPER"],
    /network default: iptables-nft filter is absent.*healed$/,
  ],
  [
    "the bridge deleted",
    ["ip link del hyper0"],
    /network default: link hyper0 is absent, should be bridge.*healed$/,
  ],
  ["the bridge down", ["ip link set hyper0 down"], /link hyper0 state is down.*healed$/],
  ["a port removed", ["ip link set TAP nomaster"], /port TAP is on no bridge.*hyper0; healed$/],
  ["a port down", ["ip link set TAP down"], /link TAP state is down.*healed$/],
  ["a port's MTU changed", ["ip link set TAP mtu 1300"], /link TAP mtu is 1300.*healed$/],
  ["the address removed", ["ip addr flush dev hyper0"], /address of hyper0 is absent.*healed$/],
  [
    "the address changed",
    ["ip addr add 10.9.9.9/24 dev hyper0", "ip addr del 192.168.123.1/24 dev hyper0"],
    /address of hyper0 is 10\.9\.9\.9\/24, should be 192\.168\.123\.1\/24.*healed$/,
  ],
  ["the MTU changed", ["ip link set hyper0 mtu 1400"], /link hyper0 mtu is 1400.*healed$/],
  [
    "forwarding off",
    ["sysctl -q -w net.ipv4.ip_forward=0"],
    /sysctl net\.ipv4\.ip_forward is 0, should be 1; healed$/,
  ],
];

for (const [what, commands, expected] of harms)
  test.serial(`${what}: reported and healed, and traffic flows again`, async (t) => {
    const { host } = rig.lab;
    const pattern = new RegExp(expected.source.replaceAll("TAP", tap));
    const since = reported.length;
    const begun = performance.now();
    for (const command of commands)
      await host.run(...(command.replaceAll("TAP", tap).split(" ") as [string, ...string[]]));
    const event = await reportsOf(pattern, since);
    t.true(performance.now() - begun < healedWithinMs);
    t.true(event.drift?.healed);
    t.is(event.pod?.name, event.drift?.part.startsWith("port ") === true ? "web" : undefined);
    const { drift, parts } = await rig.client.node.diff({});
    t.false(drift, JSON.stringify(parts));
    // A changed port's neighbours are asked for anew.
    await host.run("ping", "-n", "-c", "1", "-W", "5", address);
  });

test.serial("what others added stays", async (t) => {
  t.regex(await rig.lab.host.run("ip", "addr", "show", "dev", "hyper0"), /10\.9\.9\.9\/24/);
  await rig.lab.host.run("ip", "addr", "del", "10.9.9.9/24", "dev", "hyper0");
});

test.serial("what podnet does itself is no drift", async (t) => {
  const since = reported.length;
  for (let i = 0; i < 5; i++) {
    await rig.client.pods.create({ spec: { name: `brief${i}` } });
    await rig.client.pods.delete({ idOrName: `brief${i}` });
  }
  await delay(1500);
  t.deepEqual(
    reported.slice(since).map(({ text }) => text),
    [],
  );
});

test.serial("drift is counted and logged, and podnet diff says when there is none", async (t) => {
  const metrics = await rig.lab.host.run(
    "curl",
    "-s",
    "--unix-socket",
    rig.daemon.socket,
    "http://podnet/metrics",
  );
  t.regex(metrics, /podnet_drifts_total\{kind="network",outcome="healed"\} [1-9]/);
  t.regex(metrics, /podnet_drifts_total\{kind="port",outcome="healed"\} [1-9]/);
  t.regex(rig.daemon.log(), /"component":"drift"[^\n]*iptables-nft filter/);
  const calm = await rig.daemon.tryPodnet("diff");
  t.is(calm.exitCode, 0, calm.stderr);
  t.regex(calm.stdout, /all as planned/);
});

test.serial(
  "a tap that another program deleted cuts its pod off, which runs on and says so",
  async (t) => {
    const since = reported.length;
    await rig.lab.host.run("ip", "link", "del", tap);
    const event = await reportsOf(/not healed/, since);
    t.is(event.pod?.name, "web");
    t.is(event.error?.code, "NETLINK_FAILED");
    const { pod } = await rig.client.pods.get({ idOrName: "web" });
    t.regex(pod?.reason ?? "", /its network is cut: Tap .* does not exist/);
    const diff = await rig.daemon.tryPodnet("diff", "--json");
    t.is(diff.exitCode, 1);
    t.regex(diff.stdout, /NETLINK_FAILED/);
    await rig.client.pods.delete({ idOrName: "web" });
    t.is((await rig.daemon.tryPodnet("diff")).exitCode, 0);
  },
);

test.serial("with whoever keeps undoing it podnet does not fight", async (t) => {
  const { host } = rig.lab;
  const since = reported.length;
  const over = new AbortController();
  const fight = (async () => {
    while (!over.signal.aborted) {
      await host.run("ip", "link", "set", "hyper0", "mtu", "1400");
      await delay(300);
    }
  })();
  let event: WatchPodsResponse;
  try {
    event = await reportsOf(/keeps undoing it/, since);
  } finally {
    over.abort();
    await fight;
  }
  t.is(event.drift?.pauseMs, 10_000);
  const heals = reported.length;
  await host.run("ip", "link", "set", "hyper0", "mtu", "1400");
  await delay(2000);
  t.is(reported.length, heals, "and it is left alone meanwhile");
  const diff = await rig.daemon.tryPodnet("diff");
  t.is(diff.exitCode, 1);
  t.regex(diff.stdout, /link hyper0 mtu +1400 +1500/);
  const metrics = await host.run(
    "curl",
    "-s",
    "--unix-socket",
    rig.daemon.socket,
    "http://podnet/metrics",
  );
  t.regex(metrics, /podnet_drift_alarms_total\{kind="network"\} 1/);
});

test.serial("without looks nothing is healed, and diff shows it all the same", async (t) => {
  await rig.restart("stop", { PODNET_DRIFT_S: "0" });
  t.is((await rig.daemon.tryPodnet("diff")).exitCode, 0, "a start repairs");
  await rig.lab.host.run("ip", "link", "set", "hyper0", "mtu", "1400");
  await delay(1000);
  t.true((await rig.client.node.diff({})).drift);
});
