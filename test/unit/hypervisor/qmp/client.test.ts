import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { ErrorCode } from "../../../../core/errors.ts";
import type { QmpEvent } from "../../../../hypervisor/qmp/commands.ts";
import { QmpClient, type QmpOptions } from "../../../../hypervisor/qmp/client.ts";
import {
  event,
  greeting,
  type HostileConnection,
  startHostileQmp,
} from "../../../peers/hostile-qmp.ts";

async function openFails(
  t: ExecutionContext,
  code: ErrorCode,
  behave: (peer: HostileConnection) => void | Promise<void>,
  options?: QmpOptions,
): Promise<void> {
  const left = Promise.withResolvers<void>();
  await using peer = await startHostileQmp((connection) => {
    void connection.left().then(left.resolve);
    return behave(connection);
  });
  const error = await t.throwsAsync(QmpClient.open(peer.path, options));
  t.like(error, { code });
  await left.promise;
}

test("no greeting: the deadline ends the wait", async (t) => {
  await openFails(t, "QMP_TIMEOUT", () => {}, { greetingMs: 50 });
});

test("silence after the greeting: the command's deadline ends the wait", async (t) => {
  await openFails(t, "QMP_TIMEOUT", (peer) => peer.greet(), { deadlineMs: 50 });
});

test("garbage instead of a greeting", async (t) => {
  await openFails(t, "QMP_PROTOCOL", (peer) => peer.send("SSH-2.0-OpenSSH_9.2\r\n"));
});

test("a reply before the greeting", async (t) => {
  await openFails(t, "QMP_PROTOCOL", (peer) => peer.send({ return: {}, id: 1 }));
});

test("an event before the greeting", async (t) => {
  await openFails(t, "QMP_PROTOCOL", (peer) => peer.send(event("STOP", {})));
});

test("end of stream instead of a greeting", async (t) => {
  await openFails(t, "QMP_PROTOCOL", (peer) => peer.end());
});

test("a line without end is cut off at the limit", async (t) => {
  const chunk = "x".repeat(10_000);
  await openFails(t, "QMP_PROTOCOL", (peer) => peer.send(chunk), { lineLimit: 5_000 });
});

test("a caller who gives up during the greeting", async (t) => {
  const gone = new AbortController();
  await openFails(t, "CANCELLED", () => gone.abort(), { signal: gone.signal });
});

test("a socket without a listener is refused", async (t) => {
  const error = await t.throwsAsync(QmpClient.open("/nonexistent/qmp.sock"));
  t.like(error, { code: "SYSCALL_FAILED", details: { errno: "ENOENT" } });
});

/** A negotiated session and the peer's end of it. */
async function session(
  body: (client: QmpClient, peer: HostileConnection) => Promise<void>,
  options?: QmpOptions,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<HostileConnection>();
  await using server = await startHostileQmp(async (connection) => {
    await connection.negotiate();
    resolve(connection);
  });
  using client = await QmpClient.open(server.path, options);
  await body(client, await promise);
}

test("a greeting in single bytes", async (t) => {
  await using server = await startHostileQmp(async (peer) => {
    for (const byte of Buffer.from(`${JSON.stringify(greeting)}\r\n`)) {
      peer.send(Uint8Array.of(byte));
      await new Promise(setImmediate);
    }
    const { id } = await peer.nextCommand();
    peer.send({ return: {}, id });
  });
  using client = await QmpClient.open(server.path);
  t.like(client.version, { major: 7, minor: 2, micro: 22 });
});

test("replies are matched by id, whatever their order", async (t) => {
  await session(async (client, peer) => {
    const first = client.execute("query-status", {});
    const second = client.execute("query-kvm", {});
    const a = await peer.nextCommand();
    const b = await peer.nextCommand();
    peer.send({ return: { enabled: false, present: true }, id: b.id });
    peer.send({ return: { running: true, status: "running" }, id: a.id });
    t.is((await first).status, "running");
    t.is((await second).present, true);
  });
});

