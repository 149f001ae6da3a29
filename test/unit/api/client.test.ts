import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { createSecureServer } from "node:http2";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import test from "ava";
import { connectPodnet } from "../../../api/client.ts";
import { HealthCheckResponse_ServingStatus } from "../../../api/gen/grpc/health/v1/health_pb.ts";
import type { ExecRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { ServingStatus } from "../../../api/health.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { serve } from "./fixtures/server.ts";
import { curl } from "./fixtures/curl.ts";
import { makeCertificates } from "./fixtures/certificates.ts";
import { routes } from "./fixtures/wire-service.ts";

test("our own client gives back the error that was thrown", async (t) => {
  await using server = await serve(routes());
  using podnet = connectPodnet({ socket: server.h2 });
  const taken = await t.throwsAsync(podnet.pods.create({ spec: { name: "taken" } }), {
    instanceOf: PodnetError,
  });
  t.is(taken?.code, "NAME_IN_USE");
  t.is(taken?.hint, "Choose another");
  t.is(taken?.field, "name");
  t.deepEqual(taken?.details, { holder: "abcdefghijkl" });
  const seen: (string | undefined)[] = [];
  const late = await t.throwsAsync(
    async () => {
      for await (const { event } of podnet.pods.createStream({ spec: { name: "late" } })) {
        seen.push(event.case);
      }
    },
    { instanceOf: PodnetError },
  );
  t.deepEqual(seen, ["started", "finished"]);
  t.deepEqual([late?.code, late?.step], ["AGENT_TIMEOUT", "vm"]);
});

test("unary calls go over HTTP/1.1 if asked, with the same errors, ends and limits", async (t) => {
  await using server = await serve(routes());
  {
    // The socket knows no HTTP/2, so an answer came over HTTP/1.1.
    using podnet = connectPodnet({ socket: server.h1, quickUnary: true });
    t.is((await podnet.pods.create({ spec: { name: "one" } })).pod?.name, "one");
    const taken = await t.throwsAsync(podnet.pods.create({ spec: { name: "taken" } }), {
      instanceOf: PodnetError,
    });
    t.is(taken?.code, "NAME_IN_USE");
    t.deepEqual(taken?.details, { holder: "abcdefghijkl" });
    const names = Array.from({ length: 20 }, (_, i) => `pod-${i}`);
    const made = await Promise.all(names.map((name) => podnet.pods.create({ spec: { name } })));
    t.deepEqual(
      made.map(({ pod }) => pod?.name),
      names,
    );
    const given = AbortSignal.abort();
    const error = await t.throwsAsync(podnet.pods.create({}, { signal: given }));
    t.true(isPodnetError(error, "CANCELLED"));
  }
  {
    using streams = connectPodnet({ socket: server.h2, quickUnary: true });
    const seen: (string | undefined)[] = [];
    await t.throwsAsync(async () => {
      for await (const { event } of streams.pods.createStream({ spec: { name: "late" } }))
        seen.push(event.case);
    });
    t.deepEqual(seen, ["started", "finished"]);
  }
  const nowhere = path.join(server.folder, "nosuch");
  using podnet = connectPodnet({ socket: nowhere, quickUnary: true });
  const lost = await t.throwsAsync(podnet.pods.list({}), { instanceOf: PodnetError });
  t.is(lost?.code, "DAEMON_UNREACHABLE");
  t.is(lost?.details["errno"], "ENOENT");
  t.regex(String(lost?.hint), /Start podnetd/);
});

test("a podnetd that ends during a unary call of HTTP/1.1 is named as the cause", async (t) => {
  const sockets: Socket[] = [];
  const folder = mkdtempSync(path.join(tmpdir(), "podnet-end-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.once("data", () => socket.destroy());
  });
  const socket = path.join(folder, "sock");
  await new Promise<void>((resolve) => {
    server.listen(socket, resolve);
  });
  t.teardown(() => server.close());
  using podnet = connectPodnet({ socket, quickUnary: true });
  const lost = await t.throwsAsync(podnet.pods.list({}), { instanceOf: PodnetError });
  t.is(lost?.code, "DAEMON_UNREACHABLE");
});

test("over TCP both ends show certificates; without one no call is served", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "podnet-tls-"));
  t.teardown(() => {
    rmSync(folder, { recursive: true });
  });
  const ca = await makeCertificates(folder);
  const server = createSecureServer(
    { ...ca.server, ca: ca.ca, requestCert: true, rejectUnauthorized: true, allowHTTP1: true },
    connectNodeAdapter({ routes: routes() }),
  );
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  t.teardown(() => server.close());
  const url = `https://localhost:${(server.address() as AddressInfo).port}`;
  {
    using podnet = connectPodnet({ url, tls: { ca: ca.ca, ...ca.client } });
    t.is((await podnet.pods.create({ spec: { name: "far" } })).pod?.name, "far");
  }
  using foreign = connectPodnet({ url, tls: { ca: ca.ca, cert: "", key: "" } });
  const refused = await t.throwsAsync(foreign.pods.create({}), { instanceOf: PodnetError });
  t.is(refused?.code, "DAEMON_UNREACHABLE");
  t.regex(refused?.hint ?? "", /certificates/);
});

