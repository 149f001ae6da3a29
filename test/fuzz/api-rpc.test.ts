import { readFileSync } from "node:fs";
import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { connect } from "node:net";
import { type DescMethod, fromBinary } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import test from "ava";
import { ErrorInfoSchema } from "../../api/gen/podnet/v1/error_pb.ts";
import { Health } from "../../api/gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../api/gen/grpc/reflection/v1/reflection_pb.ts";
import { NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Rig } from "../vm/daemon-rig.ts";
import { create, openStandInRig } from "../vm/standin-rig.ts";
import { type FuzzRequest, randomRequest } from "./api-request.ts";
import { Random, runSeed } from "./engine/random.ts";

// Every method of a real podnetd, by every protocol, with requests that are nearly right and such that are not at all.

const seed = runSeed();
const perMethod = process.env["PODNET_TEST_FULL"] === "1" ? 20_000 : 120;
const services = [PodService, NetworkService, NodeService, Health, ServerReflection];
const methods = services.flatMap((service) => service.methods);

let rig: Rig;
test.serial.before(async () => {
  rig = await openStandInRig("quarantine_s = 0\n[limits]\nrequests_per_s = 1000000\n");
  await create(rig.client, "one");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

interface Outcome {
  readonly status: number;
  readonly body: Buffer;
  /** gRPC's; in the headers when nothing else was sent. */
  readonly trailers: Readonly<Record<string, unknown>>;
}

/** How long a stream is followed that does not end, milliseconds. */
const patienceMs = 150;

function send(session: ClientHttp2Session, { path, headers, body }: FuzzRequest): Promise<Outcome> {
  return new Promise((resolve) => {
    const stream = session.request({ ":method": "POST", ":path": path, ...headers });
    let status = 0;
    let trailers: Record<string, unknown> = {};
    const chunks: Buffer[] = [];
    const done = (): void => {
      clearTimeout(timer);
      resolve({ status, body: Buffer.concat(chunks), trailers });
    };
    let timer: NodeJS.Timeout | undefined;
    stream.on("response", (got) => {
      status = got[":status"] ?? 0;
      trailers = { ...got };
      timer = setTimeout(() => stream.close(), patienceMs);
    });
    stream.on("trailers", (got) => {
      trailers = { ...trailers, ...got };
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("error", () => {});
    stream.once("end", () => setImmediate(done));
    stream.once("close", done);
    // A watch that has nothing to say does not even begin to answer.
    setTimeout(() => {
      if (status === 0) stream.close();
    }, 10 * patienceMs).unref();
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

/** gRPC's 2 and 13 and Connect's names of them: what nobody has thought of. */
const untold: readonly (string | number)[] = [2, 13, "unknown", "internal", 500, 0];

function judge(outcome: Outcome): string | undefined {
  const failure = failureOf(outcome);
  if (failure === undefined) return undefined;
  const { status, code, message } = failure;
  if (code === "INTERNAL") return `INTERNAL: ${message}`;
  if (code === undefined && untold.includes(status)) return `${status} without a code: ${message}`;
  return undefined;
}

/** Resident memory of the daemon, MiB. */
const rss = (): number =>
  Number(
    /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${rig.daemon.process.pid}/status`, "utf8"))?.[1],
  ) / 1024;

/** Requests over one session; a server may end one that has broken the protocol often enough. */
const perSession = 120;

async function fuzz(method: DescMethod, random: Random): Promise<string[]> {
  const wrong: string[] = [];
  for (let done = 0; done < perMethod; done += perSession) {
    const session = connectHttp2("http://podnet", {
      createConnection: () => connect(rig.daemon.socket),
    });
    session.on("error", () => {});
    const lane = async (): Promise<void> => {
      for (let i = 0; i < perSession / 8; i++) {
        const request = randomRequest(method, random);
        const found = judge(await send(session, request));
        if (found === undefined) continue;
        const body = Buffer.from(request.body).toString("base64").slice(0, 2000);
        wrong.push(`${found}\n${JSON.stringify({ ...request, body })}`);
      }
    };
    await Promise.all(Array.from({ length: 8 }, lane));
    session.destroy();
  }
  return wrong;
}

for (const method of methods) {
  const name = `${method.parent.name}.${method.name}`;
  test.serial(
    `${name}: whatever is asked is answered, or refused with a typed error`,
    async (t) => {
      t.timeout(3_600_000);
      t.log(`PODNET_SEED=${seed}`);
      const random = new Random(seed + methods.indexOf(method));
      const wrong = await fuzz(method, random);
      t.deepEqual(
        wrong.slice(0, 3),
        [],
        `PODNET_SEED=${seed}: ${wrong.length} answers are not typed`,
      );
      t.is(rig.daemon.process.exitCode, null, `PODNET_SEED=${seed} ended podnetd`);
    },
  );
}

test.serial("after all of it podnetd is as it was: alive, small, its pod running", async (t) => {
  t.regex(await rig.daemon.podnet("info"), /^You +uid 0, gid 0: admin$/m);
  t.true(rss() < 512, `${rss()} MiB`);
  const log = rig.daemon.log();
  t.notRegex(log, /"code":"INTERNAL"/);
  for (const line of log.trim().split("\n")) t.notThrows(() => JSON.parse(line) as unknown, line);
});
