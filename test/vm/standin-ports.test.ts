import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type ErrorCode, isPodnetError, type PodnetError } from "../../core/errors.ts";
import { labAddresses } from "../lab/lab.ts";
import { standInConfig } from "../lab/standin.ts";
import { openRig, type Rig } from "./daemon-rig.ts";
import { portsOf, socketAt } from "./ports-rig.ts";

const images = (): string => mkdtempSync(join(tmpdir(), "podnet-ports-"));

let rig: Rig;
test.serial.before(async () => {
  const config = 'drift_s = 1\npublish_ports = "30000-30004"\n';
  rig = await openRig(`${config}${await standInConfig(images())}`);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async (t) => {
  for (const { name } of (await rig.client.pods.list({})).pods)
    await rig.client.pods.delete({ idOrName: name });
  t.deepEqual(await rig.changes(), []);
});

const create = (name: string, ...texts: string[]) =>
  rig.client.pods.create({ spec: { name, ports: portsOf(...texts) } });

async function refused(
  t: ExecutionContext,
  work: Promise<unknown>,
  code: ErrorCode,
): Promise<PodnetError> {
  const thrown: unknown = await work.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!isPodnetError(thrown)) throw new Error(`Not refused but ${String(thrown)}`);
  t.is(thrown.code, code, thrown.message);
  t.truthy(thrown.hint);
  return thrown;
}

/** A program on the host that listens; it tries until it gets the port. */
function listener(t: ExecutionContext, port: number, host = "127.0.0.1"): ChildProcess {
  const code = `
    const server = require("node:net").createServer((socket) => socket.end("theirs"));
    server.on("error", () => setTimeout(listen, 2));
    const listen = () => server.listen(${port}, "${host}", () => console.log("listens"));
    listen();`;
  const argv = [process.execPath, "-e", code] as const;
  const program = rig.lab.host.spawn([...argv], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => program.kill("SIGKILL"));
  return program;
}

/** Whether any socket has the port on the host. */
const held = (port: number): Promise<boolean> => socketAt(rig.lab.host, port);

const listens = (program: ChildProcess): Promise<unknown> =>
  once(program.stdout as NodeJS.ReadableStream, "data");

async function endOf(program: ChildProcess): Promise<void> {
  program.kill("SIGKILL");
  await once(program, "exit");
}

/** What a client on the host gets: data, or how it was refused. */
async function dial(port: number, host = "127.0.0.1"): Promise<string> {
  const code = `
    const socket = require("node:net").connect(${port}, "${host}");
    socket.on("data", (data) => console.log(String(data)));
    socket.on("error", ({ code }) => console.log(code));`;
  return (await rig.lab.host.run(process.execPath, "-e", code)).trim();
}

