import { execFile } from "node:child_process";
import { createServer } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { ImageService } from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { PolicyService } from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const execute = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../../..");

const daemon = playDaemon();
const server = await serve((router) => {
  daemon.routes(router);
  addService(router, PolicyService, {
    list: () => ({
      policies: [{ name: "builds" }, { name: "pod:web" }, { name: "$(touch /tmp/x)" }],
    }),
  });
  addService(router, ImageService, {
    list: () => ({ images: [{ names: ["docker.io/library/alpine:3", "own:1"] }] }),
  });
});
const socket = server.h2;
test.after.always(() => server.kill());

/** What may stand where the last word is, without what it is. */
const complete = async (line: string, at = socket): Promise<string[]> => {
  const { code, out, err } = await podnet(["__complete", "--", ...line.split(" ")], { socket: at });
  if (code !== 0 || err !== "") throw new Error(`${code} ${err}`);
  return out.split("\n").flatMap((each) => (each === "" ? [] : [each.split("\t")[0] ?? ""]));
};

test("commands, options and values to choose from need no podnetd", async (t) => {
  const without = (line: string) => complete(line, "/nowhere/sock");
  for (const [line, wanted] of [
    ["cr", ["create"]],
    ["networ", ["network"]],
    ["network g", ["get"]],
    ["networks g", ["get"]],
    ["create --dns-s", ["--dns-search"]],
    ["list --he", ["--help"]],
    ["list -o ", ["table", "json", "yaml", "jsonpath=", "wide", "csv"]],
    ["list --output=js", ["--output=json", "--output=jsonpath="]],
    ["run --pull a", ["always"]],
    ["completion z", ["zsh"]],
    ["explain POD_", ["POD_NOT_FOUND"]],
    ["nosuch x", []],
    ["__c", []],
    ["create -f ", []],
    ["get ", []],
  ] as [string, string[]][])
    t.deepEqual(await without(line), wanted, line);
  t.true((await without("")).includes("list"));
  const { out } = await podnet(["__complete", "--", "lis"], { socket });
  t.is(out, "list\tlist pods, oldest first\n");
});

test("names come from podnetd, where they fit", async (t) => {
  for (const [line, wanted] of [
    ["get ", ["web", "db"]],
    ["inspect w", ["web"]],
    ["stop web ", ["db"]],
    ["stop --timeout 5s ", ["web", "db"]],
    ["exec -it w", ["web"]],
    ["exec -u root w", ["web"]],
    ["exec web ", []],
    ["exec web w", []],
    ["get web ", []],
    ["get -- w", ["web"]],
    ["create --network ", ["default"]],
    ["create --network=d", ["--network=default"]],
    ["network delete d", ["default"]],
    ["network create d", []],
    // A name that a shell would obey is left out.
    ["policy delete ", ["builds", "pod:web"]],
    ["policy get pod:", ["pod:web"]],
    ["run docker", ["docker.io/library/alpine:3"]],
    ["image tag own", ["own:1"]],
    ["create --image o", ["own:1"]],
    ["interface set web ", ["eth0"]],
    ["limit web --interface e", ["eth0"]],
    ["execs logs 0", ["00000000000000aa", "00000000000000bb", "00000000000000cc"]],
    ["cp w", ["web:"]],
    [`--socket ${socket} x`, []],
  ] as [string, string[]][])
    t.deepEqual(await complete(line), wanted, line);
  t.deepEqual(await complete(`get --socket ${socket} w`, "/nowhere/sock"), ["web"]);
  t.deepEqual(await complete(`get --socket=${socket} w`, "/nowhere/sock"), ["web"]);
});

test("a podnetd that does not answer is waited for a second, and nothing is printed", async (t) => {
  const silent = createServer(() => {});
  const at = path.join(server.folder, "silent.sock");
  await new Promise<void>((resolve) => silent.listen(at, resolve));
  t.deepEqual(await complete("get ", at), []);
  t.deepEqual(await complete("get --url http://x ", at), []);
  silent.close();
});

/** What bash offers for a line, in the way that it splits it. */
async function inBash(line: string, words: readonly string[]): Promise<string> {
  const { out } = await podnet(["completion", "bash"]);
  const quoted = words.map((word) => `'${word}'`).join(" ");
  const script = `${out}
    COMP_LINE='${line}'; COMP_POINT=${line.length}
    COMP_WORDS=(${quoted}); COMP_CWORD=${words.length - 1}
    _podnet; echo "\${COMPREPLY[@]}"`;
  const env = {
    ...process.env,
    PATH: `${top}/bin:${process.env["PATH"]}`,
    PODNET_SOCKET: socket,
  };
  return (await execute("bash", ["-c", script], { env })).stdout.trim();
}

test("bash completes words that it splits, and scripts of other shells ask the same", async (t) => {
  t.is(await inBash("podnet cr", ["podnet", "cr"]), "create");
  t.is(await inBash("podnet get ", ["podnet", "get", ""]), "web db");
  t.is(await inBash("podnet create --dns-s", ["podnet", "create", "--dns-s"]), "--dns-search");
  const split = ["podnet", "policy", "get", "pod", ":", "w"];
  t.is(await inBash("podnet policy get pod:w", split), "web");
  const option = ["podnet", "list", "--output", "=", "cs"];
  t.is(await inBash("A=b podnet list --output=cs", option), "csv");
  for (const shell of ["zsh", "fish"])
    t.regex((await podnet(["completion", shell])).out, / __complete -- /);
});
