import { statSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { SandboxSpec } from "../../../../api/pod-spec.ts";
import { validateCreate } from "../../../../api/validate/validate.ts";
import { request } from "../../../lab/hyperctl.ts";
import { podOne, startHyperd } from "./rig.ts";

test("a pod goes hyperd's way: create, list, info, stop, start, rm, each answered as hyperd does", async (t) => {
  await using rig = await startHyperd();
  t.is(statSync(rig.socket).mode & 0o777, 0o660);
  const created = await rig.send("POST", "/pod/create", podOne());
  t.is(created.status, 201);
  t.is(created.headers["content-type"], "application/json");
  t.is(created.body, '{"Cause":"","Code":0,"ID":"pod-one"}\n');
  const row = rig.node.pods.find("pod-one");
  t.deepEqual(row.spec.dns?.servers as unknown, ["8.8.8.8"]);

  const listed = await rig.call("GET", "/list?item=pod");
  t.is(listed.status, 201, "created, as hyperd has it");
  t.is(listed.body, `{"item":"pod","podData":["pod-one:pod-one:vm-${row.id}:running"]}\n`);
  t.is(
    (await rig.call("GET", "/list?item=vm")).body,
    `{"item":"vm","vmData":["vm-${row.id}:pod-one:associated"]}\n`,
  );
  t.is((await rig.call("GET", "/list?item=container")).body, '{"cData":[],"item":"container"}\n');

  const info = await rig.call("GET", "/pod/info?podName=pod-one");
  t.is(info.status, 200);
  t.like(JSON.parse(info.body), {
    podID: "pod-one",
    podName: "pod-one",
    kind: "Pod",
    apiVersion: "1.17",
    vm: `vm-${row.id}`,
    createdAt: Math.floor(row.createdMs / 1000),
    spec: { volumes: [], containers: [], labels: {}, vcpu: 1, memory: 128 },
    status: { phase: "Running", podIP: ["10.0.0.2/29"], hostIP: "10.0.0.1", containerStatus: [] },
  });

  const stopped = await rig.call("POST", "/pod/stop?podId=pod-one&stopVm=yes");
  t.is(stopped.status, 200);
  t.is(stopped.body, '{"Cause":"","Code":2,"ID":"pod-one"}\n', "E_VM_SHUTDOWN of runv");
  t.is(
    (await rig.call("GET", "/list?item=pod")).body,
    '{"item":"pod","podData":["pod-one:pod-one::failed"]}\n',
    "a stopped pod has failed",
  );
  t.like(JSON.parse((await rig.call("GET", "/pod/info?podName=pod-one")).body), {
    vm: "",
    status: { phase: "Failed", podIP: [] },
  });
  t.is((await rig.call("POST", "/pod/start?podId=pod-one")).body, created.body);
  t.like(JSON.parse((await rig.call("GET", "/pod/info?podName=pod-one")).body), {
    status: { phase: "Running", podIP: ["10.0.0.2/29"] },
  });
  t.is(
    (await rig.call("POST", "/pod/start?podId=pod-one")).status,
    200,
    "one that runs is started",
  );
  const removed = await rig.call("DELETE", "/pod?podId=pod-one");
  t.is(removed.status, 200);
  t.is(removed.body, '{"Cause":"","Code":0,"ID":"pod-one"}\n');
  t.deepEqual(rig.node.pods.list(), []);
});

test("every address of a removed pod can be had again, and by the next pod", async (t) => {
  // runv parsed `ip/length` as an address, released none, and a /24 was exhausted after 252 pods.
  await using rig = await startHyperd();
  for (let i = 0; i < 12; i++) {
    const { status, body } = await rig.send("POST", "/pod/create", podOne());
    t.is(status, 201, body);
    await rig.call("DELETE", "/pod?podId=pod-one");
  }
  const asked = podOne({ interfaces: [{ ip: "10.0.0.4" }] });
  t.is((await rig.send("POST", "/pod/create", asked)).status, 201);
  await rig.call("DELETE", "/pod?podId=pod-one");
  t.is((await rig.send("POST", "/pod/create", asked)).status, 201, "the same address, at once");
});

test("after a start of podnetd no address is given twice, and pods are as they were", async (t) => {
  // hyperd began with an empty allocator and gave 192.168.123.2 to a second pod.
  const first = await startHyperd();
  await first.send("POST", "/pod/create", podOne());
  const before = (await first.call("GET", "/pod/info?podName=pod-one")).body;
  await first[Symbol.asyncDispose]();
  await using second = await startHyperd(first.config);
  const { status, body } = await second.send("POST", "/pod/create", podOne({ id: "pod-two" }));
  t.is(status, 201, body);
  const two = JSON.parse((await second.call("GET", "/pod/info?podName=pod-two")).body) as {
    readonly status: { readonly podIP: readonly string[] };
  };
  t.deepEqual(two.status.podIP, ["10.0.0.3/29"]);
  const { podID, createdAt } = JSON.parse(before) as Record<string, unknown>;
  t.like(JSON.parse((await second.call("GET", "/pod/info?podName=pod-one")).body), {
    podID,
    createdAt,
  });
});

test("pause and unpause answer without a body, and the list says so", async (t) => {
  await using rig = await startHyperd();
  await rig.send("POST", "/pod/create", podOne());
  const paused = await rig.call("POST", "/pod/pause?podId=pod-one");
  t.is(paused.status, 204);
  t.is(paused.body, "");
  t.regex((await rig.call("GET", "/list?item=pod")).body, /:paused"/);
  t.regex((await rig.call("GET", "/list?item=vm")).body, /:paused"/);
  t.regex((await rig.call("GET", "/pod/info?podName=pod-one")).body, /"phase":"Paused"/);
  t.is((await rig.call("POST", "/pod/unpause?podId=pod-one")).status, 204);
  t.regex((await rig.call("GET", "/list?item=pod")).body, /:running"/);
});

test("labels are set, and changed with override alone", async (t) => {
  await using rig = await startHyperd();
  await rig.send("POST", "/pod/create", podOne({ labels: { app: "web" } }));
  const label = (labels: object, override: string) =>
    rig.call(
      "POST",
      `/pod/labels?podId=pod-one&labels=${encodeURIComponent(JSON.stringify(labels))}&override=${override}`,
    );
  const set = await label({ tier: "front" }, "false");
  t.is(set.status, 201);
  t.is(set.body, '{"Cause":"","Code":0,"ID":"pod-one"}\n');
  const refused = await label({ app: "db" }, "false");
  t.is(refused.status, 500);
  t.regex(refused.body, /^Can't update label app without override flag\n/);
  t.is((await label({ app: "db" }, "true")).status, 201);
  t.deepEqual(rig.node.pods.find("pod-one").spec.labels, { app: "db", tier: "front" });
});

test("ids with capitals, dots and underscores come back as they were given", async (t) => {
  await using rig = await startHyperd();
  // As `hyperctl run busybox:1.36` makes them.
  const ids = ["busybox-1.36-0123456789", "My_Pod", "my-pod"];
  for (const id of ids) {
    const { body } = await rig.send("POST", "/pod/create", podOne({ id }));
    t.is(body, `{"Cause":"","Code":0,"ID":"${id}"}\n`);
  }
  const { podData } = JSON.parse((await rig.call("GET", "/list?item=pod")).body) as {
    readonly podData: readonly string[];
  };
  t.deepEqual(
    podData.map((line) => line.split(":")[0]),
    ids,
  );
  t.regex((await rig.call("GET", "/list?item=pod&pod=My_Pod")).body, /My_Pod:My_Pod:vm-/);
  for (const id of ids) t.is((await rig.call("DELETE", `/pod?podId=${id}`)).status, 200);
  t.deepEqual(rig.node.pods.list(), []);
});

test("errors are sentences in plain text with hyperd's statuses and words", async (t) => {
  await using rig = await startHyperd();
  await rig.send("POST", "/pod/create", podOne());
  const cases: readonly [string, string, number, RegExp][] = [
    ["POST", "/pod/start?podId=nope", 500, /^Can not find pod\(nope\)\n/],
    ["POST", "/pod/stop?podId=nope", 500, /^Can not find pod\(nope\)\n/],
    ["POST", "/pod/pause?podId=", 500, /^Can not find pod\(\)\n/],
    ["DELETE", "/pod?podId=nope", 500, /^Can not find that Pod\(nope\)\n/],
    ["GET", "/pod/info?podName=nope", 500, /^Can not find pod\(nope\)\n/],
    ["GET", "/pod/nope/portmappings", 500, /^Can not find pod\(nope\)\n/],
    ["GET", "/list?item=pod&pod=nope", 500, /^Cannot find specified pod nope\n/],
    ["GET", "/list?item=pod&vm=vm-1", 500, /^Cannot find specified vm vm-1\n/],
    ["GET", "/list?item=image", 500, /^Can not support image list!\n/],
    ["POST", "/pod/stop?podId=pod-one&stopVm=no", 500, /without its machine\nUNSUPPORTED/],
    ["POST", "/pod/labels?podId=pod-one&labels=%7B", 500, /^labels is not JSON/],
    ["PUT", "/pod/pod-one/portmappings/replace", 400, /^Only add or delete operation/],
    ["POST", "/vm/create?cpu=1&mem=128", 500, /^podnet makes a machine with its pod/],
    ["POST", "/service/add?podId=pod-one", 500, /^services is not JSON/],
    ["GET", "/nothing", 404, /^404 page not found\n/],
    ["POST", "/list?item=pod", 404, /^404 page not found\n/],
    ["GET", "/pod//portmappings", 404, /^404 page not found\n/],
  ];
  for (const [method, path, status, body] of cases) {
    const answered = await rig.call(method, path);
    t.is(answered.status, status, path);
    t.regex(answered.body, body, path);
    t.is(answered.headers["content-type"], "text/plain; charset=utf-8", path);
  }
  const hostile = await rig.call("POST", "/pod/start?podId=%1b%5b2J%00");
  t.regex(hostile.body, /^Can not find pod\(\\u001b\[2J\\u0000\)\n/);
});

test("what podnet cannot honour in a pod is refused with a sentence, and leaves nothing", async (t) => {
  await using rig = await startHyperd();
  const web = { name: "web", image: "nginx" };
  const cases: readonly [object, RegExp][] = [
    [{ containers: [web, web] }, /"web" is there twice/],
    [
      { containers: [web, { ...web, name: "b", restartPolicy: "always" }] },
      /restarts the container/,
    ],
    [{ containers: [{ name: "web" }] }, /has no image/],
    [{ containers: [{ ...web, volumes: [{ path: "/a", volume: "v" }] }] }, /volumes/],
    [{ containers: [{ ...web, sysctl: { a: "b" } }] }, /sysctls/],
    [{ containers: [{ ...web, ulimits: [{ Name: "nofile", Hard: 1, Soft: 1 }] }] }, /ulimits/],
    [{ containers: [{ ...web, logPath: "/x" }] }, /path/],
    [{ containers: [{ ...web, user: { name: "a", additionalGroups: ["b"] } }] }, /groups/],
    [{ containers: [{ ...web, restartPolicy: "sometimes" }] }, /restart policy "sometimes"/],
    [{ containers: [{ ...web, files: [{ path: "/a", filename: "f" }] }] }, /no file "f"/],
    [{ volumes: [{ name: "v", source: "/srv", driver: "vfs" }] }, /volumes/],
    [{ volumes: [{ name: "v", source: "/dev/sda", format: "raw" }] }, /mounts no disks/],
    [{ volumes: [{ name: "v", option: { user: "a" } }] }, /mounts no disks/],
    [{ files: [{ name: "f" }, { name: "f" }] }, /"f" is there twice/],
    [{ interfaces: [{ id: "eth7" }] }, /ids of interfaces/],
    [{ containers: [{ ...web, id: "a" }] }, /ids of containers/],
    [{ containers: [{ ...web, envs: [{ env: "A" }, { env: "A" }] }] }, /"A" is there twice/],
    [{ services: [{ serviceIP: "10.1.1.1" }] }, /0 is not a port/],
    [{ labels: JSON.parse('{"__proto__":"a"}') as object }, /__proto__ cannot be a key/],
    [{ portmappingWhiteLists: { internalNetworks: ["10.0.0.0/99"] } }, /10\.0\.0\.0\/99/],
    [{ portmappingWhiteLists: { externalNetworks: ["example.org"] } }, /example\.org/],
    [{ log: { type: "fluentd", config: {} } }, /output of a container itself/],
    [{ type: "service-discovery" }, /type/],
    [{ interfaces: [{ bridge: "br9" }] }, /if configured a bridge, must specify the IP address/],
    [{ dns: ["example.org"] }, /example\.org/],
    [{ hostname: "x".repeat(64) }, /Hostname/],
    [{ id: "a:b" }, /not usable as a pod's id/],
    [{ id: "../etc" }, /not usable as a pod's id/],
    [{ resource: { vcpu: 1, memory: 1 } }, /1 MiB/],
    [{ resource: { vcpu: -1 } }, /resource\.vcpu/],
    [{ colour: "red" }, /no field colour/],
    [{ portmappings: [{ containerPort: "80", hostPort: "8000-8009" }] }, /one of the host ports/],
    [{ portmappings: [{ containerPort: "80-90", hostPort: "80" }] }, /1 host ports cannot lead/],
    [{ portmappings: [{ containerPort: "x", hostPort: "80" }] }, /"x" is neither a port/],
    [{ portmappings: [{ containerPort: "80", hostPort: "8080", protocol: "icmp" }] }, /icmp/],
    [{ portmappings: [{ containerPort: 80, hostPort: 8080 }] }, /containerport/],
  ];
  for (const [more, sentence] of cases) {
    const { status, body } = await rig.send("POST", "/pod/create", podOne(more));
    t.is(status, 500, JSON.stringify(more));
    t.regex(body, sentence);
  }
  t.deepEqual(rig.node.pods.list(), []);
});

test("a body that is no pod is refused, however it is sent", async (t) => {
  await using rig = await startHyperd();
  const bodies = ["", "{", "[]", "null", '"pod"', "[".repeat(100_000), `[${"{},".repeat(9000)}{}]`];
  for (const body of bodies) {
    const { status } = await rig.raw(request("POST", "/pod/create", body));
    t.true([429, 500].includes(status), `${status} ${body.slice(0, 20)}`);
  }
  const text = await rig.raw(request("POST", "/pod/create"));
  t.regex(text.body, /^Content-Type specified \(text\/plain\) must be 'application\/json'\n/);
  const large = await rig.raw(request("POST", "/pod/create", `"${"x".repeat(2 << 20)}"`));
  t.is(large.status, 413);
  const chunks = `100000\r\n${"x".repeat(1 << 20)}\r\n`.repeat(2);
  const chunked = await rig.raw(
    `POST /pod/create HTTP/1.1\r\nHost: \r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`,
  );
  t.is(chunked.status, 413);
  t.true(rig.refusals.includes("request_bytes"));
  t.deepEqual(rig.node.pods.list(), []);
});

test("pods of Kubernetes are neither seen nor ended", async (t) => {
  await using rig = await startHyperd();
  const request = create(CreatePodRequestSchema, { spec: { name: "kube" } });
  const asked = validateCreate(request, { network: rig.config.network.name });
  const sandbox: SandboxSpec = {
    metadata: { name: "a", uid: "u", namespace: "n", attempt: 0 },
    labels: {},
    annotations: {},
    handler: "",
    logDirectory: "",
    namespaces: { network: 0, pid: 0, ipc: 0 },
  };
  const row = await rig.node.pods.create(
    { ...asked, spec: { ...asked.spec, sandbox } },
    {
      signal: new AbortController().signal,
      progress: { started: () => {}, finished: () => {} },
    },
  );
  t.is((await rig.call("GET", "/list?item=pod")).body, '{"item":"pod","podData":[]}\n');
  for (const id of ["kube", row.id])
    t.regex((await rig.call("DELETE", `/pod?podId=${id}`)).body, /^Can not find that Pod/);
  t.is(rig.node.pods.find("kube").state, "running");
});

test("the host answers for itself", async (t) => {
  await using rig = await startHyperd();
  for (const path of ["/_ping", "/v1.17/_ping"]) {
    const ping = await rig.raw(`GET ${path} HTTP/1.1\r\nHost: \r\n\r\n`);
    t.is(ping.status, 200);
    t.is(ping.body, "OK");
  }
  t.like(JSON.parse((await rig.call("GET", "/version")).body), { Version: "1.1.0" });
  t.like(JSON.parse((await rig.call("GET", "/info")).body), {
    Pods: 0,
    Containers: 0,
    Images: 0,
    DriverStatus: [],
  });
});