test("an error carries QEMU's class and text", async (t) => {
  await session(async (client, peer) => {
    const asked = client.execute("device_del", { id: "n0" });
    const { id, execute, arguments: args } = await peer.nextCommand();
    t.deepEqual([execute, args], ["device_del", { id: "n0" }]);
    peer.send({ error: { class: "DeviceNotFound", desc: "Device 'n0' not\nfound" }, id });
    const error = await t.throwsAsync(asked);
    t.like(error, { code: "QMP_FAILED", details: { class: "DeviceNotFound" } });
    t.false(error.message.includes("\n"));
  });
});

test("an id never sent ends the session", async (t) => {
  await session(async (client, peer) => {
    const asked = client.execute("query-status", {});
    const { id } = await peer.nextCommand();
    peer.send({ return: {}, id: id + 1 });
    t.like(await t.throwsAsync(asked), { code: "QMP_PROTOCOL" });
    t.like(client.closed, { code: "QMP_PROTOCOL" });
    t.like(await t.throwsAsync(client.execute("query-status", {})), { code: "QMP_PROTOCOL" });
  });
});

test("a reply without id ends the session", async (t) => {
  await session(async (client, peer) => {
    const asked = client.execute("query-status", {});
    await peer.nextCommand();
    peer.send({ error: { class: "GenericError", desc: "JSON parse error" } });
    t.like(await t.throwsAsync(asked), { code: "QMP_PROTOCOL" });
  });
});

test("a late reply is dropped and shifts nothing", async (t) => {
  await session(async (client, peer) => {
    const late = client.execute("query-status", {}, { deadlineMs: 20 });
    const lateId = (await peer.nextCommand()).id;
    t.like(await t.throwsAsync(late), {
      code: "QMP_TIMEOUT",
      details: { command: "query-status" },
    });
    const next = client.execute("query-kvm", {});
    const { id } = await peer.nextCommand();
    peer.send({ return: { running: false, status: "late" }, id: lateId });
    peer.send({ return: { enabled: true, present: true }, id });
    t.true((await next).enabled);
  });
});

test("an aborted wait rejects at once, its reply is dropped", async (t) => {
  await session(async (client, peer) => {
    const gone = new AbortController();
    const asked = client.execute("stop", {}, { signal: gone.signal });
    const { id } = await peer.nextCommand();
    gone.abort();
    t.like(await t.throwsAsync(asked), { code: "CANCELLED" });
    peer.send({ return: {}, id });
    const next = client.execute("cont", {});
    peer.send({ return: {}, id: (await peer.nextCommand()).id });
    await t.notThrowsAsync(next);
  });
});

test("end of stream rejects everything pending, once", async (t) => {
  await session(async (client, peer) => {
    const closings: string[] = [];
    client.onClose((reason) => closings.push(reason.code));
    const asked = [client.execute("query-status", {}), client.execute("stop", {})];
    await peer.nextCommand();
    peer.end();
    for (const one of asked) t.like(await t.throwsAsync(one), { code: "QEMU_EXITED" });
    client.close();
    t.deepEqual(closings, ["QEMU_EXITED"]);
  });
});

test("end of stream within a line is the peer's fault", async (t) => {
  await session(async (client, peer) => {
    const asked = client.execute("query-status", {});
    await peer.nextCommand();
    peer.send('{"return": {"running": tr');
    peer.end();
    t.like(await t.throwsAsync(asked), { code: "QMP_PROTOCOL" });
  });
});

test("what came before the garbage still counts", async (t) => {
  await session(async (client, peer) => {
    const good = client.execute("query-kvm", {});
    const bad = client.execute("query-status", {});
    const { id } = await peer.nextCommand();
    peer.send(`{"return": {"enabled": true, "present": true}, "id": ${id}}\n\u0000\u0001}{\n`);
    t.true((await good).enabled);
    t.like(await t.throwsAsync(bad), { code: "QMP_PROTOCOL" });
  });
});