test("a bug in a handler is INTERNAL, without its stack", async (t) => {
  await using server = await serve(routes());
  using podnet = connectPodnet({ socket: server.h2 });
  const error = await t.throwsAsync(podnet.pods.list({}), { instanceOf: PodnetError });
  t.is(error?.code, "INTERNAL");
  t.notRegex((await curl(server.h1, "List", "{}")).body.message ?? "", /\bat \S+:\d+/);
});

test("what the daemon does not serve is UNSUPPORTED", async (t) => {
  await using server = await serve(routes());
  using podnet = connectPodnet({ socket: server.h2 });
  const error = await t.throwsAsync(podnet.node.info({}), { instanceOf: PodnetError });
  t.is(error?.code, "UNSUPPORTED");
});

test("exec carries bytes both ways and the exit code", async (t) => {
  await using server = await serve(routes());
  using podnet = connectPodnet({ socket: server.h2 });
  async function* input(): AsyncGenerator<MessageInitShape<typeof ExecRequestSchema>> {
    yield { input: { case: "start", value: { args: ["cat"] } } };
    yield { input: { case: "stdin", value: Uint8Array.of(0, 255) } };
    yield { input: { case: "closeStdin", value: {} } };
  }
  const outputs: unknown[] = [];
  for await (const { output } of podnet.pods.exec(input())) outputs.push(output.value);
  t.like(outputs[0], { podId: "a" });
  t.deepEqual(outputs[1], Uint8Array.of(0, 255));
  t.like(outputs[2], { code: 3 });
});

test("no daemon, a dead one, and one lost on the way are DAEMON_UNREACHABLE", async (t) => {
  await using server = await serve(routes());
  using absent = connectPodnet({ socket: "/nonexistent/podnet.sock" });
  const none = await t.throwsAsync(absent.pods.list({}), { instanceOf: PodnetError });
  t.is(none?.code, "DAEMON_UNREACHABLE");
  t.is(none?.details["errno"], "ENOENT");
  t.truthy(none?.hint);
  using podnet = connectPodnet({ socket: server.h2 });
  const lost = await t.throwsAsync(
    async () => {
      for await (const event of podnet.pods.watch({})) {
        t.is(event.text, "first");
        await server.kill();
      }
    },
    { instanceOf: PodnetError },
  );
  t.is(lost?.code, "DAEMON_UNREACHABLE");
});

test("a caller who gives up sees CANCELLED, a deadline DEADLINE_EXCEEDED", async (t) => {
  await using server = await serve(routes());
  using podnet = connectPodnet({ socket: server.h2 });
  const controller = new AbortController();
  const watch = async (options: { signal?: AbortSignal; timeoutMs?: number }): Promise<void> => {
    for await (const _event of podnet.pods.watch({}, options)) controller.abort();
  };
  const code = async (done: Promise<void>): Promise<string | undefined> =>
    done.then(
      () => undefined,
      (thrown: unknown) => (isPodnetError(thrown) ? thrown.code : String(thrown)),
    );
  t.is(await code(watch({ timeoutMs: 50 })), "DEADLINE_EXCEEDED");
  t.is(await code(watch({ signal: controller.signal })), "CANCELLED");
});

test("a socket path longer than a sockaddr_un is reached all the same", async (t) => {
  // The server binds a short name for the folder; the client gets the long one.
  await using server = await serve(routes());
  const deep = path.join(server.folder, "d".repeat(100));
  mkdirSync(deep);
  symlinkSync(server.h2, path.join(deep, "podnet.sock"));
  using podnet = connectPodnet({ socket: path.join(deep, "podnet.sock") });
  t.is((await podnet.pods.create({ spec: { name: "far" } })).pod?.name, "far");
});

test("health is watched: known, unknown, changing", async (t) => {
  const serving = new ServingStatus();
  const { SERVICE_UNKNOWN, SERVING, NOT_SERVING } = HealthCheckResponse_ServingStatus;
  const controller = new AbortController();
  const seen: number[] = [];
  for await (const status of serving.watch("x", controller.signal)) {
    seen.push(status);
    if (seen.length === 1) serving.set("x", true);
    if (seen.length === 2) {
      serving.set("x", true);
      serving.set("x", false);
    }
    if (seen.length === 3) controller.abort();
  }
  t.deepEqual(seen, [SERVICE_UNKNOWN, SERVING, NOT_SERVING]);
});
