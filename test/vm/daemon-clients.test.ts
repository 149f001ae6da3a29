import { readFileSync } from "node:fs";
import test from "ava";
import { type GrpcCall, grpcCalls, type GrpcResult } from "../peers/grpc-client.ts";
import { curl } from "../unit/api/fixtures/curl.ts";
import { joinRig, type Rig } from "./daemon-rig.ts";

// podnetd as programs see it that share no code with it: grpcio's C core under Python, and curl.

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const ask = (method: string, message: object, more: Partial<GrpcCall> = {}): GrpcCall => ({
  service: "podnet.v1.PodService",
  method,
  messages: [message],
  ...more,
});
const web = { idOrName: "web" };
const address = "192.168.123.77";
const spec = { name: "web", labels: { role: "front" }, interfaces: [{ address }] };
const request = { spec, requestId: "one" };
const running = { name: "web", state: "POD_STATE_RUNNING", labels: { role: "front" } };

/** Makes the calls; the answers of each, and no error. */
async function answersOf(...calls: readonly GrpcCall[]): Promise<GrpcResult["answers"][]> {
  const { results } = await grpcCalls(rig.daemon.socket, calls);
  return results.map(({ answers, error }) => {
    if (error !== undefined) throw new Error(JSON.stringify(error));
    return answers;
  });
}

test.serial("reflection reports every service, health that they serve", async (t) => {
  const health = (service: string): GrpcCall => ({
    service: "grpc.health.v1.Health",
    method: "Check",
    messages: [{ service }],
  });
  const own = ["PodService", "NetworkService", "OverlayService", "CniService", "NodeService"].map(
    (name) => `podnet.v1.${name}`,
  );
  const { services, results } = await grpcCalls(
    rig.daemon.socket,
    ["", ...own, "no.Such"].map(health),
  );
  for (const service of own) t.true(services.includes(service), service);
  const unknown = results.at(-1);
  for (const result of results.slice(0, -1))
    t.deepEqual(result, { answers: [{ status: "SERVING" }] });
  t.is(unknown?.error?.code, "NOT_FOUND");
});

test.serial("grpcio creates a pod, sees it, watches it and runs a program in it", async (t) => {
  const exec = [
    { start: { ...web, args: ["sh", "-c", "cat; echo err >&2; exit 7"] } },
    { stdin: Buffer.from("to and fro\n").toString("base64") },
    { closeStdin: {} },
  ];
  const [created, got, listed, none, watched, ran] = await answersOf(
    ask("Create", request),
    ask("Get", web),
    ask("List", { labels: { role: "front" } }),
    ask("List", { labels: { role: "back" } }),
    ask("Watch", web, { take: 2 }),
    ask("Exec", {}, { messages: exec }),
  );
  t.like(created?.[0], { pod: running });
  t.like(got?.[0], {
    pod: { ...running, interfaces: { 0: { addresses: [`${address}/24`] }, length: 1 } },
  });
  t.like(listed?.[0], { pods: { 0: running, length: 1 } });
  t.is(none?.[0]?.["pods"], undefined);
  t.like(watched, { 0: { kind: "KIND_SNAPSHOT", pod: running }, 1: { kind: "KIND_SYNCED" } });
  const bytes = (stream: string): string =>
    ran?.map((each) => Buffer.from((each[stream] as string) ?? "", "base64").toString()).join("") ??
    "";
  t.is(bytes("stdout"), "to and fro\n");
  t.is(bytes("stderr"), "err\n");
  t.deepEqual(ran?.at(-1), { exit: { code: 7 } });
  await rig.lab.host.ping(address, 1);
});