test.serial(
  "an error that a connection's handler does not expect drops that connection alone",
  async (t) => {
    await create("web", "8080:80");
    const env = { PODNET_FAILPOINTS: "socket:connect to a pod:before#1=error" };
    await rig.restart("stop", env);
    const { socket, process: podnetd } = rig.daemon;
    const defects = async (): Promise<readonly string[]> => {
      const url = "http://podnet/metrics";
      const shown = await rig.lab.host.run("curl", "-s", "--unix-socket", socket, url);
      return shown.split("\n").filter((line) => line.startsWith("podnet_defects_total{"));
    };
    t.deepEqual(await defects(), []);
    t.is(await dial(8080), "ECONNRESET");
    t.is(podnetd.exitCode, null);
    t.deepEqual(await defects(), ['podnet_defects_total{place="ports"} 1']);
    t.regex(rig.daemon.log(), /"place":"ports",.*"msg":"Defect in podnet, please report it/);
    // The next is handled as any, and the pod's machine takes none.
    t.is(await dial(8080), "ECONNRESET");
    t.is((await defects()).join(), 'podnet_defects_total{place="ports"} 1');
  },
);

test.serial(
  "a port that another pod has is refused with its name, and nothing of the pod is left",
  async (t) => {
    await create("one", "8080:80");
    for (const text of ["8080:80", "*:8080:81", "[::1]:8080:80", "8000-8100:1-101"]) {
      const error = await refused(t, create("two", text), "PORT_IN_USE");
      t.is(error.details["holder"], "one");
      t.is(error.field, "ports[0].host_port");
    }
    t.is((await rig.client.pods.list({})).pods.length, 1);
    // The control: the same port at another address, and of another protocol.
    await create("two", `${labAddresses.hostOnLan}:8080:80`, "8080:80/udp");
  },
);

test.serial(
  "a port that a program has is refused with its name and pid, by create, publish and their plans",
  async (t) => {
    const program = listener(t, 8088);
    await listens(program);
    await create("other");
    const ports = portsOf("8089:80", "8088:80");
    for (const work of [
      () => rig.client.pods.create({ spec: { name: "web", ports } }),
      () => rig.client.pods.create({ spec: { name: "web", ports }, planOnly: true }),
      () => rig.client.pods.publishPorts({ idOrName: "other", ports }),
      () => rig.client.pods.publishPorts({ idOrName: "other", ports, planOnly: true }),
    ]) {
      const error = await refused(t, work(), "PORT_IN_USE");
      t.is(error.details["holder"], `node (pid ${program.pid})`);
      t.false(await held(8089));
    }
    t.deepEqual((await rig.client.pods.get({ idOrName: "other" })).pod?.ports, []);
    await endOf(program);
    await create("web", "8089:80", "8088:80");
    t.true((await held(8088)) && (await held(8089)));
  },
);

test.serial(
  "chosen ports are of the range, free, and kept over restarts; an exhausted range is an error",
  async (t) => {
    const program = listener(t, 30_001);
    await listens(program);
    const { pod } = await create("web", "80", "80-82/udp");
    const chosen = pod?.ports.map(({ hostPort }) => hostPort) ?? [];
    t.true([30_000, 30_002, 30_003, 30_004].includes(chosen[0] ?? 0), String(chosen));
    await create("more", "1", "2", "3");
    const error = await refused(t, create("most", "4"), "PORTS_EXHAUSTED");
    t.is(error.field, "ports[0].host_port");
    const all = (await rig.client.pods.list({})).pods.flatMap(({ ports }) => ports);
    const tcp = all.filter(({ protocol }) => protocol === "tcp").map(({ hostPort }) => hostPort);
    t.deepEqual(
      tcp.toSorted((a, b) => a - b),
      [30_000, 30_002, 30_003, 30_004],
    );
    await rig.restart("kill");
    const after = (await rig.client.pods.list({})).pods.flatMap(({ ports }) => ports);
    t.deepEqual(
      after.map(({ hostPort }) => hostPort),
      all.map(({ hostPort }) => hostPort),
    );
  },
);

test.serial(
  "a stopped pod keeps its ports, and refuses who asks; a deleted one frees them",
  async (t) => {
    await create("web", "8090:80", `${labAddresses.hostOnLan}:8091:80`);
    await rig.client.pods.stop({ idOrName: "web" });
    t.true((await held(8090)) && (await held(8091)));
    t.is(await dial(8090), "ECONNRESET");
    await refused(t, create("two", "8090:80"), "PORT_IN_USE");
    const publish = rig.client.pods.publishPorts({ idOrName: "web", ports: portsOf("1") });
    t.is((await refused(t, publish, "WRONG_STATE")).details["state"], "stopped");
    await rig.restart("stop");
    t.true((await held(8090)) && (await held(8091)));
    const { pod } = await rig.client.pods.start({ idOrName: "web" });
    t.deepEqual(
      pod?.ports.map(({ hostPort }) => hostPort),
      [8090, 8091],
    );
    await rig.client.pods.delete({ idOrName: "web" });
    t.false((await held(8090)) || (await held(8091)));
  },
);

test.serial(
  "a port taken while podnetd was not running: the pod runs, says so, and has it again once it is free",
  async (t) => {
    await create("web", "8092:80", "8093:80");
    const program = listener(t, 8092);
    await rig.restart("stop");
    await listens(program);
    const now = async () => (await rig.client.pods.get({ idOrName: "web" })).pod;
    t.is((await now())?.state, PodState.RUNNING);
    // The guest's agent, reached again, takes the reason away; the next attempt configures it anew.
    const why = new RegExp(`8092/tcp .*node \\(pid ${program.pid}\\)`);
    while (!why.test((await now())?.reason ?? "")) await delay(50);
    t.is(await dial(8092), "theirs");
    t.true(await held(8093));
    // Others of its ports can be changed meanwhile.
    await rig.client.pods.publishPorts({ idOrName: "web", ports: portsOf("8094:80") });
    await endOf(program);
    while ((await dial(8092)) !== "ECONNRESET") await delay(50);
    while ((await now())?.reason !== "") await delay(50);
  },
);

test.serial(
  "ports are published and unpublished all or none, and what is not published is unpublished already",
  async (t) => {
    const { client } = rig;
    await create("web", "8095:80");
    const idOrName = "web";
    const { ports } = await client.pods.publishPorts({
      idOrName,
      ports: portsOf("*:8096-8098:1-3", "81/udp"),
    });
    t.deepEqual(
      ports.map(({ hostIp, hostPort, podPort, count }) => [hostIp, hostPort > 0, podPort, count]),
      [
        ["*", true, 1, 3],
        ["", true, 81, 1],
      ],
    );
    await refused(
      t,
      client.pods.publishPorts({ idOrName, ports: portsOf("8099:1", "8098:1") }),
      "PORT_IN_USE",
    );
    t.false(await held(8099));
    const { plan } = await client.pods.unpublishPorts({
      idOrName,
      ports: portsOf("*:8096-8098:1-3"),
      planOnly: true,
    });
    t.deepEqual(plan?.sections[0]?.lines, ["unpublish *:8096-8098:1-3"]);
    const lines = plan?.sections.flatMap((section) => section.lines) ?? [];
    t.true(
      lines.some((line) =>
        line.startsWith("nft delete element inet podnet_published everywhere4 "),
      ),
      lines.join("\n"),
    );
    t.true(lines.some((line) => line.startsWith("let go of tcp 0.0.0.0:8096-8098")));
    t.false(
      lines.some((line) => /8095|\b81\b/.test(line)),
      "what stays is not reported",
    );
    t.true(await held(8097));
    const { pod } = await client.pods.unpublishPorts({
      idOrName,
      // As it is shown, by the pod's port, and what there is not.
      ports: portsOf("*:8096-8098:1-3", "81/udp", "9999:9999"),
    });
    t.deepEqual(
      pod?.ports.map(({ hostPort }) => hostPort),
      [8095],
    );
    t.deepEqual(
      pod?.spec?.ports.map(({ hostPort }) => hostPort),
      [8095],
    );
    t.false(await held(8097));
  },
);

test.serial("unpublish says what it removed and what was not published", async (t) => {
  await create("web", "8104:80", "0:90");
  const chosen = (await rig.client.pods.get({ idOrName: "web" })).pod?.ports[1]?.hostPort;
  const args = ["unpublish", "web", "8104:80", "8105:80", "90"];
  const plan = await rig.daemon.tryPodnet(...args, "--plan");
  const { stderr, exitCode } = await rig.daemon.tryPodnet(...args);
  for (const text of [plan.stderr, stderr]) t.is(text, "was not published: 8105:80\n");
  t.is(exitCode, 0);
  const again = await rig.daemon.tryPodnet("unpublish", "web", "8104:80");
  t.is(again.stderr, "was not published: 8104:80\n");
  t.is(again.exitCode, 0);
  const published = portsOf(`${chosen}:90`);
  await rig.client.pods.publishPorts({ idOrName: "web", ports: published });
  const ports = [...published, ...portsOf("8106:80")];
  const answer = await rig.client.pods.unpublishPorts({ idOrName: "web", ports });
  t.deepEqual(
    answer.removed.map(({ hostPort, podPort }) => [hostPort, podPort]),
    [[chosen, 90]],
  );
  t.deepEqual(
    answer.notPublished.map(({ hostPort, podPort }) => [hostPort, podPort]),
    [[8106, 80]],
  );
});

test.serial("what the host cannot do is refused with what is wrong", async (t) => {
  const error = await refused(t, create("web", "203.0.113.77:80:80"), "ADDRESS_INVALID");
  t.is(error.field, "ports[0].host_ip");
  await refused(t, create("web", "80:80/sctp"), "UNSUPPORTED");
  // A pod of IPv4 alone is nowhere to be reached by IPv6 but on loopback.
  await refused(t, create("web", "[::]:80:80"), "UNSUPPORTED");
  const { pod } = await create("web", "[::1]:8100:80", "*:8101:80/sctp");
  t.is(pod?.ports.length, 2);
});

test.serial(
  "rules of published ports that another program removes come back, and are reported as drift",
  async (t) => {
    const { client, lab } = rig;
    const { pod } = await create("web", "*:8102:80");
    const rules = async (): Promise<string> =>
      (await lab.host.run("nft", "list", "map", "inet", "podnet_published", "everywhere4"))
        .split(/[\n,]/)
        .filter((line) => line.includes(`podnet:pod:${pod?.id}`))
        .join("\n");
    const before = await rules();
    t.true(before.includes("8102"));
    const element = "{ tcp . 8102 }";
    await lab.host.run(
      "nft",
      "delete",
      "element",
      "inet",
      "podnet_published",
      "everywhere4",
      element,
    );
    const reported = /"component":"drift"[^\n]*everywhere4/;
    const deadline = performance.now() + 20_000;
    while (!reported.test(rig.daemon.log()) && performance.now() < deadline) await delay(100);
    t.regex(rig.daemon.log(), reported);
    t.is(await rules(), before);
    const { drift, parts } = await client.node.diff({});
    t.false(drift);
    t.true(parts.some(({ planned }) => planned.some((each) => each.includes("8102"))));
  },
);

test.serial(
  "with disable_iptables only loopback is published, and all else is refused",
  async (t) => {
    await using bare = await openRig(`disable_iptables = true\n${await standInConfig(images())}`);
    const ask = (text: string) =>
      bare.client.pods.create({ spec: { name: "web", ports: portsOf(text) } });
    for (const text of ["*:80:80", "0.0.0.0:80:80", `${labAddresses.hostOnLan}:80:80`]) {
      const error = await refused(t, ask(text), "UNSUPPORTED");
      t.is(error.field, "ports[0].host_ip");
    }
    t.is((await ask("8103:80")).pod?.ports.length, 1);
  },
);
