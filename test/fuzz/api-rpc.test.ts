import { readFileSync } from "node:fs";
import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { connect } from "node:net";
import { type DescMethod, fromBinary } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import test from "ava";
import { ErrorInfoSchema } from "../../api/gen/podnet/v1/error_pb.ts";
import { Health } from "../../api/gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../api/gen/grpc/reflection/v1/reflection_pb.ts";
import { CniService } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { ImageService } from "../../api/gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PolicyService } from "../../api/gen/podnet/v1/policy_service_pb.ts";
import type { Rig } from "../vm/daemon-rig.ts";
import { create, openStandInRig } from "../vm/standin-rig.ts";
import { errorCodes } from "../../core/errors.ts";
import { type FuzzRequest, randomRequest } from "./api-request.ts";
import { fixtures, writeFound } from "./engine/corpus.ts";
import { Random, runSeed } from "./engine/random.ts";

// Every method of a real podnetd, by every protocol, with requests that are nearly right and such
// that are not at all.

const seed = runSeed();
const full = process.env["PODNET_TEST_FULL"] === "1";
const perMethod = Number(process.env["PODNET_FUZZ_INPUTS"] ?? (full ? 20_000 : 64));
const services = [
  PodService,
  NetworkService,
  PolicyService,
  OverlayService,
  CniService,
  ImageService,
  NodeService,
  Health,
  ServerReflection,
];
const methods = services.flatMap((service) => service.methods);

const config = "quarantine_s = 0\n[limits]\nrequests_per_s = 1000000\ncreates_per_caller = 4\n";
/** One whose pod is looked at, and one where whatever is asked may happen. */
let rig: Rig;
let throwaway: Rig;
test.serial.before(async () => {
  rig = await openStandInRig(config);
  await create(rig.client, "one");
  throwaway = await openStandInRig(config);
  await create(throwaway.client, "one");
});
test.serial.after.always(async () => {
  await throwaway?.[Symbol.asyncDispose]();
  await rig?.[Symbol.asyncDispose]();
});

const changing = [
  "Create",
  "CreateStream",
  "Start",
  "Delete",
  "Down",
  "FillPools",
  "DrainPools",
  "LogLevel",
  "Update",
  "Stop",
  "Pause",
  "Resume",
  "AddInterface",
  "UpdateInterface",
  "RemoveInterface",
  "PublishPorts",
  "UnpublishPorts",
];
const rigFor = ({ name }: DescMethod): Rig => (changing.includes(name) ? throwaway : rig);

interface Outcome {
  /** Of HTTP; 0 when nothing came. */
  readonly status: number;
  /** Nothing had come by the deadline, and the request was given up. */
  readonly givenUp: boolean;
  /** How its session ended, when that was before it. */
  readonly lost: string | undefined;
  readonly body: Buffer;
  /** gRPC's; in the headers when nothing else was sent. */
  readonly trailers: Readonly<Record<string, unknown>>;
}

/**
 * How long an answer is followed that does not end, and waited for that does not begin,
 * milliseconds. A verify may take its sources' ten seconds twice.
 */
const limitMs = 150;
const unaryTimeoutMs = 60_000;

