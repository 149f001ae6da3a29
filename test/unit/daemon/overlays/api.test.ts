import { hostname } from "node:os";
import type { MessageInitShape } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import { Registry } from "prom-client";
import { connectPodnet } from "../../../../api/client.ts";
import { OverlayPhase, OverlayService } from "../../../../api/gen/podnet/v1/overlay_service_pb.ts";
import {
  type ListPodsResponseSchema,
  PodService,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../../api/service.ts";
import { type Ip, type IpPrefix, type Ipv4, parseCidr, parseIp } from "../../../../core/address.ts";
import { type ErrorCode, isPodnetError, PodnetError } from "../../../../core/errors.ts";
import { type IfName, parseNetworkName, type PodId, type PodName } from "../../../../core/names.ts";
import type { HostRecords } from "../../../../daemon/overlays/records/host-records.ts";
import { overlayMetrics } from "../../../../daemon/overlays/overlay-metrics.ts";
import type { OverlayControl, OverlayView } from "../../../../daemon/overlays/view.ts";
import { overlayService } from "../../../../daemon/api/overlay-service.ts";
import { remotePodView } from "../../../../daemon/api/remote-pod-view.ts";
import { noCounters } from "../../../../network/overlay/udp/counters.ts";
import { parsePrefix } from "../../../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../../../overlay/owner.ts";
import { hostIdOf, hostKey, recordsPrefix } from "../../../../overlay/pods/keys.ts";
import { hostRecordText } from "../../../../overlay/pods/record.ts";
import { RemotePods } from "../../../../overlay/pods/remote-pods.ts";
import type { Reservation } from "../../../../overlay/reservations.ts";
import { serve } from "../../api/fixtures/server.ts";
import { podnet } from "../../cli/fixtures/io.ts";
import { openLog } from "../../../../linux/log.ts";

// The service and the commands over overlays that do what the test says.

const hour = 3_600_000;

const flannel: OverlayView = {
  name: "flannel",
  phase: "held",
  manager: "etcd",
  networks: [parseCidr("10.5.0.0/16")],
  subnets: [parseCidr("10.5.34.0/24")],
  backend: "vxlan",
  publicIps: [parseIp("192.0.2.1")],
  mtu: 1450,
  expiresAt: Date.now() + 20.5 * hour,
  reserved: false,
  troubles: [],
  peers: 2,
  skippedKeys: 0,
  network: parseNetworkName("default"),
};
const kept: Reservation = {
  subnets: { v4: parseCidr("10.5.36.0/24"), v6: undefined },
  publicIp: parseIp("192.0.2.3") as Ipv4,
  publicIp6: undefined,
};

interface Script {
  views: OverlayView[];
  troubles: readonly string[];
  diff: readonly string[];
  readonly calls: string[];
}

/** Overlays as the script has them. */
const scripted = (script: Script): OverlayControl => ({
  list: () => script.views,
  get troubles() {
    return script.troubles;
  },
  nodes: () => [],
  reaches: () => undefined,
  leasedNodes: () =>
    Promise.resolve([
      {
        key: "/coreos.com/network/subnets/10.5.34.0-24",
        subnets: flannel.subnets,
        publicIps: flannel.publicIps,
        backend: "vxlan",
        expiresAt: Date.now() + 20.5 * hour,
        reserved: false,
        self: true,
      },
      {
        key: "/coreos.com/network/subnets/10.5.35.0-24",
        subnets: [parseCidr("10.5.35.0/24")],
        publicIps: [parseIp("192.0.2.2")],
        backend: "vxlan",
        expiresAt: Date.now() + 3.5 * hour,
        renewedAt: Date.now() - 20.5 * hour,
        reserved: false,
        self: false,
        reachable: true,
        rttMs: 0.42,
      },
      {
        key: "/coreos.com/network/subnets/10.5.36.0-24",
        subnets: [parseCidr("10.5.36.0/24")],
        publicIps: [parseIp("192.0.2.3")],
        backend: "vxlan",
        reserved: true,
        self: false,
        reachable: false,
      },
      {
        key: "/coreos.com/network/subnets/10.5.37.0-24",
        subnets: [parseCidr("10.5.37.0/24")],
        publicIps: [parseIp("192.0.2.4")],
        backend: "vxlan",
        reserved: false,
        self: false,
      },
    ]),
  leave(name) {
    script.calls.push(`leave ${name}`);
    return Promise.resolve();
  },
  join: (name, takeOver) =>
    void script.calls.push(`join ${name}${takeOver ? " and take over" : ""}`),
  planned: () => [],
  diff: () => Promise.resolve(script.diff),
  rest: () => Promise.resolve(() => {}),
  down: () => Promise.resolve([]),
  reservations: () => Promise.resolve([kept]),
  reserve(name, { publicIps, subnets }) {
    script.calls.push(`reserve ${name} ${subnets?.v4 ?? "own"} ${publicIps.join(" ")}`);
    if (publicIps.includes("192.0.2.9" as Ip))
      throw new PodnetError("SUBNET_TAKEN", "Another host has it");
    return Promise.resolve(kept);
  },
  unreserve(name, { v4, v6 }) {
    script.calls.push(`unreserve ${name} ${v4} ${v6}`);
    return Promise.resolve(v4 === kept.subnets.v4);
  },
});

/** What hosts are called: the second has said so. */
function knownHosts(): Pick<HostRecords, "remote" | "staleMs" | "withdraw"> {
  const prefix = recordsPrefix(parsePrefix("/coreos.com/network"));
  const remote = new RemotePods(prefix, hostIdOf(1 as OwnerId, "one"));
  const leases = ["/coreos.com/network/subnets/10.5.35.0-24"];
  const text = hostRecordText({ name: "two\u001b[31m", leases });
  remote.put({ key: hostKey(prefix, hostIdOf(2 as OwnerId, "two")), text });
  return { remote, staleMs: undefined, withdraw: () => Promise.resolve() };
}

async function open(overlays?: (script: Script) => OverlayControl) {
  const script: Script = { views: [flannel], troubles: [], diff: [], calls: [] };
  const log = openLog({ component: "test", level: "silent" });
  const parts =
    overlays === undefined
      ? { log }
      : { log, overlays: overlays(script), hostRecords: knownHosts() };
  const server = await serve((router) => addService(router, OverlayService, overlayService(parts)));
  const client = connectPodnet({ socket: server.h2 });
  return {
    script,
    overlays: client.overlays,
    run: (...line: string[]) => podnet(line, { socket: server.h2 }),
    async [Symbol.asyncDispose]() {
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function refused(
  t: ExecutionContext,
  call: Promise<unknown>,
  code: ErrorCode,
  field: string,
): Promise<void> {
  const error = await t.throwsAsync(call);
  t.true(isPodnetError(error, code), String(error));
  t.is((error as PodnetError).field, field);
}

test("a host in no overlay lists none, and every other call says so", async (t) => {
  await using none = await open();
  t.deepEqual((await none.overlays.list({})).overlays, []);
  const publicIps = ["192.0.2.1"];
  for (const call of [
    none.overlays.listNodes({}),
    none.overlays.diff({}),
    none.overlays.leave({}),
    none.overlays.join({}),
    none.overlays.listReservations({}),
    none.overlays.addReservation({ publicIps }),
    none.overlays.removeReservation({ subnets: ["10.5.36.0/24"] }),
    none.overlays.listNodes({ overlay: "flannel" }),
  ])
    await refused(t, call, "OVERLAY_NOT_FOUND", "overlay");
  const { err, code } = await none.run("nodes");
  t.is(code, 4);
  t.regex(err, /overlay\.etcd\.endpoints/);
  t.regex((await none.run("overlay")).err, /in no overlay/);
});

test("the only overlay need not be named; of several one must be, and one that is there", async (t) => {
  await using many = await open(scripted);
  await many.overlays.join({});
  await many.overlays.join({ overlay: "flannel", takeOver: true });
  many.script.views = [flannel, { ...flannel, name: "blue" }];
  await many.overlays.leave({ overlay: "blue" });
  t.deepEqual(many.script.calls, ["join flannel", "join flannel and take over", "leave blue"]);
  await refused(t, many.overlays.join({}), "INVALID_ARGUMENT", "overlay");
  await refused(t, many.overlays.join({ overlay: "red" }), "OVERLAY_NOT_FOUND", "overlay");
  await refused(t, many.overlays.join({ overlay: "No!" }), "INVALID_ARGUMENT", "overlay");
  t.is(many.script.calls.length, 3);
});

test("reservations: what is asked for is checked, each with its field", async (t) => {
  await using one = await open(scripted);
  const add = (publicIps: string[], subnets: string[] = []) =>
    one.overlays.addReservation({ publicIps, subnets });
  await refused(t, add([]), "INVALID_ARGUMENT", "public_ips");
  await refused(t, add(["192.0.2"]), "ADDRESS_INVALID", "public_ips[0]");
  await refused(t, add(["192.0.2.1", "192.0.2.2"]), "INVALID_ARGUMENT", "public_ips[1]");
  await refused(t, add(["192.0.2.1", "::1", "::2"]), "INVALID_ARGUMENT", "public_ips");
  await refused(t, add(["192.0.2.1"], ["10.5.0.1/24"]), "ADDRESS_INVALID", "subnets[0]");
  const twice = ["10.5.1.0/24", "10.5.2.0/24"];
  await refused(t, add(["192.0.2.1"], twice), "INVALID_ARGUMENT", "subnets[1]");
  await refused(t, one.overlays.removeReservation({}), "INVALID_ARGUMENT", "subnets");
  t.deepEqual(one.script.calls, []);
  const { reservation } = await add(["192.0.2.3"], ["fd00:5::/64", "10.5.36.0/24"]);
  t.like(reservation, { subnets: ["10.5.36.0/24"], publicIps: ["192.0.2.3"] });
  await add(["192.0.2.3"]);
  t.true((await one.overlays.removeReservation({ subnets: ["10.5.36.0/24"] })).existed);
  t.false((await one.overlays.removeReservation({ subnets: ["fd00:5::/64"] })).existed);
  t.deepEqual(one.script.calls, [
    "reserve flannel 10.5.36.0/24 192.0.2.3",
    "reserve flannel own 192.0.2.3",
    "unreserve flannel 10.5.36.0/24 undefined",
    "unreserve flannel undefined fd00:5::/64",
  ]);
});

test("podnet nodes: each host with its lease, its answer to a probe, and no escape codes", async (t) => {
  await using one = await open(scripted);
  const { out, err, code } = await one.run("nodes");
  t.is(code, 0);
  t.is(err, "");
  t.deepEqual(
    out.split("\n").map((line) => line.split(/ {2,}/)),
    [
      ["HOST", "SUBNET", "PUBLIC-IP", "BACKEND", "LEASE", "REACHABLE", "RTT"],
      [`${hostname()} (this host)`, "10.5.34.0/24", "192.0.2.1", "vxlan", "20 h left", "-", "-"],
      [
        "two\\u001b[31m",
        "10.5.35.0/24",
        "192.0.2.2",
        "vxlan",
        "20 h old, 3 h left",
        "yes",
        "0.42 ms",
      ],
      ["-", "10.5.36.0/24", "192.0.2.3", "vxlan", "reserved", "no", "-"],
      ["-", "10.5.37.0/24", "192.0.2.4", "vxlan", "unknown", "-", "-"],
      [""],
    ],
  );
  one.script.views = [{ ...flannel, staleMs: 61_000 }];
  t.regex((await one.run("nodes")).err, /not been heard for 61 s/);
  const json = JSON.parse((await one.run("nodes", "-o", "json")).out);
  t.like(json, { kind: "NodeList", staleMs: "61000" });
  t.like(json.items[1], { reachable: true, rttMs: 0.42 });
  t.false("reachable" in json.items[0]);
});

test("podnet overlay list: a line each, troubles below, and programs get it all", async (t) => {
  await using one = await open(scripted);
  one.script.views = [
    {
      ...flannel,
      phase: "waiting",
      networks: [],
      subnets: [],
      backend: "",
      mtu: 0,
      staleMs: 5000,
      troubles: ["etcd has no configuration"],
      skippedKeys: 3,
    },
  ];
  const { out } = await one.run("overlay", "list");
  t.regex(
    out,
    /flannel +waiting +default +- +- +- +- +192\.0\.2\.1 +2 +20 h left +etcd, away for 5 s\n/,
  );
  t.regex(out, /flannel: +etcd has no configuration\nflannel: +3 leases are passed over\n/);
  const { items } = JSON.parse((await one.run("overlays", "-o", "json")).out);
  t.like(items[0], { phase: "waiting", staleMs: "5000", skippedKeys: 3, network: "default" });
  const [overlay] = (await one.overlays.list({})).overlays;
  t.is(overlay?.phase, OverlayPhase.WAITING);
  // What is in the way of all of them stands below, also where there is none yet.
  one.script.troubles = ["etcd permits\u001b[31m nothing"];
  t.regex((await one.run("overlay")).out, /passed over\netcd permits\\u001b\[31m nothing\n$/);
  one.script.views = [];
  t.deepEqual(await one.run("overlay").then(({ out, err }) => [out, err]), [
    "etcd permits\\u001b[31m nothing\n",
    "",
  ]);
  t.like(JSON.parse((await one.run("overlay", "-o", "json")).out), {
    troubles: one.script.troubles,
  });
});

test("what podnetd's own tunnel has moved and what it has dropped is reported, in metrics too", async (t) => {
  await using one = await open(scripted);
  t.notRegex((await one.run("overlay")).out, /flannel0/);
  const device = "flannel0" as IfName;
  const counters = { ...noCounters(), sentPackets: 12, sentBytes: 3400, receivedPackets: 7 };
  one.script.views = [{ ...flannel, backend: "udp", tunnel: { device, counters } }];
  const idle = /flannel: +flannel0 sent 12 packets \(3\.4 kB\), received 7 \(0 B\), dropped none\n/;
  t.regex((await one.run("overlay")).out, idle);
  const dropped = { ...counters, malformed: 3, expired: 1 };
  one.script.views = [{ ...flannel, backend: "udp", tunnel: { device, counters: dropped } }];
  t.regex((await one.run("overlay")).out, /, dropped 1 expired, 3 malformed\n/);
  const { items } = JSON.parse((await one.run("overlay", "-o", "json")).out);
  t.like(items[0].tunnel, { sentPackets: "12", dropped: { malformed: "3", expired: "1" } });

  const control = { list: () => one.script.views, nodes: () => [], failures: () => [] };
  const shown = async (): Promise<string> => {
    const registry = new Registry();
    for (const metric of overlayMetrics(control)) registry.registerMetric(metric);
    return await registry.metrics();
  };
  const lines = await shown();
  const total = (what: string, label: string): string =>
    `podnet_overlay_tunnel_${what}_total{overlay="flannel",${label}}`;
  t.true(lines.includes(`${total("packets", 'direction="sent"')} 12\n`), lines);
  t.true(lines.includes(`${total("bytes", 'direction="sent"')} 3400\n`));
  t.true(lines.includes(`${total("dropped", 'reason="malformed"')} 3\n`));
  t.true(lines.includes(`${total("dropped", 'reason="lost"')} 0\n`));
  t.false(lines.includes('reason="sentPackets"'));
  // An overlay of another backend has none.
  one.script.views = [flannel];
  t.notRegex(await shown(), /tunnel_\w+_total\{/);
});

test("podnet overlay leave, join, diff, reserve, unreserve and reservations", async (t) => {
  await using one = await open(scripted);
  t.is((await one.run("overlay", "leave", "--overlay", "flannel")).out, "Left\n");
  t.regex((await one.run("overlay", "join")).out, /^Joining/);
  t.deepEqual(await one.run("overlay", "diff").then(({ out, code }) => [out, code]), [
    "As planned\n",
    0,
  ]);
  one.script.diff = ["route 10.5.35.0/24 is missing"];
  t.deepEqual(await one.run("overlay", "diff").then(({ out, code }) => [out, code]), [
    "route 10.5.35.0/24 is missing\n",
    1,
  ]);
  const reserve = await one.run("overlay", "reserve", "10.5.36.0/24", "--public-ip", "192.0.2.3");
  t.regex(reserve.out, /^SUBNET +PUBLIC-IP\n10\.5\.36\.0\/24 +192\.0\.2\.3\n$/);
  t.is((await one.run("overlay", "reserve", "10.5.36.0/24")).code, 2);
  t.is((await one.run("overlay", "reserve", "--public-ip", "192.0.2.9")).code, 5);
  t.is((await one.run("overlay", "reservations")).out, reserve.out);
  const unreserve = await one.run("overlay", "unreserve", "10.5.36.0/24");
  t.is(unreserve.out, "No longer reserved: 10.5.36.0/24\n");
  t.regex((await one.run("overlay", "unreserve", "10.5.37.0/24")).out, /was not reserved/);
  t.deepEqual(one.script.calls, [
    "leave flannel",
    "join flannel",
    "reserve flannel 10.5.36.0/24 192.0.2.3",
    "reserve flannel own 192.0.2.9",
    "unreserve flannel 10.5.36.0/24 undefined",
    "unreserve flannel 10.5.37.0/24 undefined",
  ]);
});

test("podnet list --all-hosts: where each pod is, how old that is, and what could not be read", async (t) => {
  const far = remotePodView({
    id: "abcdefghijkl" as PodId,
    name: "far" as PodName,
    state: "paused",
    createdMs: Date.now() - 5500,
    labels: { app: "front" },
    interfaces: [
      {
        network: parseNetworkName("default"),
        overlay: parseNetworkName("flannel"),
        name: "eth0" as IfName,
        addresses: ["10.5.35.2/24" as IpPrefix],
      },
    ],
    host: hostIdOf(2 as OwnerId, "two"),
    hostname: "two\u001b[31m",
  });
  let answer: MessageInitShape<typeof ListPodsResponseSchema> = { pods: [far] };
  const asked: boolean[] = [];
  await using server = await serve((router) =>
    addService(router, PodService, {
      list({ allHosts }) {
        asked.push(allHosts);
        return answer;
      },
    }),
  );
  const list = (...words: string[]) => podnet(["list", ...words], { socket: server.h2 });
  const { out, err } = await list("--all-hosts");
  const heading = "NAME ID STATE AGE HOST NETWORK ADDRESS REASON";
  t.is(out.split("\n")[0]?.replaceAll(/ +/g, " "), heading);
  t.regex(out, /^far +abcdefghijkl +paused +\d+ s +two\\u001b\[31m +default +10\.5\.35\.2$/m);
  t.is(err, "");
  answer = { pods: [far, { ...far, host: "" }], staleMs: 61_000n, skippedRecords: 2 };
  const stale = await list("--all-hosts");
  t.regex(stale.out, /\(this host\)/);
  t.regex(stale.err, /not been heard for 61 s.*\n2 records of others cannot be read\n/);
  const json = JSON.parse((await list("--all-hosts", "-o", "json")).out);
  t.like(json, { staleMs: "61000", skippedRecords: 2 });
  t.like(json.items[0], { state: "paused", host: "two\u001b[31m", labels: { app: "front" } });
  t.notRegex((await list()).out, /HOST/);
  t.deepEqual(asked, [true, true, true, false]);
});
