import { connect } from "node:net";
import { Code, type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { until } from "../../../lab/until.ts";
import { PublicAPI, UserPodSchema } from "../../../../daemon/hyperd/gen/hyperd_pb.ts";
import { freePort } from "../../api/fixtures/free-port.ts";
import { digest, startHyperd, storeImage } from "./rig.ts";

/** As a Go client speaks to hyperd, on its unix socket. */
function open(socket: string): Client<typeof PublicAPI> & Disposable {
  const baseUrl = "http://localhost";
  const sessionManager = new Http2SessionManager(
    baseUrl,
    {},
    { createConnection: () => connect(socket) },
  );
  const transport = createGrpcTransport({ baseUrl, sessionManager });
  return Object.assign(createClient(PublicAPI, transport), {
    [Symbol.dispose]: () => sessionManager.abort(),
  });
}

const text = (data: string): Uint8Array<ArrayBuffer> => new Uint8Array(Buffer.from(data));

/** Messages that are sent as they are asked for. */
async function* sending<Message>(...messages: readonly Message[]): AsyncGenerator<Message> {
  for (const message of messages) {
    await Promise.resolve();
    yield message;
  }
}

async function joined(pieces: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  // Without the frames around the pieces.
  return Buffer.concat(all)
    .toString("latin1")
    .replaceAll(/[\u0001\u0002]\0{6}[^]/g, "");
}

const web = (more: object = {}) => ({
  id: "pod-web",
  containers: [{ name: "web", image: "nginx:1.25", labels: { tier: "front" } }],
  resource: { vcpu: 1, memory: 128 },
  ...more,
});

test("a pod goes its way by gRPC as by REST", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  storeImage(rig);
  t.is((await api.ping({})).hyperdStats, "OK");
  t.is((await api.version({})).version, "1.1.0");
  const port = await freePort();
  const portmappings = [{ containerPort: "80", hostPort: String(port), protocol: "tcp" }];
  const labels = { app: "web\u200b" };
  t.is((await api.podCreate({ podSpec: web({ portmappings, labels }) })).podID, "pod-web");
  const row = rig.node.pods.find("pod-web");
  t.like((await api.podList({})).podList[0], {
    podID: "pod-web",
    vmID: `vm-${row.id}`,
    status: "running",
    createdAt: BigInt(Math.floor(row.createdMs / 1000)),
    labels,
  });
  t.is((await api.containerList({})).containerList[0]?.status, "pending");
  await api.podStart({ podID: "pod-web" });
  const { podInfo } = await api.podInfo({ podID: "pod-web" });
  t.like(podInfo?.status, { phase: "Running", podIP: ["10.0.0.2/29"] });
  t.is(podInfo?.status?.containerStatus[0]?.phase, "running");
  t.like((await api.containerInfo({ container: "web" })).containerInfo?.container, {
    name: "/web",
    imageID: digest,
    labels: { tier: "front" },
  });
  t.like(await api.info({}), { pods: 1n, containers: 1, images: 1 });
  t.is((await api.portMappingList({ podID: "pod-web" })).portMappings[0]?.hostPort, String(port));
  await api.portMappingDel({ podID: "pod-web", portMappings: portmappings });
  t.deepEqual((await api.portMappingList({ podID: "pod-web" })).portMappings, []);
  await api.setPodLabels({ podID: "pod-web", labels: { app: "db" }, override: true });
  t.deepEqual(rig.node.pods.find("pod-web").spec.labels, { app: "db" });
  await api.podPause({ podID: "pod-web" });
  t.is((await api.vMList({})).vmList[0]?.status, "paused");
  await api.podUnpause({ podID: "pod-web" });
  await api.podSignal({ podID: "pod-web", signal: 10n });
  t.deepEqual(rig.guest.got, ["signal 10"]);
  rig.guest.obeys = true;
  await api.containerStop({ containerID: "web", timeout: 5n });
  t.is((await api.wait({ container: "web" })).exitCode, 143);
  t.is((await api.podStop({ podID: "pod-web" })).code, 2);
  await api.podRemove({ podID: "pod-web" });
  t.deepEqual((await api.podList({})).podList, []);
  t.deepEqual((await api.imageList({})).imageList[0]?.repoTags, ["nginx:1.25"]);
  t.is((await api.imageRemove({ image: "nginx:1.25" })).images.at(-1)?.deleted, digest);
});