function send(
  session: ClientHttp2Session,
  { path, headers, body }: FuzzRequest,
  beginMs: number,
): Promise<Outcome> {
  return new Promise((resolve) => {
    const stream = session.request({ ":method": "POST", ":path": path, ...headers });
    let status = 0;
    let givenUp = false;
    let trailers: Record<string, unknown> = {};
    const chunks: Buffer[] = [];
    const done = (): void => {
      clearTimeout(timer);
      const lost = status === 0 && !givenUp ? sessionEnds.get(session) : undefined;
      resolve({ status, givenUp, lost, body: Buffer.concat(chunks), trailers });
    };
    let timer = setTimeout(() => {
      givenUp = true;
      stream.close();
    }, beginMs);
    stream.on("response", (got) => {
      status = got[":status"] ?? 0;
      trailers = { ...got };
      clearTimeout(timer);
      timer = setTimeout(() => stream.close(), limitMs);
    });
    stream.on("trailers", (got) => {
      trailers = { ...trailers, ...got };
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("error", () => {});
    stream.once("end", () => setImmediate(done));
    stream.once("close", done);
    stream.end(body);
  });
}

interface Failure {
  readonly status: string | number;
  /** podnet's own code, of the `ErrorInfo` that came with it. */
  readonly code: string | undefined;
  readonly message: string;
}

/** What an answer says went wrong; undefined when nothing did. */
function failureOf({ status, body, trailers }: Outcome): Failure | undefined {
  const grpc = trailers["grpc-status"];
  if (typeof grpc === "string") {
    if (grpc === "0") return undefined;
    const details = trailers["grpc-status-details-bin"];
    return {
      status: Number(grpc),
      code: typeof details === "string" ? infoIn(details) : undefined,
      message: String(trailers["grpc-message"]),
    };
  }
  if (body.includes("grpc-status:")) {
    const found = /grpc-status: ?(\d+)/.exec(body.toString("latin1"))?.[1] ?? "0";
    const details = /grpc-status-details-bin: ?([A-Za-z0-9+/=]+)/.exec(
      body.toString("latin1"),
    )?.[1];
    if (found === "0") return undefined;
    const code = details === undefined ? undefined : infoIn(details);
    return { status: Number(found), code, message: body.toString("latin1") };
  }
  const error = /\{"(?:code|error)":.*\}$/s.exec(body.toString("utf8"))?.[0];
  if (error === undefined)
    return status === 200 ? undefined : { status, code: undefined, message: "" };
  const parsed = JSON.parse(error) as { error?: ConnectFailure } & ConnectFailure;
  const { code, message = "", details } = parsed.error ?? parsed;
  return { status: code ?? status, code: details?.[0]?.debug?.code, message };
}

interface ConnectFailure {
  readonly code?: string;
  readonly message?: string;
  readonly details?: readonly { readonly debug?: { readonly code?: string } }[];
}

/** The code in a google.rpc.Status; its one detail is an ErrorInfo. */
function infoIn(base64: string): string | undefined {
  const bytes = base64Decode(base64.replaceAll("-", "+").replaceAll("_", "/"));
  // The Any's value is the last field of the last field: found by its type's name.
  const text = Buffer.from(bytes).toString("latin1");
  const at = text.indexOf("podnet.v1.ErrorInfo");
  if (at < 0) return undefined;
  let offset = at + "podnet.v1.ErrorInfo".length + 1;
  let length = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[offset++] as number;
    length |= (byte & 127) << shift;
    if (byte < 128) break;
  }
  return fromBinary(ErrorInfoSchema, bytes.subarray(offset, offset + length)).code;
}

const known: readonly (string | undefined)[] = errorCodes;

/** What is wrong with an answer. A refusal says why with a code of ours, whoever refuses. */
function judge(outcome: Outcome, { methodKind }: DescMethod): string | undefined {
  // A stream that has nothing to say does not even begin to answer.
  if (outcome.givenUp) return methodKind === "unary" ? "no answer" : undefined;
  if (outcome.lost !== undefined) return `lost with its session, ${outcome.lost}`;
  const failure = failureOf(outcome);
  if (failure === undefined) return undefined;
  const { status, code, message } = failure;
  if (code === "INTERNAL") return `INTERNAL: ${message}`;
  return known.includes(code) ? undefined : `${status} with the code ${code}: ${message}`;
}

/** Resident memory of the daemon, MiB. */
const rss = (): number =>
  Number(
    /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${rig.daemon.process.pid}/status`, "utf8"))?.[1],
  ) / 1024;

/** Requests over one session; a server may end one that has broken the protocol often enough. */
const perSession = Math.min(perMethod, 120);

/** What ended sessions that podnetd ended. */
const sessionEnds = new WeakMap<ClientHttp2Session, string>();

const openSession = (to: Rig): ClientHttp2Session => {
  const session = connectHttp2("http://podnet", {
    createConnection: () => connect(to.daemon.socket),
  });
  const ended = (why: string): void => {
    sessionEnds.set(session, `${sessionEnds.get(session) ?? ""}${why} at ${Date.now()}; `);
  };
  session.on("error", (error) => ended(error.message));
  session.on("goaway", (code, last) => ended(`GOAWAY ${code}, last stream ${last}`));
  session.on("close", () => ended("closed"));
  return session;
};

/** A request as a fixture of the corpus holds it, its body in base64. */
interface Fixture extends Omit<FuzzRequest, "body"> {
  readonly body: string;
}

const asFixture = ({ path, headers, body }: FuzzRequest): string =>
  JSON.stringify({ path, headers, body: Buffer.from(body).toString("base64") });

interface Tally {
  readonly wrong: string[];
  requests: number;
  refused: number;
  givenUp: number;
}

async function fuzz(method: DescMethod, random: Random): Promise<Tally> {
  const tally: Tally = { wrong: [], requests: 0, refused: 0, givenUp: 0 };
  const to = rigFor(method);
  const beginMs = method.methodKind === "unary" ? unaryTimeoutMs : 10 * limitMs;
  const workers = method.name === "Down" ? 1 : 8;
  while (tally.requests < perMethod) {
    const session = openSession(to);
    const worker = async (): Promise<void> => {
      for (let i = 0; i < perSession / workers && !session.closed; i++) {
        const request = randomRequest(method, random);
        tally.requests++;
        const outcome = await send(session, request, beginMs);
        // A down that has happened takes the session with it.
        if (outcome.status === 0 && method.name === "Down") break;
        const found = judge(outcome, method);
        if (outcome.givenUp) tally.givenUp++;
        else if (failureOf(outcome) !== undefined) tally.refused++;
        if (found === undefined) continue;
        const file = writeFound("crash", "api-rpc", Buffer.from(asFixture(request)));
        tally.wrong.push(`${found}\n${file}\n${asFixture(request).slice(0, 2000)}`);
      }
    };
    await Promise.all(Array.from({ length: workers }, worker));
    session.destroy();
    if (changing.includes(method.name)) await tidy(to, method.name === "Down");
  }
  return tally;
}

/**
 * Takes away what has come to be, and leaves one pod again; a daemon that was taken down starts
 * again.
 */
async function tidy(to: Rig, mayHaveEnded: boolean): Promise<void> {
  if (mayHaveEnded && (await ended(to))) await to.restart("stop");
  const { pods } = await to.client.pods.list({});
  const isWell = ({ name, state }: Pod): boolean => name === "one" && state === PodState.RUNNING;
  await Promise.all(
    pods.map(async (pod) => {
      if (!isWell(pod)) await to.client.pods.delete({ idOrName: pod.id, force: true });
    }),
  );
  if (!pods.some(isWell)) await create(to.client, "one");
  const { networks } = await to.client.networks.list({});
  for (const { name, default: configured } of networks)
    if (!configured) await to.client.networks.delete({ name });
}

/** Whether the daemon ends or has ended: one that ends takes no connections any more. */
const ended = (to: Rig): Promise<boolean> =>
  to.client.node.info({}, { timeoutMs: 20_000 }).then(
    () => false,
    () => true,
  );

test.serial("what once was answered without a code is refused with one", async (t) => {
  const found = fixtures("api-rpc");
  t.true(found.length > 0);
  const session = openSession(throwaway);
  for (const { file, bytes } of found) {
    const { body, ...asked } = JSON.parse(Buffer.from(bytes).toString()) as Fixture;
    const request = { ...asked, body: Buffer.from(body, "base64") };
    const method = methods.find(
      ({ parent, name }) => asked.path.split("?")[0] === `/${parent.typeName}/${name}`,
    );
    if (method === undefined) throw new Error(`${file} asks for a method there is not`);
    const outcome = await send(session, request, unaryTimeoutMs);
    t.is(judge(outcome, method), undefined, file);
    t.not(failureOf(outcome), undefined, file);
  }
  session.destroy();
  await tidy(throwaway, false);
});

for (const method of methods) {
  const name = `${method.parent.name}.${method.name}`;
  test.serial(
    `${name}: whatever is asked is answered, or refused with a typed error`,
    async (t) => {
      t.timeout(3_600_000);
      t.log(`PODNET_SEED=${seed}`);
      const random = new Random(seed + methods.indexOf(method));
      const { wrong, requests, refused, givenUp } = await fuzz(method, random);
      t.log(`${requests} requests, ${refused} refused, ${givenUp} given up`);
      t.deepEqual(
        wrong.slice(0, 3),
        [],
        `PODNET_SEED=${seed}: ${wrong.length} answers are not typed`,
      );
      t.is(rigFor(method).daemon.process.exitCode, null, `PODNET_SEED=${seed} ended podnetd`);
    },
  );
}

test.serial("after all of it podnetd is as it was: alive, small, its pod running", async (t) => {
  t.regex(await rig.daemon.podnet("info"), /^You +uid 0, gid 0: admin$/m);
  t.regex(await rig.daemon.podnet("list"), /^one .* running /m);
  t.true(rss() < 512, `${rss()} MiB`);
  for (const log of [rig.daemon.log(), throwaway.daemon.log()]) {
    t.notRegex(log, /"code":"INTERNAL"/);
    for (const line of log.trim().split("\n")) t.notThrows(() => JSON.parse(line) as unknown, line);
  }
});
