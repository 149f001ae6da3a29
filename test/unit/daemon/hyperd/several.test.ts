import { readdirSync } from "node:fs";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { SandboxSpec } from "../../../../api/pod-spec.ts";
import { validateCreate } from "../../../../api/validate/validate.ts";
import {
  type ContainerRow,
  getContainer,
  listContainers,
  putContainer,
} from "../../../../daemon/cri/containers/rows.ts";
import { until } from "../../../lab/until.ts";
import { type HyperRig, podOne, startHyperd, storeImage } from "./rig.ts";

// Containers in a pod's machine.

const two = (more: object = {}) =>
  podOne({
    containers: [
      {
        name: "web",
        image: "nginx:1.25",
        labels: { tier: "front" },
        envs: [{ env: "A", value: "b" }],
      },
      {
        name: "log",
        image: "nginx:1.25",
        entrypoint: ["/log"],
        command: ["-v"],
        StopSignal: "SIGINT",
      },
    ],
    ...more,
  });

async function started(more: object = {}): Promise<HyperRig> {
  const rig = await startHyperd();
  storeImage(rig);
  const { status, body } = await rig.send("POST", "/pod/create", two(more));
  if (status !== 201) throw new Error(body);
  return rig;
}

const lines = async (rig: HyperRig): Promise<readonly string[]> =>
  (JSON.parse((await rig.call("GET", "/list?item=container")).body) as { cData: string[] }).cData;
const states = async (rig: HyperRig): Promise<readonly string[]> =>
  (await lines(rig)).map((line) => line.split(":").slice(1).join(":"));
const idOf = async (rig: HyperRig, name: string): Promise<string> =>
  (await lines(rig)).find((line) => line.split(":")[1] === name)?.split(":")[0] ?? "";

test("several containers go hyperd's way: made by the create, started by the start, ended by the stop", async (t) => {
  await using rig = await started();
  t.deepEqual(await states(rig), ["web:pod-one:pending", "log:pod-one:pending"]);
  t.is((await rig.call("POST", "/pod/start?podId=pod-one")).status, 200);
  t.deepEqual(await states(rig), ["web:pod-one:running", "log:pod-one:running"]);
  const info = JSON.parse((await rig.call("GET", "/container/info?container=log")).body) as object;
  t.like(info, {
    podID: "pod-one",
    container: { name: "/log", image: "nginx:1.25", commands: ["/log", "-v"], args: ["-v"] },
    status: { phase: "running" },
  });
  const ids = [await idOf(rig, "web"), await idOf(rig, "log")];
  rig.node.containers.write(ids[0] ?? "", "one\ntwo\n");
  const logs = () => rig.raw("GET /container/logs?container=web&stdout=1&tail=1 HTTP/1.0\r\n\r\n");
  t.is((await logs()).body.slice(8), "two\n");
  rig.node.containers.end(ids[1] ?? "", { code: 3 });
  t.is((await rig.call("GET", "/exitcode?container=log")).body, "3\n");
  t.deepEqual(await states(rig), ["web:pod-one:running", "log:pod-one:failed"]);
  // One that has ended is started again, and the others run on.
  t.is((await rig.call("POST", "/container/start?container=log")).status, 204);
  t.deepEqual(await states(rig), ["web:pod-one:running", "log:pod-one:running"]);
  t.is((await rig.call("POST", "/container/kill?container=web&signal=10")).status, 201);
  t.is((await rig.call("POST", "/container/stop?container=log")).status, 201);
  t.is((await rig.call("GET", "/exitcode?container=log")).body, "130\n", "by SIGINT");
  t.is((await rig.call("POST", "/pod/stop?podId=pod-one")).status, 200);
  // They start again with their pod, as hyperd's do, under their ids.
  t.is((await rig.call("POST", "/pod/start?podId=pod-one")).status, 200);
  t.deepEqual(await states(rig), ["web:pod-one:running", "log:pod-one:running"]);
  t.deepEqual([await idOf(rig, "web"), await idOf(rig, "log")], ids);
  t.is((await logs()).body.slice(8), "two\n", "what was written before is kept");
  t.is((await rig.call("DELETE", "/pod?podId=pod-one")).status, 200);
  t.deepEqual(await lines(rig), []);
  for (const directory of ["hyperd-logs", "hyperd-log-records"])
    await until(
      "the logs to go",
      () => readdirSync(join(rig.config.stateDir, directory)).length === 0,
    );
});

