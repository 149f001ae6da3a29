import { execFile } from "node:child_process";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import type { DescMethod } from "@bufbuild/protobuf";
import test from "ava";
import { Health } from "../../../../api/gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../../../api/gen/grpc/reflection/v1/reflection_pb.ts";
import { CniService } from "../../../../api/gen/podnet/v1/cni_service_pb.ts";
import { ImageService } from "../../../../api/gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "../../../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../../../api/gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "../../../../api/gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { PolicyService } from "../../../../api/gen/podnet/v1/policy_service_pb.ts";
import { type Role, roleFor, roles, suffices } from "../../../../api/roles.ts";
import { parseAccessEntry } from "../../../../daemon/config/access.ts";
import { roleOf } from "../../../../daemon/listeners/access.ts";
import { altNames, type Peer } from "../../../../daemon/listeners/peer.ts";
import { openServing, type Serving } from "../../api/fixtures/serving.ts";

const run = promisify(execFile);
const own = [
  PodService,
  NetworkService,
  PolicyService,
  OverlayService,
  CniService,
  ImageService,
  NodeService,
].flatMap((service) => service.methods);
const all = [...own, ...Health.methods, ...ServerReflection.methods];

// In Connect's streams each message has five bytes before it: flags and length.
const enveloped = path.join(mkdtempSync(path.join(tmpdir(), "podnet-access-")), "message");
writeFileSync(enveloped, Buffer.from("\0\0\0\0\x02{}", "latin1"));
chmodSync(path.dirname(enveloped), 0o755);

/**
 * Calls a method by curl, as another user; the answer's text, or its beginning when it is endless.
 */
async function callAs(
  who: readonly string[],
  socket: string,
  { methodKind, parent, name }: DescMethod,
  endless: boolean,
): Promise<string> {
  const [type, data] = methodKind === "unary" ? ["json", "{}"] : ["connect+json", `@${enveloped}`];
  const args = [
    ..."-sS -N --http2-prior-knowledge --max-time".split(" "),
    endless ? "1" : "60",
    "--unix-socket",
    socket,
    "-H",
    `content-type: application/${type}`,
    "--data-binary",
    data,
    `http://podnet/${parent.typeName}/${name}`,
  ];
  try {
    return (await run("setpriv", [...who, "curl", ...args])).stdout;
  } catch (thrown) {
    const { code, stdout } = thrown as { code: unknown; stdout: string };
    // Health's Watch goes on for ever.
    if (code !== 28) throw thrown;
    return stdout;
  }
}

/** A socket that any user may open, so that only roles decide. */
async function openToAll(access: Parameters<typeof openServing>[0]): Promise<Serving> {
  const serving = await openServing(access);
  chmodSync(path.dirname(serving.socket), 0o755);
  chmodSync(serving.socket, 0o666);
  return serving;
}

const as = (uid: number, gid: number, ...groups: readonly number[]): readonly string[] => [
  `--reuid=${uid}`,
  `--regid=${gid}`,
  groups.length === 0 ? "--clear-groups" : `--groups=${groups.join(",")}`,
];

const access = {
  viewer: [{ kind: "uid", id: 4001 }],
  operator: [{ kind: "gid", id: 4102 }],
  admin: [{ kind: "gid", id: 4203 }],
} as const;

const callers: readonly (readonly [
  who: string,
  args: readonly string[],
  role: Role | undefined,
])[] = [
  ["root", as(0, 0), "admin"],
  ["a user with an entry", as(4001, 4001), "viewer"],
  ["a member by primary group", as(4002, 4102), "operator"],
  ["a member by supplementary group", as(4003, 4003, 5000, 4203, 5001), "admin"],
  ["one with two entries, by the greater", as(4001, 4001, 4102), "operator"],
  ["an unknown user", as(4009, 4009, 4010), undefined],
];

for (const [who, args, role] of callers) {
  test(`every method and its role: ${who} (${role ?? "no role"})`, async (t) => {
    await using serving = await openToAll({ access });
    const answers: string[] = [];
    const mayCall = (method: DescMethod): boolean =>
      role !== undefined && suffices(role, roleFor(method));
    for (const method of all) {
      const endless = method.methodKind !== "unary" && mayCall(method);
      answers.push(await callAs(args, serving.socket, method, endless));
    }
    all.forEach((method, i) => {
      const name = `${method.parent.typeName}.${method.name}`;
      const allowed = mayCall(method);
      const refused = /PERMISSION_DENIED|permission_denied/.test(answers[i] ?? "");
      t.is(refused, !allowed, `${name}: ${answers[i]}`);
      if (!refused) return;
      t.regex(answers[i] ?? "", /"code":"permission_denied"/, name);
      t.regex(answers[i] ?? "", new RegExp(`takes the role ${roleFor(method)}`), name);
      t.regex(answers[i] ?? "", new RegExp(`access\\.${roleFor(method)}`), name);
    });
  });
}

