import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { type ConnectRouter, createClient, type ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter, createGrpcWebTransport } from "@connectrpc/connect-node";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { fromConnectError } from "../../api/codes.ts";
import { file_grpc_health_v1_health } from "../../api/gen/grpc/health/v1/health_pb.ts";
import {
  Health,
  HealthCheckResponse_ServingStatus,
} from "../../api/gen/grpc/health/v1/health_pb.ts";
import { file_grpc_reflection_v1_reflection } from "../../api/gen/grpc/reflection/v1/reflection_pb.ts";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { ExecRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addHealth, ServingStatus } from "../../api/health.ts";
import { addReflection } from "../../api/reflection.ts";
import { addService } from "../../api/service.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { serve } from "./api-fixtures/server.ts";

const exec = promisify(execFile);

// These handlers play podnetd, which the daemon's own tests run for real: what is tested here is the wire.
const pods: Partial<ServiceImpl<typeof PodService>> = {
  create({ spec }) {
    if (spec?.name === "taken") {
      throw new PodnetError("NAME_IN_USE", 'Name "taken" is in use', {
        field: "name",
        hint: "Choose another",
        details: { holder: "abcdefghijkl" },
      });
    }
    return { pod: { id: "abcdefghijkl", name: spec?.name ?? "", state: PodState.RUNNING } };
  },
  async *createStream({ spec }) {
    yield { event: { case: "started", value: { step: "vm.boot", title: "Booting the VM" } } };
    yield { event: { case: "finished", value: { step: "vm.boot", durationMs: 1.5 } } };
    if (spec?.name === "late") throw new PodnetError("AGENT_TIMEOUT", "No answer", { step: "vm" });
    yield { event: { case: "pod", value: { name: spec?.name ?? "" } } };
  },
  get() {
    throw new PodnetError("POD_NOT_FOUND", "There is no such pod");
  },
  list() {
    throw new TypeError("a bug");
  },
  async *exec(requests) {
    for await (const { input } of requests) {
      if (input.case === "start") yield { output: { case: "started", value: { podId: "a" } } };
      if (input.case === "stdin") yield { output: { case: "stdout", value: input.value } };
      if (input.case === "closeStdin") yield { output: { case: "exit", value: { code: 3 } } };
    }
  },
  async *watch(_request, context) {
    yield { cursor: 1n, text: "first" };
    await new Promise((resolve) => {
      context.signal.addEventListener("abort", resolve, { once: true });
    });
  },
};

const routes =
  (serving = new ServingStatus()) =>
  (router: ConnectRouter): void => {
    addService(router, PodService, pods);
    serving.set(PodService.typeName, true);
    addHealth(router, serving);
    addReflection(router, [PodService, Health]);
  };

async function curl(
  socket: string,
  method: string,
  body: string,
  ...args: string[]
): Promise<{
  status: number;
  body: {
    code?: string;
    message?: string;
    details?: { type: string; debug: Record<string, unknown> }[];
  } & Record<string, unknown>;
}> {
  const { stdout } = await exec("curl", [
    "-sS",
    "--max-time",
    "20",
    "--unix-socket",
    socket,
    "-w",
    "\n%{http_code}",
    "-H",
    "content-type: application/json",
    "--data-binary",
    body,
    ...args,
    `http://podnet/podnet.v1.PodService/${method}`,
  ]);
  const end = stdout.lastIndexOf("\n");
  return { status: Number(stdout.slice(end + 1)), body: JSON.parse(stdout.slice(0, end)) };
}

test("curl speaks JSON over HTTP/1.1 and HTTP/2", async (t) => {
  await using server = await serve(routes());
  const wanted = { pod: { id: "abcdefghijkl", name: "web", state: "POD_STATE_RUNNING" } };
  const one = await curl(server.h1, "Create", '{"spec":{"name":"web"}}');
  t.deepEqual(one, { status: 200, body: wanted });
  const two = await curl(server.h2, "Create", '{"spec":{"name":"web"}}', "--http2-prior-knowledge");
  t.deepEqual(two, { status: 200, body: wanted });
});

test("an error is a status and a typed detail", async (t) => {
  await using server = await serve(routes());
  const { status, body } = await curl(server.h1, "Create", '{"spec":{"name":"taken"}}');
  t.is(status, 409);
  t.is(body.code, "already_exists");
  t.is(body.details?.[0]?.type, "podnet.v1.ErrorInfo");
  t.deepEqual(body.details?.[0]?.debug, {
    code: "NAME_IN_USE",
    message: 'Name "taken" is in use',
    hint: "Choose another",
    field: "name",
    details: { holder: "abcdefghijkl" },
  });
});

test("JSON that does not fit is refused with its field", async (t) => {
  await using server = await serve(routes());
  for (const [text, code, field, hint] of [
    ['{"spec":{"nmae":"x"}}', "UNKNOWN_FIELD", "spec.nmae", /name/],
    [
      '{"spec":{"interfaces":[{},{"MAC":"x"}]}}',
      "UNKNOWN_FIELD",
      "spec.interfaces[1].MAC",
      /^Write mac$/,
    ],
    [
      '{"spec":{"resources":{"memory-mib":1}}}',
      "UNKNOWN_FIELD",
      "spec.resources.memory-mib",
      /^Write memory_mib$/,
    ],
    ['{"force":true}', "UNKNOWN_FIELD", "force", /spec/],
    ['{"spec":{"name":7}}', "INVALID_ARGUMENT", "name", undefined],
    ['{"spec":', "INVALID_ARGUMENT", undefined, undefined],
    ["[]", "INVALID_ARGUMENT", undefined, undefined],
    ['"\xff"', "INVALID_ARGUMENT", undefined, undefined],
  ] as const) {
    const { status, body } = await curl(server.h1, "Create", text);
    t.is(status, 400, text);
    const info = body.details?.[0]?.debug as { code: string; field?: string; hint?: string };
    t.is(info.code, code, text);
    t.is(info.field, field, text);
    if (hint !== undefined) t.regex(info.hint ?? "", hint);
  }
});

