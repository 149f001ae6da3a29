import { mkdtempSync, readFileSync } from "node:fs";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import { countBinary, countJson } from "../../../../api/count-values.ts";
import {
  CreatePodRequestSchema,
  ListPodsRequestSchema,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { makeCertificates } from "../../api/fixtures/certificates.ts";
import { freePort } from "../../api/fixtures/free-port.ts";
import { openServing, type Serving } from "../../api/fixtures/serving.ts";

const service = "/podnet.v1.PodService";

function session(t: ExecutionContext, { socket }: Serving): ClientHttp2Session {
  const via = connectHttp2("http://podnet", { createConnection: () => connect(socket) });
  via.on("error", () => {});
  t.teardown(() => via.destroy());
  return via;
}

/** What a request is answered with: its body, and the trailers that gRPC says its status in. */
function ask(via: ClientHttp2Session, method: string, type: string, body: Buffer): Promise<string> {
  return new Promise((resolve) => {
    const stream = via.request({
      ":method": "POST",
      ":path": `${service}/${method}`,
      "content-type": type,
    });
    let text = "";
    stream.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
    });
    stream.on("response", (headers) => (text += JSON.stringify(headers)));
    stream.on("trailers", (trailers) => (text += JSON.stringify(trailers)));
    stream.on("error", () => {});
    stream.on("close", () => resolve(text));
    stream.end(body);
  });
}

/** So many labels. */
const labels = (count: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, "v"]));

const envelope = (message: Buffer): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
};

const json = (count: number): Buffer => Buffer.from(JSON.stringify({ labels: labels(count) }));
const binary = (count: number): Buffer =>
  Buffer.from(
    toBinary(ListPodsRequestSchema, create(ListPodsRequestSchema, { labels: labels(count) })),
  );

const ways: readonly (readonly [type: string, body: (count: number) => Buffer])[] = [
  ["application/json", json],
  ["application/proto", binary],
  ["application/grpc", (count) => envelope(binary(count))],
  ["application/grpc-web+json", (count) => envelope(json(count))],
];

for (const [type, body] of ways) {
  test(`labels without number are refused before a message is built of them (${type})`, async (t) => {
    await using serving = await openServing();
    const via = session(t, serving);
    // The most that one may have pass, and are looked at by what knows their names.
    t.notRegex(await ask(via, "List", type, body(64)), /LIMIT_REACHED|resource_exhausted/);
    for (const [count, limit, most] of [
      [3000, "values", "1024 fields and entries"],
      [75_000, "bytes", "262144 bytes"],
    ] as const) {
      const answer = await ask(via, "List", type, body(count));
      t.regex(
        decodeURIComponent(answer),
        new RegExp(`A message to List may have ${most}, and this one has more`),
      );
      t.is(serving.refused.get(`request_${limit}`), 1);
    }
  });
}

test("values are counted on the wire, however they are put into one another", (t) => {
  const spec = {
    name: "web",
    labels: labels(10),
    interfaces: [{ addresses: ["10.0.0.1", "10.0.0.2"] }, {}],
  };
  const bytes = toBinary(CreatePodRequestSchema, create(CreatePodRequestSchema, { spec }));
  // The spec, its name, ten labels with key and value, two interfaces, two addresses.
  t.is(countBinary(CreatePodRequestSchema, bytes, 1000), 1 + 1 + 30 + 2 + 2);
  t.is(countBinary(CreatePodRequestSchema, bytes, 10), 11);
  // One label whose key is given again and again; a field that nothing knows; a message that breaks
  // off.
  const again = Buffer.concat(Array.from({ length: 20 }, () => Buffer.from([10, 0])));
  t.is(countBinary(ListPodsRequestSchema, Buffer.concat([Buffer.from([10, 40]), again]), 1000), 21);
  t.is(countBinary(ListPodsRequestSchema, Buffer.from("a206037878780801", "hex"), 1000), 2);
  t.is(countBinary(ListPodsRequestSchema, Buffer.from([10, 255, 255, 255, 255, 127]), 1000), 1);
  t.is(countJson(Buffer.from('{"a": [1, 2, {"b": "x,{[\\\",,"}], "c": {}}'), 1000), 7);
  t.is(countJson(Buffer.from("[".repeat(1000)), 10), 11);
});

test("another caller waits for one request of a caller that asks much, not for all of them", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "podnet-fairness-"));
  await makeCertificates(folder);
  const at = (name: string): string => path.join(folder, name);
  const port = await freePort();
  const pair = { cert: at("server.crt"), key: at("server.key"), clientCa: at("ca.crt") };
  let listed = 0;
  await using serving = await openServing({
    tcp: { host: "127.0.0.1", port, ...pair },
    access: { viewer: [{ kind: "cert", name: "client" }] },
    pods: {
      list() {
        listed++;
        const until = performance.now() + 2;
        while (performance.now() < until);
        return {};
      },
    },
  });
  const greedy = connectHttp2(`https://localhost:${port}`, {
    ca: readFileSync(at("ca.crt")),
    cert: readFileSync(at("client.crt")),
    key: readFileSync(at("client.key")),
  });
  t.teardown(() => greedy.destroy());
  const other = session(t, serving);
  const get = (): Promise<string> => ask(other, "Get", "application/json", Buffer.from("{}"));
  await get();
  const many = Array.from({ length: 200 }, () =>
    ask(greedy, "List", "application/json", Buffer.from("{}")),
  );
  await Promise.race(many);
  const waited: number[] = [];
  for (let i = 0; i < 5; i++) {
    const before = listed;
    t.regex(await get(), /"?:status"?:200/);
    waited.push(listed - before);
  }
  t.true(listed < 200, "the others were all served before");
  t.true(Math.min(...waited) <= 5, `waited for ${waited.join()} of 200`);
  await Promise.all(many);
});