test("the metrics take a viewer, and other paths answer an unknown caller nothing", async (t) => {
  await using serving = await openToAll({ access });
  const get = async (who: readonly string[], url: string): Promise<string> => {
    const args = ["-sS", "-w", "%{http_code}", "--unix-socket", serving.socket, url];
    return (await run("setpriv", [...who, "curl", ...args])).stdout;
  };
  t.is(await get(as(4001, 4001), "http://podnet/metrics"), "podnet_up 1\n200");
  t.regex(await get(as(4009, 4009), "http://podnet/metrics"), /^PERMISSION_DENIED.*\n403$/);
  t.regex(await get(as(4009, 4009), "http://podnet/elsewhere"), /^PERMISSION_DENIED.*\n403$/);
  t.regex(await get(as(4001, 4001), "http://podnet/elsewhere"), /404$/);
  t.is(serving.refused.get("permission_denied"), 2);
});

test("each role does what it is for, and no more", (t) => {
  const wanted: Readonly<Record<Role, readonly string[]>> = {
    viewer: [
      "get",
      "list",
      "watch",
      "info",
      "health",
      "diff",
      "check",
      "stats",
      "guard",
      "trace",
      "explain",
      "tail",
      "serverReflectionInfo",
      "listNodes",
      "listReservations",
      "listPools",
    ],
    operator: [
      "create",
      "createStream",
      "start",
      "delete",
      "exec",
      "startExec",
      "listExecs",
      "getExec",
      "waitExec",
      "signalExec",
      "followExec",
      "logs",
      "attachProcess",
      "console",
      "openConsole",
      "verify",
      "stop",
      "pause",
      "resume",
      "update",
      "label",
      "capture",
      "traceLive",
      "addInterface",
      "updateInterface",
      "removeInterface",
      "addDisk",
      "removeDisk",
      "limit",
      "publishPorts",
      "unpublishPorts",
      "detach",
      "pull",
      "import",
      "tag",
      "untag",
      "remove",
    ],
    admin: [
      "prune",
      "down",
      "fillPools",
      "drainPools",
      "logLevel",
      "attach",
      "leave",
      "join",
      "addReservation",
      "removeReservation",
      "learn",
      "install",
      "uninstall",
    ],
  };
  // Networks and policies are the host's: whoever changes one changes it for all.
  const ofHosts: readonly string[] = ["create", "update", "apply", "delete"];
  for (const method of all) {
    const hosts =
      /^(?:Network|Policy)Service$/.test(method.parent.name) && ofHosts.includes(method.localName);
    const role = hosts ? "admin" : roles.find((each) => wanted[each].includes(method.localName));
    t.is(roleFor(method), role as Role, `${method.parent.typeName}.${method.name}`);
  }
});

test("a method that is not in the table is for administrators", (t) => {
  const unknown = { parent: { typeName: "podnet.v1.PodService" }, localName: "burn" } as DescMethod;
  t.is(roleFor(unknown), "admin");
  t.is(roleFor({ ...unknown, parent: { typeName: "other.Service" } } as DescMethod), "admin");
});

test("root and the daemon's own user have every role, and no other user is taken for them", (t) => {
  const noRoles = { viewer: [], operator: [], admin: [] };
  const unix = (uid: number, gid: number, ...groups: number[]): Peer => ({
    kind: "unix",
    pid: 1,
    uid,
    gid,
    groups,
  });
  t.is(roleOf(unix(0, 5), noRoles), "admin");
  t.is(roleOf(unix(process.getuid?.() ?? -1, 5), noRoles), "admin");
  t.is(roleOf(unix(7, 0, 0), noRoles), undefined);
  t.is(roleOf({ kind: "unknown" }, access), undefined);
  // Kinds are not mixed up: a certificate called "0" is no user, an id no group.
  t.is(roleOf({ kind: "tls", names: ["0", "uid:0", "4203"] }, access), undefined);
  t.is(roleOf(unix(4203, 9), access), undefined);
});

test("names in a certificate cannot pass for others", (t) => {
  t.deepEqual(altNames("DNS:a.example, URI:spiffe://x/y, email:a@b, IP Address:1.2.3.4"), [
    "a.example",
    "spiffe://x/y",
    "a@b",
  ]);
  // A name with a comma in it, as Node writes it (CVE-2021-44532).
  t.deepEqual(altNames('DNS:"evil.example, DNS:ops.example", DNS:b'), [
    "evil.example, DNS:ops.example",
    "b",
  ]);
});

test("entries are users, groups and certificates, by name or number", (t) => {
  t.deepEqual(parseAccessEntry("uid:0"), { kind: "uid", id: 0 });
  t.deepEqual(parseAccessEntry("uid:root"), { kind: "uid", id: 0 });
  t.deepEqual(parseAccessEntry("gid:root"), { kind: "gid", id: 0 });
  t.deepEqual(parseAccessEntry("cert:ops.example"), { kind: "cert", name: "ops.example" });
  for (const bad of ["", "root", "uid:", "uid:noRoles-of-that-name", "gid:4294967295", "cert:"])
    t.throws(() => parseAccessEntry(bad), { instanceOf: TypeError }, bad);
});