test("events arrive with data and time, unknown ones too, and a second greeting ends it", async (t) => {
  await session(async (client, peer) => {
    const seen: QmpEvent[] = [];
    client.onEvent((one) => seen.push(one));
    const closed = Promise.withResolvers<string>();
    client.onClose((reason) => closed.resolve(reason.code));
    peer.send(event("FROM_THE_FUTURE", { x: [1] }));
    peer.send({ event: "STOP", timestamp: { seconds: -1, microseconds: -1 } });
    peer.greet();
    t.is(await closed.promise, "QMP_PROTOCOL");
    t.deepEqual(seen, [
      { name: "FROM_THE_FUTURE", data: { x: [1] }, timestampMs: 1_700_000_000_250 },
      { name: "STOP", data: {}, timestampMs: undefined },
    ]);
  });
});

test("getfd holds the queue until it is answered", async (t) => {
  await session(async (client, peer) => {
    const before = client.execute("query-status", {});
    const passed = client.passFd("fd-a", 0);
    const after = client.execute("query-kvm", {});
    const first = await peer.nextCommand();
    const getfd = await peer.nextCommand();
    t.deepEqual([first.execute, getfd.execute], ["query-status", "getfd"]);
    const third = peer.nextCommand();
    let early = true;
    void third.then(() => t.false(early, "the next command left before getfd was answered"));
    peer.send({ return: { running: true, status: "running" }, id: first.id });
    await before;
    early = false;
    peer.send({ return: {}, id: getfd.id });
    await passed;
    peer.send({ return: { enabled: true, present: true }, id: (await third).id });
    t.true((await after).enabled);
  });
});

test("a getfd never answered frees the queue at its deadline", async (t) => {
  await session(async (client, peer) => {
    const passed = client.passFd("fd-a", 0, { deadlineMs: 20 });
    const after = client.execute("query-kvm", {});
    t.is((await peer.nextCommand()).execute, "getfd");
    t.like(await t.throwsAsync(passed), { code: "QMP_TIMEOUT" });
    const next = await peer.nextCommand();
    peer.send({ return: { enabled: true, present: true }, id: next.id });
    t.true((await after).enabled);
  });
});

test("a descriptor for a QEMU that is gone: the session is lost, though the socket has not reported it yet", async (t) => {
  const peer = await startHostileQmp((connection) => connection.negotiate());
  using client = await QmpClient.open(peer.path);
  // Closes the other end now; what this end reads of it comes in a later round of the event loop.
  const gone = peer[Symbol.asyncDispose]();
  await t.throwsAsync(client.passFd("fd-a", 0), { code: "QEMU_EXITED" });
  t.like(client.closed, { code: "QEMU_EXITED" });
  await gone;
});

const answering = `
  const greeting = { QMP: { version: { qemu: { major: 7, minor: 2, micro: 0 }, package: "" }, capabilities: [] } };
  require("node:net").createServer((socket) => {
    socket.on("error", () => {});
    socket.write(JSON.stringify(greeting) + "\\n");
    // Commands may come several at once.
    const answer = (line) => socket.write(JSON.stringify({ return: {}, id: JSON.parse(line).id }) + "\\n");
    socket.on("data", (lines) => String(lines).trim().split("\\n").forEach(answer));
  }).listen(process.argv[1], () => console.log("listens"));`;

test("a QEMU whose process is stopped: the hint names it and what lets it go on, whoever's limit passes", async (t) => {
  const path = join(mkdtempSync(join(tmpdir(), "podnet-stopped-")), "qmp.sock");
  const child = spawn(process.execPath, ["-e", answering, path], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  await once(child.stdout, "data");
  using client = await QmpClient.open(path);
  child.kill("SIGSTOP");
  const signal = AbortSignal.timeout(50);
  for (const options of [{ deadlineMs: 50 }, { signal }, { signal }]) {
    const error = await t.throwsAsync(client.execute("stop", {}, options), { code: "QMP_TIMEOUT" });
    t.regex((error as { hint?: string }).hint ?? "", new RegExp(`kill -CONT ${child.pid}$`));
  }
  const greeting = await t.throwsAsync(QmpClient.open(path, { greetingMs: 50 }), {
    code: "QMP_TIMEOUT",
  });
  t.regex((greeting as { hint?: string }).hint ?? "", /kill -CONT/);
  child.kill("SIGCONT");
  await t.notThrowsAsync(client.execute("stop", {}));
});
