/** What becomes of pods that take their network from CNI plugins: no guest is needed for it. */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { processState } from "../../linux/processes/proc.ts";
import { until } from "../lab/until.ts";
import { first, openPodCniRig, type PodCniRig } from "./pod-cni-rig.ts";
import { eventually, openStandInRig } from "./standin-rig.ts";

let cni: PodCniRig;
test.serial.before(async () => {
  cni = await openPodCniRig(openStandInRig);
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

test.serial("what fails or hangs in a list is undone, and said", async (t) => {
  cni.vendorPlugin(
    "fails",
    `[ $CNI_COMMAND = DEL ] || { echo '{"code":11,"msg":"not now"}'; exit 1; }`,
  );
  // The shell waits for a child: plugins have some.
  cni.vendorPlugin("hangs", `[ $CNI_COMMAND = DEL ] || { sleep 60; exit 1; }`);
  const links = await cni.ip("-o link show type veth");
  for (const [type, code, message] of [
    ["fails", "COMMAND_FAILED", /plugin fails failed at ADD: not now/],
    ["hangs", "DEADLINE_EXCEEDED", /took longer than 6000 ms/],
  ] as const) {
    cni.writeList("20-bad.conflist", "bad", cni.bridge("bad", "10.68.0.0/24"), { type });
    const interfaces = [{ cni: { list: "bad" } }];
    const begun = performance.now();
    const error = await t.throwsAsync(cni.rig.client.pods.create({ spec: { interfaces } }), {
      message,
    });
    t.true(performance.now() - begun < 30_000);
    t.is((error as { code?: string } | undefined)?.code, code);
    t.deepEqual(cni.held("bad"), []);
    t.deepEqual(cni.sandboxes(), []);
    t.is(await cni.ip("-o link show type veth"), links);
  }
  const { pods } = await cni.rig.client.pods.list({});
  t.deepEqual(pods, []);
  const none = { interfaces: [{ cni: { list: "none" } }] };
  await t.throwsAsync(cni.rig.client.pods.create({ spec: none }), {
    message: /no list of CNI plugins for a network "none"/,
  });
});

test.serial(
  "a pod that is stopped gives its network back, and gets one when it starts",
  async (t) => {
    cni.writeList("30-net.conflist", "again", cni.bridge("again", "10.67.0.0/24"));
    const interfaces = [{ cni: { list: "again" } }];
    await cni.rig.client.pods.create({ spec: { name: "stopped", interfaces } });
    await cni.rig.client.pods.stop({ idOrName: "stopped", force: true });
    const { pod: stopped } = await cni.rig.client.pods.get({ idOrName: "stopped" });
    t.deepEqual(first(stopped).addresses, []);
    t.deepEqual([cni.held("again"), cni.sandboxes()], [[], []]);
    const { pod } = await cni.rig.client.pods.start({ idOrName: "stopped" });
    t.deepEqual(first(pod).addresses, ["10.67.0.3/24"]);
    await cni.rig.client.pods.delete({ idOrName: "stopped", force: true });
    t.deepEqual([cni.held("again"), cni.sandboxes()], [[], []]);
  },
);

test.serial(
  "what others take of a pod's link is put back, and reported with the pod",
  async (t) => {
    const { client, daemon } = cni.rig;
    cni.writeList("60-net.conflist", "kept", cni.bridge("kept", "10.64.0.0/24"));
    const spec = { name: "kept", interfaces: [{ cni: { list: "kept" } }] };
    const { pod } = await client.pods.create({ spec });
    const { netns } = first(pod);
    const drift = async (after: bigint): Promise<string> =>
      (await eventually(client, ({ text }) => text.startsWith("joined port"), after)).text;
    const upToNow = async (): Promise<bigint> => (await client.pods.list({})).cursor;
    for (const [harm, says] of [
      ["tc qdisc del dev eth0 ingress", /what comes in by eth0 is not led on.*; healed$/],
      ["ip link set eth0 down", /link eth0 state is down, should be up.*; healed$/],
    ] as const) {
      const after = await upToNow();
      await cni.inside(netns, harm);
      t.regex(await drift(after), says);
    }
    const { drift: drifted, parts } = await client.node.diff({});
    t.false(drifted);
    const part = parts.find(({ part: key }) => key.startsWith("joined port"));
    t.is(part?.pod, "kept");
    t.regex(part?.planned.join("; ") ?? "", /what comes in by eth0 is led to pn/);

    // What cannot be healed is reported once, for as long as it is so; the pod says what it lacks.
    const before = await upToNow();
    await cni.inside(netns, "ip link set eth0 down");
    await cni.inside(netns, "ip link set eth0 name eth7");
    t.regex(await drift(before), /not healed: There is no Ethernet link "eth0"/);
    const { pod: cut } = await client.pods.get({ idOrName: "kept" });
    t.regex(cut?.reason ?? "", /^its network is cut: There is no Ethernet link/);
    await delay(2500);
    const reported = daemon.log().match(/not healed: There is no Ethernet link/g);
    t.is(reported?.length, 1);
    await cni.inside(netns, "ip link set eth7 name eth0");
    await until("the pod's recovery", async () => {
      const { pod: well } = await client.pods.get({ idOrName: "kept" });
      return well?.reason === "";
    });
    await cni.inside(netns, "ip -o link show up eth0");
    await client.pods.delete({ idOrName: "kept", force: true });
    t.deepEqual([cni.held("kept"), cni.sandboxes()], [[], []]);
  },
);

test.serial("such a pod is counted, captured and verified as others are", async (t) => {
  const { client, lab, daemon } = cni.rig;
  const sum = async (): Promise<number> => {
    const socket = ["--unix-socket", daemon.socket, "http://p/metrics"];
    const text = await lab.host.run("curl", "-s", ...socket);
    return Number(/^podnet_traffic_packets_total\{direction="rx"\} (\d+)$/m.exec(text)?.[1]);
  };
  cni.writeList("70-net.conflist", "seen", cni.bridge("seen", "10.63.0.0/24"));
  const spec = { name: "seen", interfaces: [{ cni: { list: "seen" } }] };
  const { pod } = await client.pods.create({ spec });
  const { netns } = first(pod);
  const ask = (): Promise<boolean> => lab.host.reaches("10.63.0.2");
  const received = async (): Promise<bigint> => {
    for await (const { pods } of client.pods.stats({ idOrName: "seen" }))
      return pods[0]?.interfaces[0]?.rxPackets ?? -1n;
    return -1n;
  };
  const sumBefore = await sum();
  const before = await received();
  t.true(before >= 0n, "there are counters");
  const ended = new AbortController();
  let captured = 0;
  try {
    const asked = { idOrName: "seen", maxPackets: 1n };
    for await (const { data } of client.pods.capture(asked, { signal: ended.signal })) {
      if (captured === 0) void ask();
      captured += data.length;
    }
  } finally {
    ended.abort();
  }
  t.true(captured > 24 + 16, "a header and a frame");
  await until("what it was asked", async () => (await received()) > before);
  await until("the sum of all pods", async () => (await sum()) > sumBefore);

  const { checks, ok } = await client.pods.verify({ idOrName: "seen" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  t.is(checks.filter(({ subject }) => subject.startsWith("link eth0 of ")).length, 3);
  await cni.inside(netns, "ip link set eth0 mtu 1300");
  const wrong = (await client.pods.verify({ idOrName: "seen" })).checks.filter((each) => !each.ok);
  t.regex(wrong.map(({ subject }) => subject).join(), /^link eth0 of pn\w+ mtu$/);
  t.like(wrong[0], { wanted: "1450", found: "1300" });
  await client.pods.delete({ idOrName: "seen", force: true });
});

test.serial("plugins are asked for CHECK, and what they complain of is reported", async (t) => {
  const { client } = cni.rig;
  const complains = path.join(cni.lists, "complains");
  const reported = path.join(cni.lists, "reported.check");
  const result = `{"cniVersion":"1.0.0","ips":[],"dns":{}}`;
  cni.vendorPlugin(
    "minds",
    `[ $CNI_COMMAND = ADD ] && { echo '${result}'; exit; }
[ $CNI_COMMAND = CHECK ] || exit 0
cat >${reported}
[ ! -e ${complains} ] || { echo '{"cniVersion":"1.0.0","code":101,"msg":"not as I left it"}'; exit 1; }`,
  );
  const plugins = [{ type: "minds" }, cni.bridge("minds", "10.62.0.0/24")];
  const said = async (list: string, more: object = {}) => {
    cni.writeList("80-net.conflist", list, ...plugins);
    const written = JSON.parse(readFileSync(path.join(cni.lists, "80-net.conflist"), "utf8"));
    const text = JSON.stringify({ ...written, ...more });
    writeFileSync(path.join(cni.lists, "80-net.conflist"), text);
    const spec = { name: list, interfaces: [{ cni: { list } }] };
    const { pod } = await client.pods.create({ spec });
    rmSync(path.join(cni.lists, "80-net.conflist"));
    const ask = async () => {
      const { checks } = await client.pods.verify({ idOrName: list });
      return checks.filter(({ source }) => source === "cni");
    };
    const before = await ask();
    writeFileSync(complains, "");
    const after = await ask();
    rmSync(complains);
    await client.pods.delete({ idOrName: list, force: true });
    return { before, after, id: pod?.id };
  };
  const { before, after, id } = await said("asked");
  const subject = `CHECK of asked for ${id}-0`;
  t.like(before, [{ subject, ok: true, found: "as ADD left it" }]);
  const found = "The CNI plugin minds failed at CHECK: not as I left it (code 101)";
  t.like(after, [{ subject, ok: false, found }]);
  t.like(JSON.parse(readFileSync(reported, "utf8")), {
    name: "asked",
    prevResult: { ips: [{ address: "10.62.0.2/24" }] },
  });
  for (const more of [{ disableCheck: true }, { cniVersion: "0.3.1" }]) {
    const silent = await said("silent", more);
    t.deepEqual([silent.before, silent.after], [[], []], JSON.stringify(more));
  }
});

test.serial("no ARP and routes' attributes are taken over from a link", async (t) => {
  const { client } = cni.rig;
  for (const words of [
    "netns add odd",
    "link add vodd type veth peer name eth0 netns odd",
    "-n odd address add 10.61.0.2/24 dev eth0",
    "-n odd link set eth0 arp off up",
    "-n odd route add 10.71.0.0/16 dev eth0 src 10.61.0.2 mtu 1300 advmss 1200",
  ])
    await cni.ip(words);
  const spec = { name: "odd", interfaces: [{ cni: { netns: "/run/netns/odd" } }] };
  // (That the guest has all of it is compared before it runs.)
  const { pod } = await client.pods.create({ spec });
  t.is(pod?.reason, "");
  const db = new DatabaseSync(path.join(cni.rig.daemon.stateDir, "state.db"), { readOnly: true });
  const row = db.prepare("SELECT observed FROM pods WHERE name = 'odd'").get();
  db.close();
  const observed = JSON.parse(String(row?.["observed"]));
  t.like(observed.interfaces[0], { name: "eth0", noArp: true });
  const route = { destination: "10.71.0.0/16", source: "10.61.0.2", mtu: 1300, advmss: 1200 };
  t.like(observed.routes[0], route);
  await client.pods.delete({ idOrName: "odd", force: true });
  await cni.ip("netns del odd");
});

test.serial("podnet's own plugin sets a pod up as any other does", async (t) => {
  const { rig } = cni;
  const socket = `${rig.daemon.runDir}/cni.sock`;
  cni.writeList("50-own.conflist", "own", { type: "podnet-cni", socket });
  const spec = { name: "own", interfaces: [{ cni: { list: "own" } }] };
  const { pod } = await rig.client.pods.create({ spec });
  const { mac, addresses, netns } = first(pod);
  t.regex(addresses.join(), /^192\.168\.123\.\d+\/24$/);
  // (Made of the address, as the plugin's are.)
  t.regex(mac, /^0a:58:c0:a8:7b:/);
  const attached = async (): Promise<readonly string[]> =>
    (await rig.client.cni.list({})).attachments.map(({ containerId }) => containerId);
  t.deepEqual(await attached(), [`${pod?.id}-0`]);
  t.regex(await cni.rig.lab.host.run("nsenter", `--net=${netns}`, "ip", "address"), /eth0/);
  await rig.restart("kill");
  await cni.rig.client.pods.delete({ idOrName: "own", force: true });
  t.deepEqual(cni.sandboxes(), []);
  await until("the attachment's end", async () => (await attached()).length === 0);
});

test.serial("a stopped pod keeps no MAC from who gets its address, made of it", async (t) => {
  const { rig } = cni;
  const socket = `${rig.daemon.runDir}/cni.sock`;
  const capabilities = { ips: true };
  cni.writeList("51-asked.conflist", "asked", { type: "podnet-cni", socket, capabilities });
  const ips = { capabilities: JSON.stringify({ ips: ["192.168.123.50/24"] }) };
  const create = async (name: string): Promise<string> => {
    const spec = { name, interfaces: [{ cni: { list: "asked", ...ips } }] };
    return first((await rig.client.pods.create({ spec })).pod).mac;
  };
  const mac = await create("early");
  await rig.client.pods.stop({ idOrName: "early", force: true });
  await until("its address", async () => (await rig.client.cni.list({})).attachments.length === 0);
  t.is(await create("late"), mac);
  for (const idOrName of ["early", "late"]) await rig.client.pods.delete({ idOrName, force: true });
});

test.serial(
  "a namespace that podnetd does not see any more is given back without it",
  async (t) => {
    // Its mounts end with it, as those of a service with ProtectSystem= do.
    await using hidden = await openPodCniRig(openStandInRig, (host) => host);
    const { rig } = hidden;
    const reported = path.join(hidden.lists, "reported");
    const result = `{"cniVersion":"1.0.0","by":"notes","ips":[],"dns":{}}`;
    hidden.vendorPlugin(
      "notes",
      `[ $CNI_COMMAND = DEL ] && { echo "netns=$CNI_NETNS"; cat; } >${reported} || echo '${result}'`,
    );
    const bridge = hidden.bridge("hidden", "10.65.0.0/24");
    hidden.writeList("10-net.conflist", "hidden", bridge, { type: "notes", note: 7 });
    const spec = { name: "hidden", interfaces: [{ cni: {} }] };
    const { pod } = await rig.client.pods.create({ spec });
    await rig.restart("kill");
    rmSync(path.join(hidden.lists, "10-net.conflist"));
    await until("a word about it", async () => {
      const { pod: again } = await rig.client.pods.get({ idOrName: "hidden" });
      t.is(again?.vm?.pid, pod?.vm?.pid, "it runs on");
      return (
        again?.reason.startsWith("its network is not looked after: Network namespace") === true
      );
    });
    await delay(2500);
    t.is(rig.daemon.log().match(/not healed: Network namespace/g)?.length, 1, "reported once");
    t.deepEqual(hidden.held("hidden"), ["10.65.0.2"]);
    await rig.client.pods.delete({ idOrName: "hidden", force: true });
    t.deepEqual([hidden.held("hidden"), hidden.sandboxes()], [[], []]);
    const [netns, ...config] = readFileSync(reported, "utf8").split("\n");
    t.is(netns, "netns=");
    t.like(JSON.parse(config.join("")), {
      name: "hidden",
      note: 7,
      prevResult: JSON.parse(result) as Record<string, unknown>,
    });
    await until(
      "the link's end",
      async () => !(await hidden.ip("-o link show")).includes("master br-hidden"),
    );
  },
);

for (const [what, seconds, order] of [
  ["waited for", 4, ["ADD begins", "ADD ends", "DEL"]],
  ["ended", 60, ["ADD begins", "DEL"]],
] as const)
  test.serial(`a plugin that a killed podnetd left running is ${what} before DEL`, async (t) => {
    const { rig } = cni;
    const reported = path.join(cni.lists, "reported.slow");
    writeFileSync(reported, "");
    cni.vendorPlugin(
      "slow",
      `[ $CNI_COMMAND = DEL ] && { echo DEL >>${reported}; exit; }
trap '' PIPE
echo ADD begins >>${reported}; sleep ${seconds}; echo ADD ends >>${reported}
echo '{"cniVersion":"1.0.0","ips":[],"dns":{}}'`,
    );
    cni.writeList("90-net.conflist", "slow", { type: "slow" });
    const spec = { name: "slow", interfaces: [{ cni: { list: "slow" } }] };
    const created = t.throwsAsync(rig.client.pods.create({ spec }));
    const lines = (): string[] => readFileSync(reported, "utf8").split("\n").filter(Boolean);
    await until("the plugin's beginning", async () => lines().length > 0);
    const calls = path.join(rig.daemon.runDir, "cni-calls");
    let plugin = "";
    // (It may be on its way before podnetd has written down which process it is.)
    await until("its being written down", async () => {
      const [file] = readdirSync(calls);
      if (file === undefined) return false;
      [plugin = ""] = readFileSync(path.join(calls, file), "utf8").split(" ");
      const at = `/proc/${plugin}/cmdline`;
      return existsSync(at) && readFileSync(at, "utf8").includes("/slow/");
    });
    await rig.restart("kill");
    await created;
    t.deepEqual((await rig.client.pods.list({})).pods, []);
    t.deepEqual(lines(), order as unknown as string[]);
    // (A zombie has ended: podnetd, its parent, was killed.)
    t.true([undefined, "Z"].includes(processState(Number(plugin))), "the plugin has ended");
    t.deepEqual(cni.sandboxes(), []);
    t.deepEqual(readdirSync(calls), []);
    rmSync(path.join(cni.lists, "90-net.conflist"));
  });

/** Where podnetd is killed, in a create and in a delete: each once, before the next is reported. */
const points = {
  create: [
    "commit:learn:before#1",
    "file:make a namespace:after#1",
    "command:loopback:before#1",
    "command:bridge:after#1",
    "command:portmap:before#1",
    "commit:learn:after#1",
    "ioctl:make tap:after#1",
    "commit:learn:after#2",
    "commit:running:before#1",
  ],
  delete: [
    "command:bridge:after#1",
    "command:portmap:after#1",
    "commit:learn:before#1",
    "file:remove a namespace:before#1",
    "commit:forget:before#1",
  ],
} as const;
const everyPoint = process.env["PODNET_TEST_FULL"] === "1";

for (const during of ["create", "delete"] as const)
  test.serial(`a podnetd that is killed in the middle of a ${during} leaves nothing`, async (t) => {
    const { rig } = cni;
    const portmap = { type: "portmap", capabilities: { portMappings: true } };
    cni.writeList("40-net.conflist", "killed", cni.bridge("killed", "10.66.0.0/24"), portmap);
    const capabilities = JSON.stringify({
      portMappings: [{ hostPort: 8066, containerPort: 80, protocol: "tcp" }],
    });
    const spec = { name: "killed", interfaces: [{ cni: { list: "killed", capabilities } }] };
    const make = () => rig.client.pods.create({ spec });
    const left = async (): Promise<unknown> => [
      cni.held("killed"),
      cni.sandboxes().length,
      await cni.rules(/8066/),
      (await cni.ip("-o link show")).includes("master br-killed"),
    ];
    const start = (point: string): Promise<void> =>
      rig.restart("stop", { PODNET_FAILPOINTS: `${point}=kill` });
    for (const point of everyPoint ? points[during] : points[during].slice(3, 4)) {
      if (during === "create") await start(point);
      else {
        await make();
        await start(point);
        t.not(((await left()) as readonly unknown[])[1], 0, "what is to go is there");
      }
      await t.throwsAsync(
        during === "create" ? make() : rig.client.pods.delete({ idOrName: "killed", force: true }),
        undefined,
        point,
      );
      await rig.restart("kill");
      t.deepEqual((await rig.client.pods.list({})).pods, [], point);
      t.deepEqual(await left(), [[], 0, [], false], point);
    }
  });
