import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import test from "ava";
import type { Credential } from "../../../images/registry/auth-file.ts";
import { RegistryClient } from "../../../images/registry/registry-client.ts";

type Answer = (request: IncomingMessage, answer: ServerResponse, body: string) => void;

/** A registry on this host's loopback, and what it was asked. */
async function openRegistry(answered: Answer) {
  const asked: string[] = [];
  const server = createServer((request, answer) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      asked.push([method, url, headers.authorization ?? "-", body].join(" ").trimEnd());
      answered(request, answer, body);
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = () => new Promise<void>((resolve) => void server.close(() => resolve()));
  return { asked, at: `127.0.0.1:${port}`, [Symbol.asyncDispose]: close };
}

const manifest = async (registry: string, credential: Credential): Promise<number> => {
  using client = new RegistryClient(
    { registry, insecure: true, ca: undefined, credential },
    "team/app",
  );
  const { status, body } = await client.get("manifests/1", {}, AbortSignal.timeout(10_000));
  body.resume();
  return status;
};

/** Wants a bearer's token, which its `/token` gives. */
const guarded =
  (token: string): Answer =>
  ({ headers, url = "" }, answer) => {
    if (url.startsWith("/token")) {
      answer.end(JSON.stringify({ access_token: token }));
      return;
    }
    const isIn = headers.authorization === `Bearer ${token}`;
    const realm = `http://${headers.host ?? ""}/token`;
    const challenge = `Bearer realm="${realm}",service="s",scope="repository:team/app:pull"`;
    answer.writeHead(isIn ? 200 : 401, isIn ? {} : { "www-authenticate": challenge }).end();
  };

test("a registry's token goes to the registry as it is, and to no server of tokens", async (t) => {
  await using registry = await openRegistry(guarded("given"));
  t.is(await manifest(registry.at, { registryToken: "given" }), 200);
  const path = "GET /v2/team/app/manifests/1";
  t.deepEqual(registry.asked, [`${path} -`, `${path} Bearer given`]);
});

test("a registry's token that it does not take is refused, and sent once", async (t) => {
  await using registry = await openRegistry(guarded("another"));
  const refused = manifest(registry.at, { registryToken: "given" });
  t.like(await t.throwsAsync(refused), { code: "REGISTRY_DENIED" });
  t.is(registry.asked.length, 2);
});

test("a token of an identity gets the registry's, and is not sent to the registry", async (t) => {
  await using registry = await openRegistry(guarded("fresh"));
  t.is(await manifest(registry.at, { identityToken: "lasting" }), 200);
  const [, token = "", after = ""] = registry.asked;
  t.regex(token, /^POST \/token - /);
  t.deepEqual(Object.fromEntries(new URLSearchParams(token.split(" ").at(-1))), {
    service: "s",
    scope: "repository:team/app:pull",
    grant_type: "refresh_token",
    client_id: "podnet",
    refresh_token: "lasting",
  });
  t.is(after, "GET /v2/team/app/manifests/1 Bearer fresh");
});

test("no token is sent where a registry wants a user, or to where it redirects", async (t) => {
  await using basic = await openRegistry((_request, answer) => {
    answer.writeHead(401, { "www-authenticate": 'Basic realm="x"' }).end();
  });
  const refused = manifest(basic.at, { identityToken: "lasting" });
  t.like(await t.throwsAsync(refused), { code: "REGISTRY_DENIED" });
  await using other = await openRegistry((_request, answer) => answer.end());
  await using registry = await openRegistry(({ headers }, answer) => {
    const isIn = headers.authorization === "Bearer given";
    const location = `http://${other.at}/elsewhere`;
    answer.writeHead(isIn ? 307 : 401, isIn ? { location } : {}).end();
  });
  t.is(await manifest(registry.at, { registryToken: "given" }), 200);
  t.deepEqual(other.asked, ["GET /elsewhere -"]);
  for (const line of basic.asked) t.notRegex(line, /lasting/);
});
