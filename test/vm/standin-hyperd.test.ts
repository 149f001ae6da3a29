import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { callGrpc, decode } from "../lab/hyperd-grpc.ts";
import { type Answered, hyperctl, request } from "../lab/hyperctl.ts";
import { until } from "../lab/until.ts";
import type { Rig } from "./daemon-rig.ts";
import { openStandInRig } from "./standin-rig.ts";

// Clients of hyperd 1.1 on a real podnetd's socket. Written from what was recorded of hyperd and
// read in it, before its author had seen the server: paths, parameters, statuses and bodies.

let rig: Rig;
let directory: string;
let socket: string;

test.serial.before(async () => {
  directory = mkdtempSync(path.join(tmpdir(), "podnet-hyper-"));
  socket = path.join(directory, "hyper.sock");
  const network = '[network]\nbridge = "hyper0"\ncidr = "192.168.123.0/24"\n';
  rig = await openStandInRig(`quarantine_s = 0\n[hyperd]\nsocket = "${socket}"\n${network}`);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const hyper = () => hyperctl(socket);
const call = (method: string, target: string): Promise<Answered> => hyper().call(method, target);

/** A pod as `hyperctl create -p FILE` sends it: Go writes absent lists as null. */
const userPod = (id: string, more: object = {}): object => ({
  id,
  hostname: "",
  type: "",
  containers: null,
  resource: { vcpu: 1, memory: 128 },
  files: null,
  volumes: null,
  interfaces: null,
  labels: null,
  log: { type: "", config: null },
  services: null,
  dns: ["8.8.8.8"],
  portmappings: null,
  portmappingWhiteLists: null,
  ...more,
});

async function create(t: ExecutionContext, id: string, more: object = {}): Promise<void> {
  const { status, headers, body } = await hyper().send("POST", "/pod/create", userPod(id, more));
  t.is(status, 201, body);
  t.is(headers["content-type"], "application/json");
  t.deepEqual(JSON.parse(body), { Cause: "", Code: 0, ID: id });
}

/** An error as hyperd's REST writes it. */
function failed(t: ExecutionContext, { status, headers, body }: Answered, words: RegExp): void {
  t.is(status, 500, body);
  t.regex(headers["content-type"] ?? "", /^text\/plain/);
  t.regex(body, words);
}

const listed = async (item: "pod" | "vm" | "container", more = ""): Promise<readonly string[]> => {
  const { body } = await call("GET", `/list?item=${item}${more}`);
  const list = JSON.parse(body) as Readonly<Record<string, unknown>>;
  return list[item === "container" ? "cData" : `${item}Data`] as readonly string[];
};

test.serial("hyperctl's calls, in its order, are answered as hyperd answered them", async (t) => {
  const ping = await call("GET", "/_ping");
  t.is(ping.status, 200);
  t.regex(ping.body, /^OK/);
  t.is((await hyper().raw("GET /_ping HTTP/1.1\r\nHost: \r\n\r\n")).status, 200, "no version");
  t.is((await call("GET", "/version")).status, 200);
  t.is((await call("GET", "/info")).status, 200);

  await create(t, "pod-one");
  const list = await call("GET", "/list?item=pod");
  t.is(list.status, 201);
  const [line = ""] = await listed("pod");
  const [id, name, vm = "", status] = line.split(":");
  t.deepEqual([id, name, status], ["pod-one", "pod-one", "running"]);
  t.not(vm, "");
  t.deepEqual(await listed("pod", `&vm=${vm}`), [line]);
  t.deepEqual(await listed("pod", "&pod=pod-one"), [line]);
  t.deepEqual(await listed("vm"), [`${vm}:pod-one:associated`]);
  t.deepEqual(await listed("container", "&pod=pod-one"), []);

  const info = JSON.parse((await call("GET", "/pod/info?podName=pod-one")).body) as {
    readonly status: { readonly podIP: readonly string[] };
  };
  t.like(info, { podID: "pod-one", kind: "Pod", apiVersion: "1.17", vm, podName: "pod-one" });
  t.like(info, { spec: { vcpu: 1, memory: 128 }, status: { phase: "Running" } });
  t.regex(info.status.podIP[0] ?? "", /^192\.168\.123\.\d+\/24$/);

  // exec -m: as JSON in the query, with docker's frames around what comes.
  const command = encodeURIComponent(JSON.stringify(["echo", "hello"]));
  using taken = await hyper().hijack(`/execvm?pod=pod-one&command=${command}`);
  t.regex(taken.head, /^HTTP\/1\.1 101 UPGRADED\r\n/);
  t.regex(taken.head, /content-type: application\/vnd\.docker\.raw-stream/i);
  t.deepEqual(await taken.all, Buffer.from("\u0001\0\0\0\0\0\0\u0006hello\n", "latin1"));

  const mapping = [{ hostPort: "18080", containerPort: "80", protocol: "tcp" }];
  const ports = async () => (await call("GET", "/pod/pod-one/portmappings")).body;
  const change = (verb: string, what: unknown) =>
    hyper().send("PUT", `/pod/pod-one/portmappings/${verb}`, what);
  t.is((await change("add", mapping)).status, 204);
  t.deepEqual(JSON.parse(await ports()), {
    portMappings: [{ containerPort: "80", hostPort: "18080", protocol: "tcp" }],
  });
  failed(t, await change("add", mapping), /Host port &\{18080 18080\} has aleady been used/);
  t.is((await change("delete", mapping)).status, 204);
  t.deepEqual(JSON.parse(await ports()), { portMappings: [] });

  t.is((await call("POST", "/pod/pause?podId=pod-one")).status, 204);
  t.regex((await listed("pod"))[0] ?? "", /:paused$/);
  t.is((await call("POST", "/pod/unpause?podId=pod-one")).status, 204);
  const labels = encodeURIComponent(JSON.stringify({ a: "b" }));
  const labelled = await call("POST", `/pod/labels?podId=pod-one&labels=${labels}&override=false`);
  t.is(labelled.status, 201, labelled.body);

  const stopped = await call("POST", "/pod/stop?podId=pod-one&stopVm=yes");
  t.like(JSON.parse(stopped.body), { ID: "pod-one" });
  t.deepEqual(await listed("pod"), ["pod-one:pod-one::failed"]);
  t.is((await call("POST", "/pod/start?podId=pod-one")).status, 200);
  t.regex((await listed("pod"))[0] ?? "", /:running$/);
  const removed = await call("DELETE", "/pod?podId=pod-one");
  t.is(removed.status, 200);
  t.like(JSON.parse(removed.body), { ID: "pod-one", Code: 0 });
  t.deepEqual(await listed("pod"), []);
});

test.serial("what is not there is an error of 500 in hyperd's words", async (t) => {
  for (const [method, target] of [
    ["GET", "/pod/info?podName=none"],
    ["GET", "/pod/stats?podId=none"],
    ["POST", "/pod/start?podId=none"],
    ["POST", "/pod/pause?podId=none"],
    ["POST", "/pod/unpause?podId=none"],
    ["DELETE", "/pod?podId=none"],
    ["POST", "/pod/stop?podId=none&stopVm=yes"],
    ["GET", "/pod/none/portmappings"],
    ["POST", "/pod/labels?podId=none&labels=%7B%7D"],
    ["GET", "/service/list?podId=none"],
  ] as const)
    failed(t, await call(method, target), /^Can not find (?:that )?[Pp]od\(none\)/);
  for (const [method, target] of [
    ["GET", "/container/info?container=none"],
    ["GET", "/container/logs?container=none&stdout=yes"],
    ["POST", "/container/start?container=none"],
    ["POST", "/container/stop?container=none"],
    ["POST", "/container/kill?container=none&signal=9"],
    ["GET", "/exitcode?container=none&exec=x"],
  ] as const)
    failed(t, await call(method, target), /none/);
  t.is((await call("GET", "/nothing")).status, 404);
});

test.serial("frakti's calls by gRPC, field by number, are answered", async (t) => {
  const pod = [
    [1, "pod-two"],
    [2, "two"],
    [
      6,
      [
        [1, "app"],
        [2, "two"],
      ],
    ],
    [
      7,
      [
        [1, 1],
        [2, 128],
      ],
    ],
    [9, "9.9.9.9"],
    [
      13,
      [
        [2, "192.168.123.77/24"],
        [5, 1400],
      ],
    ],
    [
      16,
      [
        [1, "80"],
        [2, "18081"],
        [3, "tcp"],
      ],
    ],
  ] as const;
  const created = await callGrpc(socket, "PodCreate", [[1, pod]]);
  t.deepEqual(created, { status: 0, message: "", fields: [[1, "pod-two"]] });
  const [[, one] = []] = (await callGrpc(socket, "PodList", [])).fields;
  const fields = decode(Buffer.from(String(one), "latin1"));
  t.deepEqual(fields[0], [1, "pod-two"]);
  t.true(fields.some(([number, value]) => number === 4 && value === "running"));
  const info = await callGrpc(socket, "PodInfo", [[1, "pod-two"]]);
  t.regex(String(info.fields[0]?.[1]), /192\.168\.123\.77\/24/);
  t.is((await callGrpc(socket, "PodStop", [[1, "pod-two"]])).status, 0);
  t.is((await callGrpc(socket, "PodStart", [[1, "pod-two"]])).status, 0);
  t.is((await callGrpc(socket, "PodRemove", [[1, "pod-two"]])).status, 0);
  const gone = await callGrpc(socket, "PodInfo", [[1, "pod-two"]]);
  t.not(gone.status, 0);
  t.regex(gone.message, /^Can not find/);
});

test.serial("hostile names, queries and bodies are refused, and change nothing", async (t) => {
  await create(t, "victim");
  const before = await listed("pod");
  const post = (body: string) => hyper().raw(request("POST", "/pod/create", body));
  for (const id of [
    "../../etc/passwd",
    "..",
    "a/b",
    "a\0b",
    "a\nb",
    "-rf",
    "a".repeat(5000),
    "a:b",
  ])
    failed(t, await hyper().send("POST", "/pod/create", userPod(id)), /./);
  for (const body of [
    "",
    "null",
    "[]",
    '"pod"',
    "{",
    `${"[".repeat(200_000)}${"]".repeat(200_000)}`,
    `{"id":${"[".repeat(100_000)}${"]".repeat(100_000)}}`,
    '{"__proto__":{"id":"polluted"}}',
    '{"id":"one","constructor":{"prototype":{}}}',
    '{"id":"one"} {"id":"two"}',
    '{"id":"one","resource":{"vcpu":1e999}}',
    '{"id":"one","resource":{"memory":-1}}',
    '{"id":"one","resource":{"memory":9007199254740993}}',
    '{"id":"one","labels":{"__proto__":7}}',
    '{"id":"\\ud800"}',
  ]) {
    const { status, body: said } = await post(body);
    t.true(status >= 400 && status <= 500, `${body.slice(0, 60)}: ${status} ${said}`);
  }
  for (const target of [
    "/pod/info?podName=../pod",
    "/pod/info?podName=%",
    "/pod/info?podName=%ff",
    "/pod/info?podNames=victim",
    "/pod/../portmappings",
    "/pod/info",
    "/list?item=secrets",
    "/list?item=__proto__",
    "/container/info?container=__proto__",
  ])
    t.true((await call("GET", target)).status >= 400, target);
  for (const bad of ["[]", "{}", "[1]", '"ls"', "", "[", '[""]', '["a\\u0000b"]']) {
    const command = encodeURIComponent(bad);
    const { status, body } = await hyper().raw(
      `POST /execvm?pod=victim&command=${command} HTTP/1.1\r\nHost: \r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`,
    );
    t.true(status >= 400, `${bad}: ${status} ${body}`);
  }
  t.deepEqual(await listed("pod"), before);
  // A body that says it is a GiB is refused before it has come.
  const { status } = await hyper().raw(
    "POST /pod/create HTTP/1.1\r\nHost: \r\nContent-Length: 1073741824\r\nContent-Type: application/json\r\n\r\n{",
  );
  t.is(status, 413);
  await call("DELETE", "/pod?podId=victim");
});

test.serial("connections that vanish leave no program behind", async (t) => {
  await create(t, "left");
  const command = encodeURIComponent(JSON.stringify(["cat"]));
  for (let i = 0; i < 8; i++) {
    const taken = await hyper().hijack(`/execvm?pod=left&command=${command}`);
    taken.write("typed");
    taken[Symbol.dispose]();
  }
  // One that is gone before it has read that it was taken over.
  const early = connect(socket);
  early.on("error", () => {});
  early.write(
    `POST /execvm?pod=left&command=${command} HTTP/1.1\r\nHost: \r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`,
    () => early.destroy(),
  );
  await until("all programs to end", async () => {
    const { execs } = await rig.client.pods.listExecs({ idOrName: "left" });
    return execs.length === 0;
  });
  t.is((await call("DELETE", "/pod?podId=left")).status, 200);
});
