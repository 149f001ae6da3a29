import { execFile } from "node:child_process";
import { chmodSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { until } from "../../../lab/until.ts";
import { configuration } from "../fixtures/node.ts";
import { podOne, type HyperRig, startHyperd } from "./rig.ts";

const run = promisify(execFile);

/** Calls as another user, by curl. */
async function callAs(
  rig: HyperRig,
  uid: number,
  method: string,
  target: string,
  body = "",
): Promise<{ readonly status: number; readonly text: string }> {
  const curl = ["curl", "-sS", "-X", method, "--unix-socket", rig.socket, "-w", "\n%{http_code}"];
  const { stdout } = await run("setpriv", [
    `--reuid=${uid}`,
    `--regid=${uid}`,
    "--clear-groups",
    ...curl,
    ...(body === "" ? [] : ["-H", "content-type: application/json", "-d", body]),
    `http://hyper${target}`,
  ]);
  const at = stdout.lastIndexOf("\n");
  return { status: Number(stdout.slice(at + 1)), text: stdout.slice(0, at) };
}

test("callers have the roles of podnet's API: a viewer lists, and an operator creates", async (t) => {
  await using rig = await startHyperd(
    configuration({ "access.viewer": "uid:61001", "access.operator": "uid:61002" }),
  );
  chmodSync(path.dirname(rig.socket), 0o755);
  chmodSync(rig.socket, 0o666);
  const pod = JSON.stringify(podOne());
  for (const [uid, method, target, status] of [
    [61_001, "GET", "/list?item=pod", 201],
    [61_001, "POST", "/pod/create", 403],
    [61_001, "POST", "/pod/start?podId=pod-one", 403],
    [61_003, "GET", "/version", 403],
    [61_002, "POST", "/pod/create", 201],
    [61_001, "GET", "/container/logs?container=a&stdout=1", 403],
    [61_001, "GET", "/exitcode?container=a", 403],
    [61_002, "DELETE", "/pod?podId=pod-one", 200],
  ] as const) {
    const called = await callAs(rig, uid, method, target, target === "/pod/create" ? pod : "");
    t.is(called.status, status, `${uid} ${method} ${target}: ${called.text}`);
  }
  const bridge = podOne({ interfaces: [{ bridge: "br9", ip: "10.9.0.2/24" }] });
  const refused = await callAs(rig, 61_002, "POST", "/pod/create", JSON.stringify(bridge));
  t.is(refused.status, 403);
  t.regex(refused.text, /^Only administrators may use foreign bridges/);
  t.true(rig.refusals.includes("permission_denied"));
});

test("an operator can neither take nor give a label that policies rely on", async (t) => {
  await using rig = await startHyperd(configuration({ "access.operator": "uid:61002" }));
  chmodSync(path.dirname(rig.socket), 0o755);
  chmodSync(rig.socket, 0o666);
  const trusted = { "admin.podnet/trusted": "yes" };
  const create = (id: string, labels: object) => JSON.stringify(podOne({ id, labels }));
  const operator = (target: string, body = "") => callAs(rig, 61_002, "POST", target, body);
  const refused = await operator("/pod/create", create("one", trusted));
  t.is(refused.status, 403);
  t.regex(refused.text, /^Only administrators may set or remove labels that begin with admin/);
  t.deepEqual(rig.node.pods.list(), []);
  t.is((await operator("/pod/create", create("one", { role: "a" }))).status, 201);
  const label = (labels: object) =>
    `/pod/labels?podId=one&override=true&labels=${encodeURIComponent(JSON.stringify(labels))}`;
  t.is((await operator(label({ ...trusted, role: "b" }))).status, 403);
  t.deepEqual(rig.node.pods.find("one").spec.labels, { role: "a" }, "all of it or nothing");
  t.is((await rig.call("POST", label(trusted))).status, 201, "by root");
  t.is((await operator(label({ "admin.podnet/trusted": "no" }))).status, 403);
  t.is((await operator(label({ role: "b" }))).status, 201);
  t.deepEqual(rig.node.pods.find("one").spec.labels, { ...trusted, role: "b" });
});

test("methods of gRPC take the roles of their likes in REST", async (t) => {
  await using rig = await startHyperd(configuration({ "access.viewer": "uid:61001" }));
  chmodSync(path.dirname(rig.socket), 0o755);
  chmodSync(rig.socket, 0o666);
  for (const [uid, method, status] of [
    [61_001, "PodList", 200],
    [61_001, "PodCreate", 403],
    [61_001, "ExecCreate", 403],
    [61_003, "Ping", 403],
  ] as const) {
    const target = `/types.PublicAPI/${method}`;
    const called = await callAs(rig, uid, "POST", target, "{}");
    t.is(called.status, status, `${uid} ${method}: ${called.text}`);
  }
});

test("a caller who takes a connection over has its role looked at first", async (t) => {
  await using rig = await startHyperd(configuration({ "access.viewer": "uid:61001" }));
  chmodSync(path.dirname(rig.socket), 0o755);
  chmodSync(rig.socket, 0o666);
  await rig.send("POST", "/pod/create", podOne());
  const { stdout } = await run("setpriv", [
    "--reuid=61001",
    "--regid=61001",
    "--clear-groups",
    ..."curl -sS -i -X POST -H Connection:Upgrade -H Upgrade:tcp --unix-socket".split(" "),
    rig.socket,
    "-g",
    'http://hyper/execvm?pod=pod-one&command=["both"]',
  ]);
  t.regex(stdout, /^HTTP\/1\.1 403 /);
  t.deepEqual(rig.guest.programs, []);
});

test("a caller who does not read is cut off, and holds no other up", async (t) => {
  await using rig = await startHyperd(configuration({ "limits.stall_s": "1" }));
  await rig.send("POST", "/pod/create", podOne());
  const lines = [
    'POST /execvm?pod=pod-one&command=["flood"] HTTP/1.1',
    "Host: ",
    "Connection: Upgrade",
    "Upgrade: tcp",
  ];
  const socket = connect(rig.socket, () => socket.write(`${lines.join("\r\n")}\r\n\r\n`));
  socket.on("error", () => {});
  await until("the cut", () => rig.refusals.includes("slow_reader"));
  t.is((await rig.call("GET", "/_ping")).status, 200);
  const live = rig.node.pods.running("pod-one");
  await until("the program's end", () => live.execs.list().length === 0);
  socket.destroy();
});

test("bytes that are no request harm no other caller", async (t) => {
  await using rig = await startHyperd();
  await rig.send("POST", "/pod/create", podOne());
  const noise = [
    "\0".repeat(4096),
    "GET /list HTTP/1.1\r\n",
    "POST /execvm HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 9\r\n\r\n",
    "POST /attach?container=\0 HTTP/1.1\r\nHost: \r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
    `GET /${"a".repeat(70_000)} HTTP/1.1\r\nHost: \r\n\r\n`,
    "GET /list?item=pod HTTP/1.1\r\nHost: \r\n\r\nGET /list?item=pod HTTP/1.1\r\nHost: \r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  ];
  for (const bytes of noise) {
    const socket = connect(rig.socket, () => socket.end(bytes));
    socket.on("error", () => {});
    await new Promise((resolve) => {
      socket.resume().once("end", resolve).once("close", resolve);
      setTimeout(resolve, 1500);
    });
    socket.destroy();
  }
  t.regex((await rig.call("GET", "/list?item=pod")).body, /pod-one/);
});
