import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Server } from "node:net";
import { inspect } from "node:util";
import test from "ava";
import { parseIp } from "../../core/address.ts";
import { isPodnetError, type PodnetError } from "../../core/errors.ts";
import type { PodId } from "../../core/names.ts";
import type { PublishedPlan } from "../../daemon/published/published-plan.ts";
import { HeldPorts } from "../../daemon/published/held-ports.ts";
import { refuseBusy } from "../../daemon/published/hold-error.ts";
import { run } from "../../linux/processes/command.ts";
import { boundSockets, holderOf } from "../../linux/sockets/listeners.ts";
import { tcpListeners } from "../../linux/sockets/tcp-listeners.ts";
import { isLocalAddress } from "../../linux/sockets/local-address.ts";
import { ownNetns } from "../lab/netns.ts";

test.before(async () => {
  await ownNetns();
  await run(["ip", "address", "add", "10.66.0.1/32", "dev", "lo"]);
});

const pod = "bbbbbbbbbbbb" as PodId;
const plan = (
  hostPort: number,
  hostIp: string,
  more: Partial<PublishedPlan> = {},
): PublishedPlan => ({
  hostPort,
  podPort: 80,
  count: 1,
  protocol: "tcp",
  at: [{ hostIp: parseIp(hostIp), podIp: parseIp("127.0.9.9") }],
  ...more,
});

async function listen(port: number, host: string): Promise<Server> {
  const server = createServer();
  server.listen({ host, port });
  await once(server, "listening");
  return server;
}

async function refused(work: Promise<void>): Promise<PodnetError> {
  const thrown: unknown = await work.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!isPodnetError(thrown)) throw new Error(`Not refused but ${String(thrown)}`);
  return thrown;
}

for (const [hostIp, others] of [
  ["127.0.0.1", "127.0.0.1"],
  ["10.66.0.1", "10.66.0.1"],
  ["0.0.0.0", "10.66.0.1"],
  ["0.0.0.0", "0.0.0.0"],
  ["10.66.0.1", "0.0.0.0"],
] as const) {
  for (const protocol of ["tcp", "udp"] as const) {
    test.serial(
      `while ${hostIp} port 7000/${protocol} is published no program gets it at ${others}, afterwards any can`,
      async (t) => {
        using held = new HeldPorts();
        const free = async (): Promise<string> => {
          const holds = new HeldPorts();
          await holds
            .hold("cccccccccccc" as PodId, [plan(7000, others, { protocol })])
            .finally(() => holds.release("cccccccccccc" as PodId));
          return "free";
        };
        t.is(await free(), "free");
        await held.hold(pod, [plan(7000, hostIp, { protocol })]);
        const error = await refused(free().then(() => {}));
        t.is(error.code, "PORT_IN_USE");
        t.regex(String(error.details["holder"]), new RegExp(`\\(pid ${process.pid}\\)$`));
        held.release(pod);
        t.is(await free(), "free");
      },
    );
  }
}

test.serial(
  "a program that listens is named with its pid, and the port is had once it ends",
  async (t) => {
    const code = "require('node:net').createServer().listen(7001, () => console.log('listens'))";
    const program = spawn(process.execPath, ["-e", code], { stdio: ["ignore", "pipe", "inherit"] });
    await once(program.stdout, "data");
    using held = new HeldPorts();
    const error = await refused(held.hold(pod, [plan(7001, "127.0.0.1")]));
    t.is(error.code, "PORT_IN_USE");
    t.is(error.details["holder"], `node (pid ${program.pid})`);
    t.is(held.size, 0);
    program.kill();
    await once(program, "exit");
    await held.hold(pod, [plan(7001, "127.0.0.1")]);
    t.is(held.size, 1);
  },
);

test("a socket whose program is not ours to see is reported by its user", (t) => {
  t.is(holderOf({ inode: "4294967295999", uid: 0 }), "a program of root");
  t.is(holderOf({ inode: "4294967295999", uid: 4_000_000 }), "a program of user 4000000");
  t.is(holderOf({ inode: "0", uid: 0 }), "a connection that has just ended");
});