test("a stream refuses unknown fields too", async (t) => {
  await using server = await serve(routes());
  const body = Buffer.from('{"spec":{"nmae":"x"}}');
  const frame = Buffer.concat([Buffer.alloc(5), body]);
  frame.writeUInt32BE(body.length, 1);
  const file = path.join(server.folder, "frame");
  writeFileSync(file, frame);
  const { stdout } = await exec("curl", [
    "-sS",
    "--max-time",
    "20",
    "--unix-socket",
    server.h1,
    "--output",
    "-",
    "-H",
    "content-type: application/connect+json",
    "--data-binary",
    `@${file}`,
    "http://podnet/podnet.v1.PodService/CreateStream",
  ]);
  t.regex(stdout, /"code":"UNKNOWN_FIELD"/);
});

test("both spellings of a field are read", async (t) => {
  await using server = await serve(routes());
  for (const spec of ['{"resources":{"memory_mib":64}}', '{"resources":{"memoryMib":64}}']) {
    t.is((await curl(server.h1, "Create", `{"spec":${spec}}`)).status, 200);
  }
});

test("a request beyond 1 MiB is refused", async (t) => {
  await using server = await serve(routes());
  const file = path.join(server.folder, "big");
  writeFileSync(file, `{"spec":{"name":"${"x".repeat(1 << 20)}"}}`);
  const { status, body } = await curl(server.h1, "Create", `@${file}`);
  t.deepEqual([status, body.code], [429, "resource_exhausted"]);
});

test("grpcio for Python: reflection, health, calls, streams, typed errors", async (t) => {
  await using server = await serve(routes());
  const standards = path.join(server.folder, "standards");
  const file = [file_grpc_health_v1_health.proto, file_grpc_reflection_v1_reflection.proto];
  writeFileSync(
    standards,
    toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file })),
  );
  // Debian's own Python has python3-grpcio; another that comes first on the PATH has not.
  const client = path.join(import.meta.dirname, "api-fixtures/client.py");
  const { stdout } = await exec("/usr/bin/python3", [client, server.h2, standards]);
  const out = JSON.parse(stdout) as Record<string, unknown>;
  t.deepEqual(out["services"], [
    "podnet.v1.PodService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
  ]);
  t.is(out["missing"], 5);
  t.true((out["files"] as string[]).includes("podnet/v1/pod_spec.proto"));
  t.deepEqual(out["serving"], { status: "SERVING" });
  t.like(out["unknown"], { code: "NOT_FOUND" });
  t.deepEqual(out["created"], {
    pod: { id: "abcdefghijkl", name: "web", state: "POD_STATE_RUNNING" },
  });
  t.deepEqual(out["refused"], {
    code: "ALREADY_EXISTS",
    message: 'Name "taken" is in use',
    typed: true,
  });
  t.like(out["absent"], { code: "NOT_FOUND", typed: true });
  t.is((out["progress"] as unknown[]).length, 3);
  t.deepEqual(out["exec"], [
    { started: { podId: "a" } },
    { stdout: "aGk=" },
    { exit: { code: 3 } },
  ]);
});

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

test("gRPC-Web is served too", async (t) => {
  await using server = await serve(routes());
  const transport = createGrpcWebTransport({
    baseUrl: "http://podnet",
    httpVersion: "1.1",
    nodeOptions: { socketPath: server.h1 },
  });
  const client = createClient(PodService, transport);
  t.is((await client.create({ spec: { name: "web" } })).pod?.name, "web");
  const error = await t.throwsAsync(client.create({ spec: { name: "taken" } }));
  t.is(fromConnectError(error).code, "NAME_IN_USE");
});

test("over TCP both ends show certificates; without one nobody is served", async (t) => {
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
  using stranger = connectPodnet({ url, tls: { ca: ca.ca, cert: "", key: "" } });
  const refused = await t.throwsAsync(stranger.pods.create({}), { instanceOf: PodnetError });
  t.is(refused?.code, "DAEMON_UNREACHABLE");
  t.regex(refused?.hint ?? "", /certificates/);
});

interface Pair {
  readonly cert: string;
  readonly key: string;
}

/** A certificate authority and what it signed for both ends, by openssl. */
async function makeCertificates(
  folder: string,
): Promise<{ readonly ca: string; readonly server: Pair; readonly client: Pair }> {
  const at = (name: string): string => path.join(folder, name);
  const read = (name: string): string => readFileSync(at(name), "utf8");
  const fresh = (name: string, ...rest: string[]): Promise<unknown> =>
    exec("openssl", [
      ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(" "),
      "-subj",
      `/CN=${name}`,
      "-keyout",
      at(`${name}.key`),
      "-out",
      at(`${name}.crt`),
      ...rest,
    ]);
  const signed = ["-CA", at("ca.crt"), "-CAkey", at("ca.key")];
  await fresh("ca");
  await fresh("server", ...signed, "-addext", "subjectAltName=DNS:localhost");
  await fresh("client", ...signed);
  const pair = (name: string): Pair => ({ cert: read(`${name}.crt`), key: read(`${name}.key`) });
  return { ca: read("ca.crt"), server: pair("server"), client: pair("client") };
}

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