test.serial("grpcio reads what is wrong from the status and its detail", async (t) => {
  const { results } = await grpcCalls(rig.daemon.socket, [
    ask("Create", { spec: { name: "web" } }),
    ask("Create", { spec: { interfaces: [{ address: "10.0.0.1" }] } }),
    ask("Get", { idOrName: "missing" }),
    ask("Exec", {}, { messages: [{ start: { ...web, args: ["no-such-program"] } }] }),
  ]);
  const [taken, outside, missing, program] = results;
  t.like(taken?.error, { code: "ALREADY_EXISTS", info: { code: "NAME_IN_USE", field: "name" } });
  t.like(outside?.error, {
    code: "INVALID_ARGUMENT",
    info: { code: "ADDRESS_OUT_OF_RANGE", field: "interfaces[0].address" },
  });
  t.like(missing?.error, { code: "NOT_FOUND", info: { code: "POD_NOT_FOUND" } });
  for (const result of [taken, outside, missing]) {
    t.is(result?.error?.message, result?.error?.info?.["message"] as string);
    t.truthy(result?.error?.info?.["hint"]);
  }
  t.deepEqual(program?.answers.at(-1), { exit: { code: 127 } });
});

test.serial("curl makes the same calls in JSON", async (t) => {
  const call = async (method: string, body: object): Promise<Record<string, unknown>> => {
    const answer = await curl(rig.daemon.socket, method, JSON.stringify(body));
    t.is(answer.status, 200, JSON.stringify(answer.body));
    return answer.body;
  };
  // The request that grpcio has made: asked again, it answers with the pod there is.
  t.like(await call("Create", request), { pod: running });
  t.like(await call("Get", web), { pod: running });
  t.like(await call("List", {}), { pods: { 0: running, length: 1 } });
  const { plan } = await call("Create", { planOnly: true });
  t.true((plan as { sections: unknown[] }).sections.length > 3);
});

test.serial("an error in JSON has Connect's shape, with all there is to know", async (t) => {
  const { status, body } = await curl(rig.daemon.socket, "Create", '{"spec":{"name":"web"}}');
  t.is(status, 409);
  t.deepEqual(Object.keys(body).toSorted(), ["code", "details", "message"]);
  t.is(body.code, "already_exists");
  t.is(body.details?.length, 1);
  t.like(body.details?.[0], {
    type: "podnet.v1.ErrorInfo",
    debug: { code: "NAME_IN_USE", message: body.message, field: "name" },
  });
  t.truthy(body.details?.[0]?.debug["hint"]);
  const missing = await curl(rig.daemon.socket, "Get", '{"idOrName":"missing"}');
  t.is(missing.status, 404);
  t.like(missing.body.details?.[0]?.debug, { code: "POD_NOT_FOUND" });
});

test.serial("podnet prints an error as docs/reference/errors.md shows it", async (t) => {
  const page = readFileSync(new URL("../../docs/reference/errors.md", import.meta.url), "utf8");
  const [, shown] = /^```\n(error: [^]*?)^```$/m.exec(page) ?? [];
  const { stderr, exitCode } = await rig.daemon.tryPodnet("create", "--name", "web");
  t.is(exitCode, 5);
  const anyPod = (text: string): string => text.replace(/pod [a-z2-7]{12}/, "pod ID");
  t.is(anyPod(stderr), anyPod(shown ?? ""));
});

test.serial("grpcio deletes the pod, curl finds it gone", async (t) => {
  const [deleted] = await answersOf(ask("Delete", web));
  t.like(deleted?.[0], { name: "web", existed: true });
  const again = await curl(rig.daemon.socket, "Delete", JSON.stringify(web));
  t.deepEqual(again, { status: 200, body: { name: "web" } });
  t.deepEqual(await rig.changes(), ["+ row requests one"]);
});

test.serial("podnet distinguishes a daemon that is not there from a pod that is not", async (t) => {
  const missing = await rig.daemon.tryPodnet("get", "missing");
  t.is(missing.exitCode, 4);
  t.regex(missing.stderr, /POD_NOT_FOUND/);
  await rig.daemon.stop();
  const nothing = await rig.daemon.tryPodnet("list");
  t.is(nothing.exitCode, 3);
  t.regex(nothing.stderr, /DAEMON_UNREACHABLE[\s\S]*hint: Start podnetd/);
});
