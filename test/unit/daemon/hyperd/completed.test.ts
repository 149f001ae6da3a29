import { chmodSync, chownSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { InlineRules } from "../../../../api/pod-spec.ts";
import { parseIp } from "../../../../core/address.ts";
import { whiteListRules } from "../../../../daemon/hyperd/requests/white-lists.ts";
import { compile } from "../../../../policy/compile.ts";
import { decide } from "../../../../policy/decide.ts";
import type { Policy } from "../../../../policy/model.ts";
import { readInlineRules } from "../../../../policy/read-document.ts";
import { readPolicy } from "../../../../policy/read-policy.ts";
import { until } from "../../../lab/until.ts";
import { freePort } from "../../api/fixtures/free-port.ts";
import { configuration } from "../fixtures/node.ts";
import { confinement } from "../fixtures/confinement.ts";
import { type HyperRig, podOne, startHyperd, storeImage } from "./rig.ts";

// What hyperd's callers had and podnet's first answer to them lacked. Requests are those that
// hyperctl sends, by its published sources; answers to them were not recorded.

const image = "nginx:1.25";
const two = (more: object = {}) =>
  podOne({
    containers: [
      { name: "web", image },
      { name: "log", image },
    ],
    ...more,
  });
const names = async (rig: HyperRig): Promise<readonly string[]> =>
  (
    JSON.parse((await rig.call("GET", "/list?item=container")).body) as { cData: string[] }
  ).cData.map((line) => line.split(":")[1] ?? "");

test("a container is renamed, is found by its new name, and keeps it after a start of podnetd", async (t) => {
  const first = await startHyperd();
  storeImage(first);
  await first.send("POST", "/pod/create", two());
  const rename = (rig: HyperRig, from: string, to: string) =>
    rig.call("POST", `/container/rename?oldName=${from}&newName=${to}`);
  const renamed = await rename(first, "web", "front");
  t.is(renamed.status, 200);
  t.is(renamed.body, '{"Cause":"","Code":0,"ID":"front"}\n');
  t.deepEqual(await names(first), ["front", "log"]);
  t.is((await rename(first, "web", "x")).status, 500, "the old name is gone");
  t.is((await rename(first, "front", "front")).status, 200, "to its own name");
  for (const [to, sentence] of [
    ["log", /has a container log already/],
    ["", /new name is empty/],
    ["../x", /not usable as a container's name/],
  ] as const) {
    const { status, body } = await rename(first, "front", to);
    t.is(status, 500);
    t.regex(body, sentence);
  }
  // Two who want one name at once: one of them has it.
  const [one, other] = await Promise.all([
    rename(first, "front", "same"),
    rename(first, "log", "same"),
  ]);
  t.deepEqual(new Set([one.status, other.status]), new Set([200, 500]));
  const had = await names(first);
  t.is(had.filter((name) => name === "same").length, 1);
  // A pod's one container as well.
  await first.send("POST", "/pod/create", podOne({ id: "one", containers: [{ image }] }));
  t.is((await rename(first, "one", "/single")).status, 200);
  t.true((await names(first)).includes("single"));
  await first[Symbol.asyncDispose]();
  await using second = await startHyperd(first.config);
  await second.node.pods.recover("b");
  t.deepEqual(await names(second), [...had, "single"]);
});

test("images are listed by a pattern of their name and by docker's filters", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  const listed = async (query: string): Promise<number> => {
    const { status, body } = await rig.call("GET", `/images/get?all=no&quiet=no&${query}`);
    t.is(status, 200, body);
    return (JSON.parse(body) as { imagesList: string[] }).imagesList.length;
  };
  for (const [filter, found] of [
    ["nginx", 1],
    ["ng*", 1],
    ["ngi??", 1],
    ["nginx:1.25", 1],
    ["docker.io/*/nginx", 1],
    ["*", 1],
    ["docker.io*", 0],
    ["ngi", 0],
    ["nginx?", 0],
    ["*".repeat(200), 1],
    ["*a".repeat(120), 0],
  ] as const)
    t.is(await listed(`filter=${encodeURIComponent(filter)}`), found, filter);
  for (const [filters, found] of [
    [{ dangling: ["false"] }, 1],
    [{ dangling: { true: true } }, 0],
    [{ label: ["a"] }, 0],
    [{}, 1],
  ] as const)
    t.is(await listed(`filters=${encodeURIComponent(JSON.stringify(filters))}`), found);
  for (const [query, sentence] of [
    ["filters=" + encodeURIComponent('{"before":["a"]}'), /by before/],
    ["filters=" + encodeURIComponent('{"dangling":["x"]}'), /neither true nor false/],
    ["filters=7", /filters cannot be read/],
    ["filter=" + encodeURIComponent("[ab]"), /\* and \? alone/],
  ] as const) {
    const { status, body } = await rig.call("GET", `/images/get?${query}`);
    t.is(status, 500);
    t.regex(body, sentence);
  }
});

test("an archive is loaded from a body without a length, as hyperctl sends it", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  const load = (query = "") =>
    rig.raw(
      [
        `POST /v1.1.0/image/load${query} HTTP/1.1`,
        "Host: ",
        "User-Agent: Hyper-Client/1.1.0",
        "Transfer-Encoding: chunked",
        "Content-Type: application/x-tar",
        "Connection: close",
        "",
        "5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n",
      ].join("\r\n"),
    );
  const loaded = await load();
  t.is(loaded.status, 200);
  t.regex(loaded.body, /"status":"Loaded image: nginx:1\.25"/);
  t.regex((await load("?name=web:2")).body, /Loaded image/);
  t.deepEqual(rig.loaded, [" 11", "web:2 11"]);
  const several = await load(`?refs=${encodeURIComponent('{"a":"b"}')}`);
  t.is(several.status, 500);
  t.regex(several.body, /choose among the images/);
});

