import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-node";
import test from "ava";
import { fromConnectError } from "../../../api/codes.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { grpcCalls } from "../../peers/grpc-client.ts";
import { serve } from "./fixtures/server.ts";
import { curl } from "./fixtures/curl.ts";
import { routes } from "./fixtures/wire-service.ts";

const exec = promisify(execFile);

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
    ['{"spec":{"nmae":"x"}}', "UNKNOWN_FIELD", "spec.nmae", /^Write name$/],
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
  const [pods, health] = ["podnet.v1.PodService", "grpc.health.v1.Health"] as const;
  const reflection = "grpc.reflection.v1.ServerReflection";
  const symbols = ["podnet.v1.PodService.Create", "no.Such"];
  const { services, files, results } = await grpcCalls(server.h2, [
    {
      service: reflection,
      method: "ServerReflectionInfo",
      messages: symbols.map((fileContainingSymbol) => ({ fileContainingSymbol })),
    },
    { service: health, method: "Check", messages: [{ service: pods }] },
    { service: health, method: "Check", messages: [{ service: "no.Such" }] },
    { service: pods, method: "Create", messages: [{ spec: { name: "web" } }] },
    { service: pods, method: "Create", messages: [{ spec: { name: "taken" } }] },
    { service: pods, method: "Get", messages: [{ idOrName: "x" }] },
    { service: pods, method: "CreateStream", messages: [{ spec: { name: "web" } }] },
    {
      service: pods,
      method: "Exec",
      messages: [
        { start: { idOrName: "web", args: ["cat"] } },
        { stdin: "aGk=" },
        { closeStdin: {} },
      ],
    },
  ]);
  t.deepEqual(services, [pods, health, reflection]);
  t.true(files.includes("podnet/v1/pod_spec.proto"));
  const [reflected, serving, unknown, created, refused, absent, progress, exec] = results;
  t.like(reflected?.answers[1], { errorResponse: { errorCode: 5 } });
  t.deepEqual(serving, { answers: [{ status: "SERVING" }] });
  t.like(unknown?.error, { code: "NOT_FOUND" });
  t.deepEqual(created?.answers, [
    { pod: { id: "abcdefghijkl", name: "web", state: "POD_STATE_RUNNING" } },
  ]);
  t.like(refused?.error, {
    code: "ALREADY_EXISTS",
    message: 'Name "taken" is in use',
    info: { code: "NAME_IN_USE", field: "name", hint: "Choose another" },
  });
  t.like(absent?.error, { code: "NOT_FOUND", info: { code: "POD_NOT_FOUND" } });
  t.is(progress?.answers.length, 3);
  t.deepEqual(exec?.answers, [
    { started: { podId: "a" } },
    { stdout: "aGk=" },
    { exit: { code: 3 } },
  ]);
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