test("containers are made in a pod that runs, and removed", async (t) => {
  await using rig = await started();
  const add = (more: object, podId = "pod-one") =>
    rig.send("POST", `/container/create?podId=${podId}`, { image: "nginx:1.25", ...more });
  const made = await add({
    name: "third",
    user: { name: "a", group: "b", additionalGroups: ["7"] },
  });
  t.is(made.status, 201, made.body);
  const { ID: id } = JSON.parse(made.body) as { ID: string };
  t.regex(id, /^[0-9a-f]{64}$/);
  t.is((await rig.call("POST", `/container/start?container=${id.slice(0, 12)}`)).status, 204);
  t.is((await states(rig))[2], "third:pod-one:running");
  for (const [more, status, words] of [
    [{ name: "third" }, 500, /has a container third already/],
    [{ image: "none" }, 404, /There is no image "none"/],
    [{ image: "" }, 500, /has no image/],
    [{ restartPolicy: "always" }, 500, /restarts the container of a pod/],
    [{ ports: [{ containerPort: 80 }] }, 500, /publishes no ports/],
    [{ volumes: [{ path: "/v", volume: "none" }] }, 500, /no volume "none"/],
    [{ files: [{ path: "/../x", detail: { content: "a" } }] }, 500, /not a path/],
    [{ user: { name: "a:b:c" } }, 500, /not a user/],
    [{ name: "../x" }, 500, /not usable/],
    [{ privileged: true }, 500, /there is no field privileged/],
  ] as const) {
    const { status: got, body } = await add(more);
    t.is(got, status, body);
    t.regex(body, words);
  }
  t.is((await lines(rig)).length, 3);
  t.is((await rig.call("POST", `/container/remove?container=third`)).status, 200);
  t.is((await rig.call("DELETE", "/container?container=log")).status, 200);
  t.deepEqual(await states(rig), ["web:pod-one:pending"]);
  t.is(rig.node.containers.all.size, 1);
  // The one container of a pod is its machine's root.
  await rig.send(
    "POST",
    "/pod/create",
    podOne({ id: "one", containers: [{ image: "nginx:1.25" }] }),
  );
  t.regex((await add({}, "one")).body, /is the root of its machine/);
  t.regex((await rig.call("DELETE", "/container?container=one")).body, /goes with its pod/);
});

test("volumes are directories that containers share, and files are laid into each", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  const mounts = { volumes: [{ path: "/data", volume: "v", readOnly: true }] };
  const pod = podOne({
    volumes: [{ name: "v" }],
    files: [{ name: "f", content: "hello" }],
    containers: [
      {
        name: "web",
        image: "nginx:1.25",
        ...mounts,
        files: [{ path: "/data/f", filename: "f", perm: "0600", user: "7" }],
      },
    ],
  });
  t.is((await rig.send("POST", "/pod/create", pod)).status, 201);
  t.deepEqual([...rig.node.containers.volumes.keys()], ["/data"]);
  const wanted = { path: "/data/f", mode: 0o600, uid: 7, data: Buffer.from("hello") };
  t.like(rig.node.containers.files, [wanted]);
  await rig.call("POST", "/pod/start?podId=pod-one");
  await rig.call("POST", "/pod/stop?podId=pod-one");
  t.is((await rig.call("POST", "/pod/start?podId=pod-one")).status, 200);
  t.like(rig.node.containers.files, [wanted, wanted], "again in the next machine");
  for (const [volumes, words, wrong] of [
    [[{ name: "v", source: "/etc", format: "vfs" }], /cannot be in a container/, 403],
    [[{ name: "v", format: "raw" }], /mounts no disks/, 500],
    [[{ name: "v" }, { name: "v" }], /there twice/, 500],
    [[{}], /has no name/, 500],
  ] as const) {
    const { status, body } = await rig.send("POST", "/pod/create", podOne({ id: "b", volumes }));
    t.is(status, wrong);
    t.regex(body, words);
  }
  t.is(rig.node.pods.list().length, 1);
});

