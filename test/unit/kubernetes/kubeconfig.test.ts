import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { isPodnetError } from "../../../core/errors.ts";
import { inClusterAccess } from "../../../kubernetes/in-cluster.ts";
import { parseKubeconfig } from "../../../kubernetes/kubeconfig.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

const config = (cluster: string, user: string, more = ""): string => `
apiVersion: v1
kind: Config
current-context: here
contexts:
  - name: here
    context: {cluster: one, user: podnetd}
  - name: elsewhere
    context: {cluster: two, user: root}
clusters:
  - name: one
    cluster: {${cluster}}
users:
  - name: podnetd
    user: {${user}}
${more}`;

const server = "server: https://10.0.0.1:6443";

test("a kubeconfig's current context says where, and as whom", async (t) => {
  const text = config(
    `${server}/base/, certificate-authority-data: ${base64("CA")}, tls-server-name: api`,
    `client-certificate-data: ${base64("CERT")}, client-key-data: ${base64("KEY")}, token: abc`,
  );
  const access = await parseKubeconfig(text, "/");
  t.is(access.server.href, "https://10.0.0.1:6443/base/");
  t.is(access.serverName, "api");
  t.false(access.insecure);
  t.deepEqual(access.credentials(), { ca: "CA", cert: "CERT", key: "KEY", token: "abc" });
});

test("files of a kubeconfig are relative to it, and read for each request", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-kubeconfig-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const file = path.join(directory, "token");
  const access = await parseKubeconfig(
    config(`${server}, insecure-skip-tls-verify: true`, "tokenFile: token, token: old"),
    directory,
  );
  t.true(access.insecure);
  t.throws(access.credentials, {
    code: "KUBERNETES_DENIED",
    message: /token file .* cannot be read/,
  });
  writeFileSync(file, "one\n");
  t.deepEqual(access.credentials(), { token: "one" });
  writeFileSync(file, "two\n");
  t.deepEqual(access.credentials(), { token: "two" });
  writeFileSync(file, "two\r\nX-Injected: yes\n");
  t.throws(access.credentials, { code: "KUBERNETES_DENIED", message: /is not a token/ });
});

for (const [what, text, message] of [
  ["is no YAML", "a: [", /not YAML/],
  ["is empty", "", /names no current context/],
  ["is a list", "[]", /names no current context/],
  ["has no such context", "current-context: away", /no context "away"/],
  ["has a list of something else", "current-context: a\ncontexts: 7", /no context "a"/],
  ["has no server", config("", "token: a"), /no URL of an API server/],
  [
    "would send its token unencrypted",
    config("server: http://10.0.0.1:8080", "token: a"),
    /no URL/,
  ],
  ["has a password in its URL", config("server: https://a:b@10.0.0.1", "token: a"), /no URL/],
  ["runs a command", config(server, "exec: {command: aws}"), /a command \(exec\)/],
  ["has a provider", config(server, "auth-provider: {name: gcp}"), /an auth-provider/],
  ["has a password", config(server, "username: a, password: b"), /a user name and password/],
  ["impersonates groups", config(server, "as-groups: [admins], token: a"), /impersonation/],
  ["impersonates", config(server, "as: root, token: a"), /impersonation/],
  ["goes by a proxy", config(`${server}, proxy-url: http://p`, "token: a"), /through a proxy/],
  ["has half a certificate", config(server, "client-certificate: /a.pem"), /certificate and key/],
] as const)
  test(`a kubeconfig that ${what} is refused`, async (t) => {
    const error: unknown = await t.throwsAsync(parseKubeconfig(text, "/"));
    if (!isPodnetError(error, "CONFIG_INVALID")) {
      t.fail(String(error));
      return;
    }
    t.regex(error.message, message);
    t.is(error.field, "overlay.kubernetes.kubeconfig");
    t.truthy(error.hint);
  });

test("a kubeconfig reaches this host's own address without TLS", async (t) => {
  for (const host of ["127.0.0.1", "localhost", "[::1]"]) {
    const access = await parseKubeconfig(config(`server: "http://${host}:8001"`, "token: a"), "/");
    t.is(access.server.port, "8001");
  }
});

test("an empty file or empty data is no authority and no token, as while it is written", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-kubeconfig-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  for (const name of ["ca", "token"]) writeFileSync(path.join(directory, name), "");
  for (const [cluster, user, message] of [
    ["certificate-authority: ca", "token: a", /authority is empty/],
    // (What is no base 64 are no bytes.)
    ['certificate-authority-data: "!!!!"', "token: a", /authority is empty/],
    ["certificate-authority-data: ''", "tokenFile: token", /token file is empty/],
  ] as const) {
    const access = await parseKubeconfig(config(`${server}, ${cluster}`, user), directory);
    t.throws(access.credentials, { code: "KUBERNETES_DENIED", message });
  }
});

test("a pipe, or a file without end, in the place of a token holds up nothing", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-kubeconfig-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  execFileSync("mkfifo", [path.join(directory, "pipe")]);
  for (const file of ["pipe", "/dev/zero", directory]) {
    const access = await parseKubeconfig(config(server, `tokenFile: ${file}`), directory);
    t.throws(access.credentials, { code: "KUBERNETES_DENIED", message: /cannot be read/ });
  }
});

test("fields that a kubeconfig leaves empty ask for nothing", async (t) => {
  const text = config(`${server}, proxy-url: ""`, 'token: a, exec: null, username: "", as: ""');
  t.deepEqual((await parseKubeconfig(text, "/")).credentials(), { token: "a" });
});

test("the password in an address is not repeated", async (t) => {
  const text = config("server: https://me:secret@10.0.0.1", "token: a");
  const error: unknown = await t.throwsAsync(parseKubeconfig(text, "/"));
  t.notRegex(String(error), /secret/);
});

test("a pod has its address in the environment and its token in a file", (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-in-cluster-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  writeFileSync(path.join(directory, "token"), "abc");
  writeFileSync(path.join(directory, "ca.crt"), "CA");
  const of = (host: string) =>
    inClusterAccess({ KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: "443" }, directory);
  t.is(of("10.96.0.1").server.href, "https://10.96.0.1/");
  t.is(of("fd00::1").server.href, "https://[fd00::1]/");
  t.deepEqual(of("fd00::1").credentials(), { ca: "CA", token: "abc" });
  t.throws(() => inClusterAccess({}), { code: "CONFIG_INVALID", message: /not run in a pod/ });
});
