import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import path from "node:path";
import { type ConnectionOptions, connect } from "node:tls";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { makeCertificates } from "../../api/fixtures/certificates.ts";
import { freePort } from "../../api/fixtures/free-port.ts";
import { openServing, type Serving } from "../../api/fixtures/serving.ts";

const run = promisify(execFile);
const folder = mkdtempSync(path.join(tmpdir(), "podnet-tls-"));
const elsewhere = mkdtempSync(path.join(tmpdir(), "podnet-tls-"));
const at = (name: string): string => path.join(folder, name);

const openssl = (...args: string[]): Promise<unknown> => run("openssl", args);

/** A client certificate signed by our authority. */
async function makeClient(name: string, subject: string, ...more: string[]): Promise<void> {
  const key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(" ");
  const made = ["-subj", subject, "-keyout", at(`${name}.key`), "-out", at(`${name}.csr`)];
  await openssl("req", ...key, ...made, ...more);
  const authority = ["-CA", at("ca.crt"), "-CAkey", at("ca.key"), "-copy_extensions", "copy"];
  const days = name === "expired" ? "-1" : "2";
  const signed = ["-in", at(`${name}.csr`), "-out", at(`${name}.crt`), "-days", days];
  await openssl("x509", "-req", ...signed, ...authority);
}

test.before(async () => {
  await makeCertificates(folder);
  await makeCertificates(elsewhere);
  await makeClient("expired", "/CN=client");
  await makeClient("named", "/CN=x", "-addext", "subjectAltName=URI:spiffe://podnet/ops");
  await makeClient("unknown", "/CN=unknown");
  await makeClient("nameless", "/");
});

interface ServingTls extends AsyncDisposable {
  readonly port: number;
  readonly serving: Serving;
}

async function open(): Promise<ServingTls> {
  const port = await freePort();
  const serving = await openServing({
    tcp: {
      host: "127.0.0.1",
      port,
      cert: at("server.crt"),
      key: at("server.key"),
      clientCa: at("ca.crt"),
    },
    access: {
      viewer: [{ kind: "cert", name: "client" }],
      admin: [{ kind: "cert", name: "spiffe://podnet/ops" }],
    },
  });
  return { port, serving, [Symbol.asyncDispose]: () => serving[Symbol.asyncDispose]() };
}

const identity = (name: string, dir = folder) => ({
  cert: readFileSync(path.join(dir, `${name}.crt`)),
  key: readFileSync(path.join(dir, `${name}.key`)),
});

const request =
  "POST /podnet.v1.PodService/List HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/** What comes back to a request sent over TLS; why nothing does. */
function ask(port: number, options: ConnectionOptions): Promise<{ answer: string; error: string }> {
  return new Promise((resolve) => {
    let answer = "";
    let error = "";
    const socket = connect({
      host: "127.0.0.1",
      port,
      servername: "localhost",
      ca: readFileSync(at("ca.crt")),
      ...options,
    });
    socket.on("secureConnect", () => socket.write(request));
    socket.on("data", (data: Buffer) => {
      answer += data.toString();
    });
    socket.on("error", (thrown: NodeJS.ErrnoException) => {
      error = thrown.code ?? thrown.message;
    });
    socket.on("close", () => resolve({ answer, error }));
  });
}

/** It still serves who may, and has counted who may not. */
async function stillServes(t: ExecutionContext, { port, serving }: ServingTls): Promise<void> {
  const { answer } = await ask(port, identity("client"));
  t.regex(answer, /^HTTP\/1\.1 200/);
  t.is(serving.refused.get("tls"), 1);
}

const refused: readonly (readonly [string, () => ConnectionOptions, RegExp])[] = [
  ["no certificate", () => ({}), /CERTIFICATE_REQUIRED/],
  ["a certificate of another authority", () => identity("client", elsewhere), /UNKNOWN_CA/],
  ["an expired certificate", () => identity("expired"), /CERTIFICATE_EXPIRED/],
  ["TLS 1.2", () => ({ ...identity("client"), maxVersion: "TLSv1.2" }), /PROTOCOL_VERSION/],
  [
    "TLS 1.1",
    () => ({
      ...identity("client"),
      minVersion: "TLSv1.1",
      maxVersion: "TLSv1.1",
      ciphers: "ALL:@SECLEVEL=0",
    }),
    /PROTOCOL_VERSION|NO_PROTOCOLS/,
  ],
];

for (const [what, options, why] of refused) {
  test(`TCP refuses ${what}`, async (t) => {
    await using tls = await open();
    const { answer, error } = await ask(tls.port, options());
    t.is(answer, "");
    // The connection may be gone before the alert that says why is read.
    if (error !== "") t.regex(error, why);
    await stillServes(t, tls);
  });
}

test("TCP refuses plain text on its port", async (t) => {
  await using tls = await open();
  const socket = connectTcp(tls.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.end(request);
  let answer = "";
  socket.on("data", (data) => {
    answer += data.toString("latin1");
  });
  await once(socket, "close");
  t.notRegex(answer, /HTTP/);
  await stillServes(t, tls);
});

test("a certificate's role comes from any of its names; without an entry it has none", async (t) => {
  await using tls = await open();
  const call = async (name: string, method: string): Promise<string> => {
    const { stdout } = await run("curl", [
      ..."-s --http2 --max-time 20 -d {}".split(" "),
      "-H",
      "content-type: application/json",
      "--cacert",
      at("ca.crt"),
      "--cert",
      at(`${name}.crt`),
      "--key",
      at(`${name}.key`),
      "--resolve",
      `localhost:${tls.port}:127.0.0.1`,
      `https://localhost:${tls.port}/podnet.v1.${method}`,
    ]);
    return stdout;
  };
  t.is(await call("client", "PodService/List"), "{}");
  t.regex(await call("client", "PodService/Create"), /"permission_denied".*role operator/);
  t.regex(await call("client", "PodService/Create"), /certificate of client has the role viewer/);
  t.is(await call("named", "NodeService/Down"), "{}");
  t.regex(await call("unknown", "PodService/List"), /certificate of unknown has none/);
  t.regex(await call("unknown", "PodService/List"), /cert:unknown/);
  const nameless = await call("nameless", "PodService/List");
  t.regex(nameless, /"unauthenticated"/);
  t.regex(nameless, /UNAUTHENTICATED/);
});
