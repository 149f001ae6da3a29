import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { ContainerState, NamespaceMode } from "../../daemon/cri/gen/cri_pb.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { type CriClients, openCri } from "../lab/cri/client.ts";
import { until } from "../lab/until.ts";
import { type ClientStream, SpdyClient } from "../peers/spdy-client.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

// Containers of one sandbox as kubelet asks for them, in a real machine.

let directory: string;
let socket: string;
let rig: Rig;
let cri: CriClients;
let podSandboxId = "";

const sandbox = () => ({
  metadata: { name: "web", uid: "u-1", namespace: "default", attempt: 0 },
  hostname: "web-0",
  logDirectory: join(directory, "logs/default_web_u-1"),
  dnsConfig: { servers: ["10.96.0.10"], searches: [], options: [] },
});

test.serial.before(async () => {
  directory = mkdtempSync(join(tmpdir(), "podnet-cri-"));
  mkdirSync(join(directory, "logs"));
  mkdirSync(join(directory, "kubelet"));
  socket = join(directory, "cri.sock");
  const paths = `log_path = "${directory}/logs"\nmount_paths = ["${directory}/kubelet"]\n`;
  rig = await openRig(`quarantine_s = 0\n[cri]\nsocket = "${socket}"\n${paths}`);
  busyboxImage(directory);
  const archive = join(directory, "app.tar");
  const config = { Entrypoint: ["sh", "-c"], Cmd: ["sleep 1000"], Env: ["OF=image"], User: "web" };
  writeDockerArchive(archive, { layers: [tarOf(join(directory, "busybox"))], config });
  await rig.daemon.podnet("image", "import", archive, "app:1");
  cri = openCri(socket);
  ({ podSandboxId } = await cri.runtime.runPodSandbox({ config: sandbox() }));
});
test.serial.after.always(async () => {
  cri?.[Symbol.dispose]();
  await rig?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const asked = (name: string, more: object = {}) => ({
  podSandboxId,
  config: {
    metadata: { name, attempt: 0 },
    image: { image: "app:1" },
    logPath: `${name}/0.log`,
    labels: { "io.kubernetes.container.name": name },
    linux: { securityContext: { namespaceOptions: { pid: NamespaceMode.CONTAINER } } },
    ...more,
  },
  sandboxConfig: sandbox(),
});

const logOf = (name: string): string => join(sandbox().logDirectory, name, "0.log");
const lines = (name: string): string[] =>
  readFileSync(logOf(name), "utf8")
    .trimEnd()
    .split("\n")
    .filter((line) => line !== "");

async function start(name: string, more: object = {}): Promise<string> {
  const { containerId } = await cri.runtime.createContainer(asked(name, more));
  await cri.runtime.startContainer({ containerId });
  return containerId;
}

const statusOf = async (containerId: string) =>
  (await cri.runtime.containerStatus({ containerId })).status;

const exited = (containerId: string) =>
  until("the container to end", async () => {
    const status = await statusOf(containerId);
    return status?.state === ContainerState.CONTAINER_EXITED && status;
  });

const shell = async (containerId: string, script: string): Promise<string> => {
  const { stdout, stderr } = await cri.runtime.execSync({ containerId, cmd: ["sh", "-c", script] });
  return Buffer.concat([stdout, stderr]).toString().trimEnd();
};

test.serial("a container of an image runs, logs in CRI's format, and ends", async (t) => {
  const script = "echo out; echo err >&2; echo $OF $MORE; id -u; cat /etc/hostname; exit 3";
  const containerId = await start("first", {
    args: [script],
    envs: [{ key: "MORE", value: "asked" }],
  });
  const status = await exited(containerId);
  t.like(status, { exitCode: 3, reason: "Error", logPath: logOf("first") });
  t.like(status.metadata, { name: "first", attempt: 0 });
  t.true(status.createdAt <= status.startedAt && status.startedAt <= status.finishedAt);
  const time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d+Z";
  for (const line of lines("first"))
    t.regex(line, new RegExp(`^${time} (stdout|stderr) F .`), "nothing but output");
  const of = (stream: string): string[] =>
    lines("first").flatMap((line) => line.split(` ${stream} F `)[1] ?? []);
  t.deepEqual(of("stdout"), ["out", "image asked", "1000", "web-0"]);
  t.deepEqual(of("stderr"), ["err"]);
  await cri.runtime.removeContainer({ containerId });
  await cri.runtime.removeContainer({ containerId });
  await t.throwsAsync(cri.runtime.containerStatus({ containerId }), { code: Code.NotFound });
});

test.serial(
  "two containers of a sandbox share its network, and a disk; files are their own",
  async (t) => {
    const server = await start("server", {
      args: ["echo mine > /tmp/mine; trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done"],
      linux: { securityContext: { runAsUser: { value: 0n } } },
    });
    const client = await start("client");
    t.is(await shell(client, "ls /tmp; cat /proc/sys/kernel/hostname; id -un"), "web-0\nweb");
    t.is(await shell(server, "cat /tmp/mine; id -u"), "mine\n0");
    const net = "readlink /proc/self/ns/net; cat /proc/net/dev | grep -c eth0";
    t.is(await shell(server, net), await shell(client, net));
    t.regex(await shell(server, "grep web-0 /etc/hosts; cat /etc/resolv.conf"), /10\.96\.0\.10/);
    const { pod } = await rig.client.pods.get({ idOrName: podSandboxId });
    t.is(pod?.disks.length, 1, "one disk for both");
    t.deepEqual(
      (await cri.runtime.listContainers({ filter: { state: { state: 1 } } })).containers.map(
        ({ metadata }) => metadata?.name,
      ),
      ["client", "server"],
    );
    await t.throwsAsync(
      cri.runtime.execSync({ containerId: client, cmd: ["sleep", "100"], timeout: 1n }),
      { code: Code.DeadlineExceeded },
    );
    await cri.runtime.stopContainer({ containerId: server, timeout: 10n });
    t.like(await statusOf(server), { exitCode: 0, reason: "Completed" });
    t.regex(lines("server").at(-1) ?? "", /stdout F bye$/);
    await cri.runtime.removeContainer({ containerId: server });
    // Longer than Node's timers go.
    const limit = { timeout: 10n ** 12n };
    const ran = await cri.runtime.execSync({ containerId: client, cmd: ["true"], ...limit });
    t.is(ran.exitCode, 0);
    // It has no handler of the signal, and is killed when its time is over.
    await cri.runtime.stopContainer({ containerId: client, timeout: 1n });
    t.like(await statusOf(client), { exitCode: 137 });
    await cri.runtime.removeContainer({ containerId: client });
    t.deepEqual((await rig.client.pods.get({ idOrName: podSandboxId })).pod?.disks, []);
  },
);

test.serial("files of the host are copied, and nothing else of it is mounted", async (t) => {
  const volume = join(directory, "kubelet/volume");
  mkdirSync(join(volume, "..data"), { recursive: true });
  writeFileSync(join(volume, "..data/token"), "secret\n");
  symlinkSync("..data/token", join(volume, "token"));
  writeFileSync(join(directory, "kubelet/hosts"), "10.9.9.9\tgiven\n");
  const mounts = [
    { containerPath: "/var/run/secrets", hostPath: volume, readonly: true },
    { containerPath: "/etc/hosts", hostPath: join(directory, "kubelet/hosts") },
  ];
  const containerId = await start("files", { mounts });
  t.is(
    await shell(containerId, "cat /var/run/secrets/token /etc/hosts"),
    "secret\n10.9.9.9\tgiven",
  );
  t.regex(await shell(containerId, "echo x > /var/run/secrets/token"), /Read-only file system/);
  await cri.runtime.removeContainer({ containerId });
  // An emptyDir of the pod.
  const cache = join(directory, "kubelet/volumes/kubernetes.io~empty-dir/cache");
  mkdirSync(cache, { recursive: true });
  chmodSync(cache, 0o777);
  const shared = { mounts: [{ containerPath: "/cache", hostPath: cache }] };
  const writer = await start("writer", { ...shared, args: ["echo shared > /cache/x; sleep 1000"] });
  const reader = await start("reader", shared);
  t.is(await shell(reader, "until [ -s /cache/x ]; do sleep 0.02; done; cat /cache/x"), "shared");
  t.deepEqual(readdirSync(cache), [], "the host's stays empty");
  for (const id of [writer, reader]) await cri.runtime.removeContainer({ containerId: id });
  for (const [mount, code] of [
    [{ containerPath: "/x", hostPath: "/etc/passwd", readonly: true }, Code.PermissionDenied],
    [{ containerPath: "/x", hostPath: volume }, Code.Unimplemented],
    [{ containerPath: "/x", hostPath: join(directory, "none") }, Code.InvalidArgument],
  ] as const)
    await t.throwsAsync(cri.runtime.createContainer(asked("bad", { mounts: [mount] })), { code });
  t.deepEqual((await cri.runtime.listContainers({})).containers, []);
});

test.serial(
  "containers run on through a kill of podnetd, and no byte of a log is lost",
  async (t) => {
    const script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done";
    const containerId = await start("steady", { args: [script] });
    await until("output", () => Promise.resolve(lines("steady").length > 5));
    cri[Symbol.dispose]();
    await rig.restart("kill");
    cri = openCri(socket);
    t.like(await statusOf(containerId), { state: ContainerState.CONTAINER_RUNNING });
    const before = lines("steady").length;
    await until("more output", () => Promise.resolve(lines("steady").length > before + 20));
    // As kubelet rotates.
    renameSync(logOf("steady"), `${logOf("steady")}.1`);
    await cri.runtime.reopenContainerLog({ containerId });
    await until("the new file", () => Promise.resolve(lines("steady").length > 5));
    await cri.runtime.stopContainer({ containerId, timeout: 0n });
    const all = [`${logOf("steady")}.1`, logOf("steady")]
      .flatMap((file) => readFileSync(file, "utf8").trimEnd().split("\n"))
      .map((line) => line.replace(/^\S+ stdout [FP] /, ""));
    t.deepEqual(
      all,
      Array.from(all, (_, i) => `line ${i + 1}`),
    );
    await cri.runtime.removeContainer({ containerId });
  },
);

for (const point of ["qmp:device_add:after#1", "channel:createContainer:after#1"])
  test.serial(
    `podnetd killed at ${point} leaves no container that none was promised`,
    async (t) => {
      const restart = async (env: Readonly<Record<string, string>> = {}): Promise<void> => {
        cri[Symbol.dispose]();
        await rig.restart("kill", env);
        cri = openCri(socket);
      };
      await restart({ PODNET_FAILPOINTS: `${point}=kill` });
      await t.throwsAsync(cri.runtime.createContainer(asked("cut")));
      await restart();
      await until("nothing to be left", async () => {
        const { pod } = await rig.client.pods.get({ idOrName: podSandboxId });
        const { output } = await execIn(rig.client, podSandboxId, "ls", "/run/podnet/containers");
        return pod?.disks.length === 0 && output === "";
      });
      t.deepEqual((await cri.runtime.listContainers({})).containers, []);
      // A removal that is cut short is completed.
      const containerId = await start("cut");
      await restart({ PODNET_FAILPOINTS: "channel:endContainer:after#1=kill" });
      await t.throwsAsync(cri.runtime.removeContainer({ containerId }));
      await restart();
      await until("it to be gone", async () => {
        const { containers } = await cri.runtime.listContainers({});
        return containers.length === 0;
      });
      await cri.runtime.removeContainer({ containerId });
    },
  );

const relay =
  "const [host, port] = process.argv.slice(1); const s = require('node:net').connect(port, host); " +
  "for (const each of [s, process.stdin, process.stdout]) each.on('error', () => process.exit()); " +
  "process.stdin.pipe(s); s.pipe(process.stdout); s.on('close', () => process.exit())";

/** A client on podnetd's host, whose loopback is not this program's. */
function clientOf(url: string, protocol: string): Promise<SpdyClient> {
  const { hostname, port } = new URL(url);
  const { stdin, stdout } = rig.lab.host.spawn([process.execPath, "-e", relay, hostname, port], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  if (stdin === null || stdout === null) throw new Error("It has no pipes");
  return SpdyClient.over(Duplex.from({ readable: stdout, writable: stdin }), url, protocol);
}

/** Opens a program's streams as kubectl does. */
async function streamed(url: string, ...types: readonly string[]) {
  const client = await clientOf(url, "v4.channel.k8s.io");
  const streams = new Map<string, ClientStream>();
  for (const streamtype of ["error", ...types])
    streams.set(streamtype, await client.stream({ streamtype }));
  const of = (type: string): ClientStream => streams.get(type) as ClientStream;
  const status = async (): Promise<{ status?: string; details?: unknown }> => {
    await of("error").ended;
    return JSON.parse(of("error").text) as object;
  };
  return { of, status, [Symbol.dispose]: () => client[Symbol.dispose]() };
}

const exitedWith = (code: number) => ({
  details: { causes: [{ reason: "ExitCode", message: String(code) }] },
});

test.serial("programs in a container are streamed, with input, sizes and exit codes", async (t) => {
  const containerId = await start("streamed");
  const all = { stdin: true, stdout: true, stderr: true };
  const cmd = ["sh", "-c", "cat; echo err >&2; id -un; exit 4"];
  {
    const { url } = await cri.runtime.exec({ containerId, cmd, ...all });
    t.regex(url, /^http:\/\/127\.0\.0\.1:\d+\/exec\/[\w-]{32}$/);
    using it = await streamed(url, "stdin", "stdout", "stderr");
    const large = "x".repeat(1_000_000);
    it.of("stdin").write(large);
    it.of("stdin").end();
    t.like(await it.status(), exitedWith(4));
    t.is(it.of("stdout").text, `${large}web\n`);
    t.is(it.of("stderr").text, "err\n");
    await t.throwsAsync(clientOf(url, "v4.channel.k8s.io"), { message: /404/ });
  }
  {
    const asked = { containerId, cmd: ["sh"], stdin: true, stdout: true, tty: true };
    using it = await streamed((await cri.runtime.exec(asked)).url, "stdin", "stdout", "resize");
    it.of("resize").write('{"Width":101,"Height":31}');
    const seen = (text: string) =>
      until(text, () => Promise.resolve(it.of("stdout").text.includes(text)));
    it.of("stdin").write(
      "until [ \"$(stty size)\" = '31 101' ]; do sleep 0.1; done; echo si''zed\n",
    );
    await seen("sized");
    it.of("stdin").write("exit 5\n");
    t.like(await it.status(), exitedWith(5));
  }
  // With the client the program ends.
  const sleep = { containerId, cmd: ["sleep", "4321"], stdout: true };
  const running = () => shell(containerId, "ps | grep -c 'sleep 432[1]'");
  {
    using _gone = await streamed((await cri.runtime.exec(sleep)).url, "stdout");
    await until("the program", async () => (await running()) === "1");
  }
  await until("its end", async () => (await running()) === "0");
  // With the container, too.
  using last = await streamed((await cri.runtime.exec(sleep)).url, "stdout");
  await until("the program", async () => (await running()) === "1");
  await cri.runtime.stopContainer({ containerId, timeout: 0n });
  t.is((await last.status()).status, "Failure");
  for (const [asked, code] of [
    [{ ...sleep, containerId: "none" }, Code.NotFound],
    [sleep, Code.FailedPrecondition],
    [{ ...sleep, cmd: [] as string[] }, Code.InvalidArgument],
    [{ ...sleep, stdout: false }, Code.InvalidArgument],
    [{ ...sleep, tty: true, stderr: true }, Code.InvalidArgument],
  ] as const)
    await t.throwsAsync(cri.runtime.exec(asked), { code });
  await cri.runtime.removeContainer({ containerId });
});

test.serial("a container is attached to, and its ports are forwarded", async (t) => {
  const script =
    "cat; echo over; echo page > /tmp/index.html; exec busybox httpd -f -p 127.0.0.1:8080 -h /tmp";
  const containerId = await start("attached", {
    args: [script],
    stdin: true,
    stdinOnce: true,
    linux: { securityContext: { runAsUser: { value: 0n } } },
  });
  {
    const { url } = await cri.runtime.attach({ containerId, stdin: true, stdout: true });
    using it = await streamed(url, "stdin", "stdout");
    it.of("stdin").write("typed\n");
    await until("its output", () => Promise.resolve(it.of("stdout").text === "typed\n"));
  }
  // Its input ended with the one who was attached.
  await until("its log", () => Promise.resolve(lines("attached").at(-1)?.endsWith("F over")));
  const { url } = await cri.runtime.portForward({ podSandboxId, port: [8080] });
  using client = await clientOf(url, "portforward.k8s.io");
  const get = async (port: number, requestid: string) => {
    const headers = { port: String(port), requestid };
    const error = await client.stream({ ...headers, streamtype: "error" });
    const data = await client.stream({ ...headers, streamtype: "data" });
    data.write("GET /index.html HTTP/1.0\r\n\r\n");
    await Promise.all([data.ended, error.ended]);
    return { page: data.text, why: error.text };
  };
  await until("the page", async () =>
    (await get(8080, `${Math.random()}`)).page.endsWith("page\n"),
  );
  t.regex((await get(9, "none")).why, /ECONNREFUSED/);
  await t.throwsAsync(cri.runtime.portForward({ podSandboxId, port: [0] }), {
    code: Code.InvalidArgument,
  });
  await cri.runtime.stopContainer({ containerId, timeout: 0n });
  await t.throwsAsync(cri.runtime.attach({ containerId, stdout: true }), {
    code: Code.FailedPrecondition,
  });
  await cri.runtime.removeContainer({ containerId });
});

test.serial("one that takes more memory than it may is OOMKilled, and says its last", async (t) => {
  const last = join(directory, "kubelet/last");
  writeFileSync(last, "");
  const { securityContext } = asked("greedy").config.linux;
  const containerId = await start("greedy", {
    args: ["echo bye > /dev/termination-log; x=aaaaaaaa; while :; do x=$x$x; done"],
    mounts: [{ containerPath: "/dev/termination-log", hostPath: last }],
    linux: {
      securityContext: { ...securityContext, runAsUser: { value: 0n } },
      resources: { memoryLimitInBytes: 16n << 20n, cpuQuota: 100_000n, cpuPeriod: 100_000n },
    },
  });
  t.like(await exited(containerId), { reason: "OOMKilled", exitCode: 137 });
  t.is(readFileSync(last, "utf8"), "bye\n");
  const used = await start("used");
  const { stats } = await cri.runtime.containerStats({ containerId: used });
  t.true((stats?.memory?.workingSetBytes?.value ?? 0n) > 0n);
  await cri.runtime.updateContainerResources({
    containerId: used,
    linux: { memoryLimitInBytes: 1n << 25n },
  });
  for (const each of [containerId, used]) await cri.runtime.removeContainer({ containerId: each });
});

test.serial("what cannot be started says why, and the rest goes with the sandbox", async (t) => {
  const { containerId } = await cri.runtime.createContainer(
    asked("bad", { command: ["/no/such"] }),
  );
  await t.throwsAsync(cri.runtime.startContainer({ containerId }), {
    code: Code.FailedPrecondition,
    message: /no\/such/,
  });
  t.like(await statusOf(containerId), { state: ContainerState.CONTAINER_EXITED, exitCode: 128 });
  const left = await start("left");
  await cri.runtime.stopPodSandbox({ podSandboxId });
  t.like(await exited(left), { exitCode: 137, reason: "Error" });
  await cri.runtime.removePodSandbox({ podSandboxId });
  t.deepEqual((await cri.runtime.listContainers({})).containers, []);
  t.is(readFileSync(logOf("left"), "utf8"), "", "kubelet's to remove");
});