test("stats are a machine's, by gRPC and by REST, in whole nanoseconds", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  await api.podCreate({ podSpec: { id: "pod-one" } });
  const usage = { cpuMs: 1500, memoryBytes: 4096, disks: [] };
  Object.assign(rig.node.vm, { usage: () => Promise.resolve(usage) });
  const { podStats } = await api.podStats({ podID: "pod-one" });
  t.is(podStats?.cpu?.usage?.total, 1_500_000_000n);
  t.is(podStats?.memory?.workingSet, 4096n);
  const nowNs = BigInt(Date.now()) * 1_000_000n;
  t.true((podStats?.timestamp ?? 0n) > nowNs - 60_000_000_000n);
  const { status, body } = await rig.call("GET", "/pod/stats?podId=pod-one");
  t.is(status, 200);
  t.regex(body, /^\{"cpu":\{"usage":\{"total":1500000000\}\},.*"timestamp":\d{19}\}\n$/);
  await api.podStop({ podID: "pod-one" });
  await t.throwsAsync(api.podStats({ podID: "pod-one" }), {
    message: /Can not get pod stats for non-running pod \(pod-one\)/,
  });
});

test("every method of the API is answered", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  for (const { localName, methodKind } of PublicAPI.methods) {
    if (methodKind !== "unary") continue;
    const call = (api as unknown as Record<string, (request: object) => Promise<object>>)[
      localName
    ];
    const outcome = await call?.({}).then(
      () => "answered",
      (error: unknown) => String(error),
    );
    // Connect's own words for a method without a handler.
    t.notRegex(outcome ?? "", /is not implemented|internal/, localName);
  }
});

test("programs and containers are spoken with by streams", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  storeImage(rig);
  await api.podCreate({ podSpec: web() });
  const attached = api.attach(sending({ containerID: "web", data: text("typed") }));
  const output = joined(
    (async function* () {
      for await (const { data } of attached) yield data;
    })(),
  );
  await api.podStart({ podID: "pod-web" });
  const { execID } = await api.execCreate({ containerID: "web", command: ["cat"] });
  const run = api.execStart(
    sending({ containerID: "web", execID, stdin: text("one") }, { stdin: text("two") }),
  );
  t.is(
    await joined(
      (async function* () {
        for await (const { stdout } of run) yield stdout;
      })(),
    ),
    "onetwo",
  );
  t.is((await api.wait({ container: "web", processId: execID })).exitCode, 0);
  let code = -1;
  const inVm = api.execVM(sending({ podID: "pod-web", command: ["fail", "42"] }));
  for await (const { exitCode } of inVm) code = exitCode;
  t.is(code, 42);
  await t.throwsAsync(api.wait({ container: "web", noHang: true }), { message: /has not ended/ });
  rig.guest.say("hello\n");
  rig.guest.end({ code: 3 });
  t.is(await output, "hello\n");
  t.deepEqual(rig.guest.got, ["typed"], "the input goes on when a caller only reads");
  t.is((await api.wait({ container: "web" })).exitCode, 3);
  const logs = api.containerLogs({ container: "web", stdout: true });
  t.is(
    await joined(
      (async function* () {
        for await (const { log } of logs) yield log;
      })(),
    ),
    "hello\n",
  );
  const pulled: string[] = [];
  for await (const { data } of api.imagePull({ image: "nginx", tag: "1.25" }))
    pulled.push(Buffer.from(data).toString());
  t.true(pulled.join("").includes(digest));
});

test("services of a pod are listed, added, updated and deleted by gRPC", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  const podID = "pod-one";
  await api.podCreate({ podSpec: { id: podID } });
  const one = {
    serviceIP: "10.73.0.80",
    servicePort: 80,
    protocol: "tcp",
    hosts: [{ hostIP: "192.0.2.7", hostPort: 8080 }],
  };
  const listed = async () => (await api.serviceList({ podID })).services;
  await api.serviceAdd({ podID, services: [one] });
  t.like(await listed(), [{ ...one, hosts: [{ hostIP: "192.0.2.7", hostPort: 8080 }] }]);
  await api.serviceUpdate({ podID, services: [{ ...one, servicePort: 81 }] });
  t.like(await listed(), [{ servicePort: 81 }]);
  await t.throwsAsync(api.serviceDelete({ podID, services: [one] }), { code: Code.NotFound });
  await api.serviceDelete({ podID, services: [{ ...one, servicePort: 81 }] });
  t.deepEqual(await listed(), []);
  await t.throwsAsync(api.serviceList({ podID: "none" }), { code: Code.NotFound });
});