test("a pod whose container cannot be made or started is not left behind", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  rig.node.failing.add("container create");
  const failed = await rig.send("POST", "/pod/create", two());
  t.is(failed.status, 500);
  t.deepEqual(rig.node.pods.list(), []);
});

test("programs belong to their container, and names of several containers choose none", async (t) => {
  await using rig = await started();
  await rig.call("POST", "/pod/start?podId=pod-one");
  const command = encodeURIComponent(JSON.stringify(["cat"]));
  const { body } = await rig.call("POST", `/exec/create?container=web&command=${command}`);
  const exec = JSON.parse(body) as string;
  const other = await rig.call("GET", `/exitcode?container=log&exec=${exec}`);
  t.regex(other.body, /^no exec exec-\w+ exists for container log/);
  using run = await rig.hijack(`/exec/start?container=web&exec=${exec}`);
  run.write("typed");
  run.end();
  t.is((await run.all).subarray(8).toString(), "typed");
  t.is(rig.guest.programs.at(-1)?.container, await idOf(rig, "web"));
  t.is((await rig.send("POST", "/pod/create", two({ id: "pod-two" }))).status, 201);
  const several = await rig.call("POST", "/container/kill?container=web&signal=9");
  t.is(several.status, 500);
  t.regex(several.body, /^web are several containers/);
  t.is((await rig.call("POST", "/pod/kill?podName=pod-one&container=web&signal=9")).status, 200);
});

test("one of several containers is attached to before its start, and its log is followed", async (t) => {
  await using rig = await started();
  using attached = await rig.hijack("/attach?container=web");
  attached.write("typed\n");
  using other = await rig.hijack("/attach?container=log");
  await rig.call("POST", "/pod/start?podId=pod-one");
  await until("the input", () => rig.node.containers.got.includes("typed\n"));
  const id = await idOf(rig, "web");
  const following = rig.raw("GET /container/logs?container=web&stdout=1&follow=1 HTTP/1.0\r\n\r\n");
  rig.node.containers.write(id, "hello\n");
  t.is((await rig.call("POST", "/tty/resize?container=web&h=30&w=90")).status, 200);
  t.true(rig.node.containers.got.includes("30x90"));
  rig.node.containers.end(id, { code: 7 });
  const frame = Buffer.from("\u0001\0\0\0\0\0\0\u0006hello\n", "latin1");
  t.deepEqual(await attached.all, frame);
  t.is((await following).body, frame.toString());
  t.is((await rig.call("GET", "/exitcode?container=web")).body, "7\n");
  const late = await rig.call("POST", "/tty/resize?container=web&h=30&w=90");
  t.regex(late.body, /^container web is stopped/);
  // With its container, or its pod, the connection ends.
  t.is((await rig.call("DELETE", "/container?container=log")).status, 200);
  t.is((await other.all).toString(), "");
  using last = await rig.hijack("/attach?container=web");
  await rig.call("DELETE", "/pod?podId=pod-one");
  t.is((await last.all).toString(), "");
});

test("containers are known after a start of podnetd, and those of Kubernetes are not touched", async (t) => {
  const first = await started();
  const { db, pods } = first.node;
  const asked = validateCreate(create(CreatePodRequestSchema, { spec: { name: "kube" } }), {
    network: first.config.network.name,
  });
  const sandbox = { metadata: { name: "a", uid: "u", namespace: "n", attempt: 0 } } as SandboxSpec;
  const kube = await pods.create(
    { ...asked, spec: { ...asked.spec, sandbox } },
    {
      signal: new AbortController().signal,
      progress: { started: () => {}, finished: () => {} },
    },
  );
  // As kubelet's call left it, whose podnetd was killed: to be removed, but not from here.
  const [own] = listContainers(db);
  putContainer(db, {
    ...(own as ContainerRow),
    id: "of-kubelet",
    podId: kube.id,
    state: "creating",
  });
  await first.call("POST", "/pod/start?podId=pod-one");
  const id = await idOf(first, "web");
  await first[Symbol.asyncDispose]();
  await using rig = await startHyperd(first.config);
  t.is(await idOf(rig, "web"), id);
  t.is((await lines(rig)).length, 2);
  t.is(getContainer(rig.node.db, "of-kubelet")?.state, "creating");
});