test.serial("all or none: of a range with one port taken nothing stays held", async (t) => {
  const taken = await listen(7105, "127.0.0.1");
  t.teardown(() => taken.close());
  using held = new HeldPorts();
  const range = plan(7100, "127.0.0.1", { count: 10 });
  await held.hold(pod, [plan(7050, "127.0.0.1")]);
  const error = await refused(held.hold(pod, [plan(7050, "127.0.0.1"), range]));
  t.is(error.details["port"], 7105);
  t.is(error.field, "ports[1].host_port");
  t.is(held.size, 1);
  const asked = [plan(7050, "127.0.0.1"), plan(7000, "127.0.0.1", { protocol: "sctp" }), range];
  t.is((await refused(held.hold(pod, asked, 1))).field, "ports[1].host_port", "of those asked for");
  t.like(
    t.throws(() => refuseBusy(asked.slice(1))),
    { code: "PORT_IN_USE", field: "ports[1].host_port" },
  );
  taken.close();
  await held.hold(pod, [plan(7050, "127.0.0.1"), range]);
  t.is(held.size, 11);
});

test.serial(
  "what is the pod's by its row waits for who has it now, and is held once that ends",
  async (t) => {
    const taken = await listen(7200, "127.0.0.1");
    using held = new HeldPorts();
    const both = [plan(7200, "127.0.0.1"), plan(7201, "127.0.0.1")];
    await held.adopt(pod, both);
    t.is(held.size, 1);
    t.is(held.missing(pod)?.code, "PORT_IN_USE");
    t.is((await refused(held.retry(pod, both))).code, "PORT_IN_USE");
    // Another port of the pod's can be published all the same.
    const third = [...both, plan(7202, "127.0.0.1")];
    await held.hold(pod, third);
    t.is(held.size, 2);
    taken.close();
    await held.retry(pod, third);
    t.is(held.size, 3);
    t.is(held.missing(pod), undefined);
  },
);

test.serial("an address the host does not have is refused", async (t) => {
  using held = new HeldPorts();
  t.is((await refused(held.hold(pod, [plan(7300, "192.0.2.1")]))).code, "ADDRESS_INVALID");
  const local = (text: string): boolean => isLocalAddress(parseIp(text));
  t.deepEqual(["10.66.0.1", "127.0.0.1", "0.0.0.0", "::1", "::"].map(local), [
    true,
    true,
    true,
    true,
    true,
  ]);
  t.deepEqual(["192.0.2.1", "2001:db8::1"].map(local), [false, false]);
});

test.serial(
  "a port is had again at once, though connections of its last holder rest",
  async (t) => {
    using held = new HeldPorts();
    await held.hold(pod, [plan(7400, "10.66.0.1")]);
    held.release(pod);
    // A server that ends its connections first leaves them in TIME_WAIT, at its own port.
    const server = createServer((socket) => socket.end());
    server.listen({ host: "10.66.0.1", port: 7400 });
    await once(server, "listening");
    const client = connect({ host: "10.66.0.1", port: 7400 });
    client.resume();
    await once(client, "close");
    server.close();
    t.true(boundSockets(["tcp"]).some(({ port, inode }) => port === 7400 && inode === "0"));
    await held.hold(pod, [plan(7400, "10.66.0.1")]);
    t.is(held.size, 1);
  },
);

test.serial("sock_diag and /proc report the same listeners", async (t) => {
  using held = new HeldPorts();
  const text = (sockets: readonly object[]): string[] =>
    sockets.map((each) => inspect(each, { sorted: true })).toSorted((a, b) => (a < b ? -1 : 1));
  t.deepEqual(tcpListeners(7600), []);
  await held.hold(pod, [plan(7600, "10.66.0.1"), plan(7600, "::1", { count: 3 })]);
  const listening = boundSockets(["tcp"]).filter(({ listens }) => listens);
  t.is(listening.length, 4);
  t.deepEqual(text(tcpListeners()), text(listening));
  t.deepEqual(text(tcpListeners(7600)), text(listening.filter(({ port }) => port === 7600)));
  t.is(tcpListeners(7600).length, 2);
  t.deepEqual(tcpListeners(7603), []);
});

test.serial("4096 ports are held, and let go of", async (t) => {
  using held = new HeldPorts();
  const many = plan(20_000, "127.0.0.1", { count: 4096 });
  await held.hold(pod, [many]);
  t.is(held.size, 4096);
  t.is(boundSockets(["tcp"]).filter(({ port }) => port >= 20_000 && port < 24_096).length, 4096);
  held.release(pod);
  t.is(held.size, 0);
  t.is(boundSockets(["tcp"]).filter(({ port }) => port >= 20_000 && port < 24_096).length, 0);
});

test.serial("SCTP is not held by sockets, of which this kernel may have none", async (t) => {
  using held = new HeldPorts();
  await held.hold(pod, [plan(7500, "10.66.0.1", { protocol: "sctp" })]);
  t.is(held.size, 0);
});