test("containers are made in a pod that runs, and removed, by gRPC", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  storeImage(rig);
  const podID = "pod-one";
  const containers = ["a", "b"].map((name) => ({ name, image: "nginx:1.25" }));
  await api.podCreate({ podSpec: { id: podID, containers } });
  await api.podStart({ podID });
  const containerSpec = { name: "c", image: "nginx:1.25", entrypoint: ["/c"] };
  const { containerID } = await api.containerCreate({ podID, containerSpec });
  await api.containerStart({ container: containerID });
  const states = async () =>
    (await api.containerList({ podID })).containerList.map(
      (each) => `${each.containerName} ${each.status}`,
    );
  t.deepEqual(await states(), ["a running", "b running", "c running"]);
  const waiting = api.wait({ container: "c" });
  await api.containerSignal({ podID, containerID, signal: 9n });
  t.is((await waiting).exitCode, 137);
  await api.containerStop({ containerID: "b", timeout: 1n });
  await api.containerRemove({ containerId: "c" });
  t.deepEqual(await states(), ["a running", "b failed"]);
  await t.throwsAsync(api.containerCreate({ podID }), { code: Code.InvalidArgument });
  await api.podStop({ podID });
  t.is((await api.podInfo({ podID })).podInfo?.status?.containerStatus.length, 2);
});

test("a stop that may take for ever waits, and does not kill at once", async (t) => {
  // Timers of Node with more than 2^31 milliseconds end at once.
  await using rig = await startHyperd();
  using api = open(rig.socket);
  storeImage(rig);
  await api.podCreate({ podSpec: web() });
  await api.podStart({ podID: "pod-web" });
  const stopping = api.containerStop({ containerID: "web", timeout: 4_000_000n });
  await until("the signal", () => rig.guest.got.includes("signal 15"));
  t.is(await Promise.race([stopping.then(() => "ended"), delay(300, "waits")]), "waits");
  rig.guest.end({ code: 0 });
  await stopping;
  t.is(rig.node.pods.find("pod-web").state, "stopped");
});

test("what podnet cannot honour is refused by gRPC with a sentence, unknown fields too", async (t) => {
  await using rig = await startHyperd();
  using api = open(rig.socket);
  for (const call of [
    api.podCreate({ podSpec: web({ volumes: [{ name: "v", format: "raw", source: "/a" }] }) }),
    api.imageList({ filterArgs: '{"since":["a"]}' }),
  ])
    await t.throwsAsync(call, { code: Code.Unimplemented, message: /podnet / });
  const known = toBinary(UserPodSchema, create(UserPodSchema, { id: "pod-one" }));
  const unknown = new BinaryWriter().tag(77, WireType.Varint).uint32(1).finish();
  const podSpec = fromBinary(UserPodSchema, Buffer.concat([known, unknown]));
  await t.throwsAsync(api.podCreate({ podSpec }), {
    code: Code.InvalidArgument,
    message: /does not know field 77/,
  });
  await t.throwsAsync(api.podCreate({}), { code: Code.InvalidArgument });
  await t.throwsAsync(api.podCreate({ podID: "a", podSpec: { id: "b" } }), { message: /two ids/ });
  await t.throwsAsync(api.podInfo({ podID: "none" }), {
    code: Code.NotFound,
    message: /Can not find pod\(none\)/,
  });
  const image = await t.throwsAsync(api.podCreate({ podSpec: web() }));
  t.regex(String(image), /There is no image/);
  await t.throwsAsync(
    async () => {
      for await (const _each of api.imagePull({ image: "a", auth: { registrytoken: "b c" } }));
    },
    { code: Code.InvalidArgument },
  );
  await t.throwsAsync(
    async () => {
      for await (const _each of api.execStart(sending()));
    },
    { code: Code.InvalidArgument },
  );
  t.deepEqual(rig.node.pods.list(), []);
});