/** What becomes of a flow to a pod with these rules, before those of an administrator. */
function verdictOf(
  rules: InlineRules | undefined,
  from: string,
  protocol: "tcp" | "udp" | "icmp",
  port: number | undefined,
  policies: readonly Policy[] = [],
): string {
  const own = rules === undefined ? [] : [readInlineRules(rules, { kind: "pod", name: "p" })];
  const around = { pods: [], host: [], hostServices: [], cloudMetadata: false };
  const { ingress } = compile([...own, ...policies], around);
  const flow = { ip: parseIp(from), protocol, ...(port === undefined ? {} : { port }) };
  return decide(ingress, flow).verdict;
}

test("white lists are rules of the pod, which follow its mappings but not over an administrator", async (t) => {
  await using rig = await startHyperd();
  const [one, two] = [await freePort(), await freePort()];
  const mapping = (port: number, containerPort: string, protocol = "tcp") => ({
    hostPort: String(port),
    containerPort,
    protocol,
  });
  const created = await rig.send(
    "POST",
    "/pod/create",
    podOne({
      portmappings: [mapping(one, "80")],
      portmappingWhiteLists: {
        internalNetworks: ["10.0.0.0/8"],
        externalNetworks: ["203.0.113.0/24", "2001:db8::/32"],
      },
    }),
  );
  t.is(created.status, 201, created.body);
  const rules = () => rig.node.pods.find("pod-one").spec.policy;
  const open = (): readonly string[] =>
    (["10.9.9.9", "203.0.113.7", "2001:db8::7", "192.0.2.7", "fd00::7"] as const).flatMap((from) =>
      (
        [
          ["tcp", 80],
          ["tcp", 81],
          ["tcp", 79],
          ["udp", 53],
          ["icmp", undefined],
        ] as const
      ).flatMap(([protocol, port]) =>
        verdictOf(rules(), from, protocol, port) === "allow"
          ? [`${from} ${protocol}${port ?? ""}`]
          : [],
      ),
    );
  const always = ["203.0.113.7 icmp", "2001:db8::7 icmp", "192.0.2.7 icmp", "fd00::7 icmp"];
  const internal = ["tcp80", "tcp81", "tcp79", "udp53", "icmp"].map((each) => `10.9.9.9 ${each}`);
  const inOrder = (flows: readonly string[]): readonly string[] =>
    flows.toSorted((a, b) => (a < b ? -1 : 1));
  const opens = (...external: readonly string[]): readonly string[] =>
    inOrder([...internal, ...external, ...always]);
  t.deepEqual(inOrder(open()), opens("203.0.113.7 tcp80", "2001:db8::7 tcp80"));
  const change = (verb: string, ...mappings: readonly object[]) =>
    rig.send("PUT", `/pod/pod-one/portmappings/${verb}`, mappings);
  t.is((await change("add", mapping(two, "53", "udp"))).status, 204);
  const udp = ["203.0.113.7 udp53", "2001:db8::7 udp53"];
  t.deepEqual(inOrder(open()), opens("203.0.113.7 tcp80", "2001:db8::7 tcp80", ...udp));
  t.is((await change("delete", mapping(one, "80"))).status, 204);
  t.deepEqual(inOrder(open()), opens(...udp));
  t.is((await change("delete", mapping(one, "80"))).status, 500, "it is not there");
  t.deepEqual(inOrder(open()), opens(...udp));
  t.is((await change("delete", mapping(two, "53", "udp"))).status, 204);
  t.deepEqual(inOrder(open()), opens());
  const own = { ingress: { default: "deny", rules: [{ name: "mine", action: "allow" }] } };
  await rig.node.pods.setRules(rig.node.pods.find("pod-one").id, own);
  t.is((await change("add", mapping(one, "80"))).status, 204);
  t.deepEqual(rules(), own, "an administrator's rules stay");
  // Two empty lists mean every network, as hyperctl sends them.
  const none = { internalNetworks: [], externalNetworks: null };
  await rig.send("POST", "/pod/create", podOne({ id: "open", portmappingWhiteLists: none }));
  t.is(rig.node.pods.find("open").spec.policy, undefined);
  const many = Array.from({ length: 501 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`);
  const large = { internalNetworks: many };
  const refused = await rig.send("POST", "/pod/create", podOne({ portmappingWhiteLists: large }));
  t.regex(refused.body, /may have 500 networks/);
  for (const { id } of rig.node.pods.list()) await rig.node.pods.delete(id, { force: true });
});

test("white lists open nothing that a policy closes", (t) => {
  // A pod's own rules come before policies, and operators may create pods of hyperd's.
  const policy = readPolicy({
    name: "closed",
    applies_to: { networks: ["default"] },
    ingress: { default: "deny", rules: [] },
  });
  const networks = ["0.0.0.0/0", "::/0"];
  for (const lists of [
    { internal: networks, external: [] },
    { internal: [], external: networks },
    { internal: ["10.0.0.0/8"], external: networks },
  ]) {
    const rules = whiteListRules(lists, [{ podPort: 1, count: 65_535, protocol: "tcp" }]);
    for (const from of ["10.1.2.3", "203.0.113.7", "fd00::7"]) {
      t.is(verdictOf(rules, from, "tcp", 80, [policy]), "deny", from);
      t.is(verdictOf(rules, from, "icmp", undefined, [policy]), "deny", from);
      t.is(verdictOf(rules, from, "tcp", 80), "allow", from);
    }
  }
});

test("changes of mappings at once leave the rules of all of them", async (t) => {
  await using rig = await startHyperd();
  await rig.send(
    "POST",
    "/pod/create",
    podOne({ portmappingWhiteLists: { externalNetworks: ["203.0.113.0/24"] } }),
  );
  const inside = [81, 82, 83, 84];
  const ports = await Promise.all(inside.map(() => freePort()));
  const answers = await Promise.all(
    inside.map((containerPort, i) =>
      rig.send("PUT", "/pod/pod-one/portmappings/add", [
        { hostPort: String(ports[i]), containerPort: String(containerPort), protocol: "tcp" },
      ]),
    ),
  );
  t.deepEqual(
    answers.map(({ status, body }) => `${status}${body}`),
    ["204", "204", "204", "204"],
  );
  const { policy } = rig.node.pods.find("pod-one").spec;
  for (const port of [80, ...inside, 85])
    t.is(
      verdictOf(policy, "203.0.113.7", "tcp", port),
      inside.includes(port) ? "allow" : "deny",
      String(port),
    );
  await rig.call("DELETE", "/pod?podId=pod-one");
});

test("a volume that a container writes to is its host's, live, where the configuration allows it", async (t) => {
  const data = mkdtempSync(join(tmpdir(), "podnet-written-"));
  chownSync(data, 4321, 4321);
  // A server that begins to listen meanwhile sets another mask for this process.
  chmodSync(data, 0o700);
  await using rig = await startHyperd({ ...configuration({}), writableSharePaths: [data] });
  Object.assign(rig.node.host, { confinement, epoch: "one" });
  const { kernel, initrd } = rig.node.config.image;
  for (const file of [kernel, initrd]) if (file !== undefined) chmodSync(file, 0o644);
  storeImage(rig);
  const pod = (source: string) =>
    two({
      volumes: [{ name: "v", source, format: "vfs" }],
      containers: [
        { name: "web", image, volumes: [{ path: "/data", volume: "v" }] },
        { name: "log", image, volumes: [{ path: "/read", volume: "v", readOnly: true }] },
      ],
    });
  for (const source of [join(data, ".."), "/etc"]) {
    const { body } = await rig.send("POST", "/pod/create", pod(source));
    t.regex(body, /No pod may write|is not the path/);
    t.deepEqual(rig.node.pods.list(), []);
  }
  const made = await rig.send("POST", "/pod/create", pod(data));
  t.is(made.status, 201, made.body);
  const [row] = rig.node.pods.list();
  t.like(row?.plan.vm.shares?.[0], { path: data, at: "/run/podnet-shares/0", writable: true });
  const share = { at: "/run/podnet-shares/0", below: "" };
  const { volumes: laid } = rig.node.containers;
  t.like(laid.get("/data"), { share, readOnly: false });
  t.like(laid.get("/read"), { share, readOnly: true });
  const info = (await rig.call("GET", "/pod/info?podName=pod-one")).body;
  t.regex(info, /"name":"v","mountPath":"\/data"/);
});

test("a volume's source is copied read-only where the configuration allows it, each time anew", async (t) => {
  const top = mkdtempSync(join(tmpdir(), "podnet-sources-"));
  mkdirSync(join(top, "allowed/conf/deep"), { recursive: true });
  writeFileSync(join(top, "secret"), "secret");
  writeFileSync(join(top, "allowed/conf/a"), "one");
  writeFileSync(join(top, "allowed/conf/deep/b"), "two");
  symlinkSync(join(top, "secret"), join(top, "allowed/out"));
  const base = configuration({});
  const config = { ...base, hyperdMountPaths: [join(top, "allowed")] };
  await using rig = await startHyperd(config);
  storeImage(rig);
  const pod = (source: string, readOnly = true, more: object = {}) =>
    two({
      volumes: [{ name: "v", source, format: "vfs" }],
      containers: [
        { name: "web", image, volumes: [{ path: "/etc/app", volume: "v", readOnly }], ...more },
        { name: "log", image },
      ],
    });
  const forbidden = /of the host cannot be in a container/;
  for (const [source, sentence, readOnly] of [
    [join(top, "secret"), forbidden, true],
    [join(top, "allowed/out"), forbidden, true],
    [join(top, "allowed/../secret"), forbidden, true],
    [join(top, "allowed/none"), /There is no/, true],
    ["allowed/conf", /There is no/, true],
    [join(top, "allowed/conf"), /shared with confined machines/, false],
  ] as const) {
    const { status, body } = await rig.send("POST", "/pod/create", pod(source, readOnly));
    t.is(status, sentence === forbidden ? 403 : 500, source);
    t.regex(body, sentence);
    t.deepEqual(rig.node.pods.list(), []);
  }
  const files = [{ path: "/etc/app/own", detail: { content: "own" } }];
  const made = await rig.send(
    "POST",
    "/pod/create",
    pod(join(top, "allowed/conf"), true, { files }),
  );
  t.is(made.status, 201, made.body);
  const { files: placed, volumes: laid } = rig.node.containers;
  const content = (): readonly string[] =>
    placed.map(({ path, readOnly, data }) => `${path} ${readOnly} ${Buffer.from(data).toString()}`);
  t.deepEqual(content(), [
    "/etc/app/a true one",
    "/etc/app/own false own",
    "/etc/app/deep/b true two",
  ]);
  t.true(laid.get("/etc/app")?.readOnly);
  const info = JSON.parse((await rig.call("GET", "/pod/info?podName=pod-one")).body) as {
    readonly spec: {
      readonly volumes: object[];
      readonly containers: { volumeMounts: object[] }[];
    };
  };
  t.deepEqual(info.spec.volumes, [{ name: "v", source: join(top, "allowed/conf"), driver: "vfs" }]);
  t.deepEqual(info.spec.containers[0]?.volumeMounts, [
    { name: "v", mountPath: "/etc/app", readOnly: true },
  ]);
  await rig.call("POST", "/pod/start?podId=pod-one");
  await rig.call("POST", "/pod/stop?podId=pod-one");
  await until("the pod's end", () => rig.node.pods.find("pod-one").state === "stopped");
  writeFileSync(join(top, "allowed/conf/a"), "changed");
  const again = await rig.call("POST", "/pod/start?podId=pod-one");
  t.is(again.status, 200, again.body);
  t.deepEqual(content().slice(3), [
    "/etc/app/a true changed",
    "/etc/app/own false own",
    "/etc/app/deep/b true two",
  ]);
});

test("a parameter that would be passed over is refused, and names are read in any case", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  await rig.send("POST", "/pod/create", two());
  // hyperctl writes podID here, and podId everywhere else.
  const made = await rig.send("POST", "/container/create?podID=pod-one", { name: "c", image });
  t.is(made.status, 201, made.body);
  for (const [method, path, sentence] of [
    ["POST", "/pod/start?podId=pod-one&attach=yes", /no parameter attach[^]*It has podId/],
    ["GET", "/list?item=pod&auxiliary=yes", /no parameter auxiliary/],
    ["POST", "/pod/stop?podId=pod-one&podID=two", /Parameter pod\w+ is there 2 times/],
    ["GET", "/_ping?x=1", /no parameter x[^]*Leave it out/],
    ["POST", "/pod/stop?podId=pod-one&%1b%5b2J=1", /no parameter/],
  ] as const) {
    const { status, body } = await rig.call(method, path);
    t.is(status, 500, path);
    t.regex(body, sentence);
    t.false(body.includes("\u001b"));
  }
  t.is(rig.node.pods.find("pod-one").state, "running");
});
