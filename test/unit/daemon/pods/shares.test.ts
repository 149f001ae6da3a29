import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import test from "ava";
import { create } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateCreate } from "../../../../api/validate/validate.ts";
import { confinement } from "../fixtures/confinement.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

/** A node whose machines are confined, and a directory with these directories in it. */
function open(...names: readonly string[]) {
  const config = configuration({});
  const top = join(dirname(config.stateDir), "host");
  const [allowed = top] = names.map((name) => join(top, name));
  const node = openNode({ ...config, sharePaths: [allowed] });
  Object.assign(node.host, { confinement });
  node.epoch = "one";
  for (const name of names) mkdirSync(join(top, name), { recursive: true, mode: 0o755 });
  return { node, top };
}

const shared = (hostPath: string, path = "/srv") => ({ shares: [{ hostPath, path }] });

/** A create of a caller below admin. */
const byOperator = (node: Node, spec: object) =>
  node.pods.create(
    validateCreate(create(CreatePodRequestSchema, { spec }), { network: node.config.network.name }),
    {
      signal: new AbortController().signal,
      progress: { started: () => {}, finished: () => {} },
      imagesOnly: true,
    },
  );

test("a pod with shares boots, has room for what serves them, and its agent mounts them first", async (t) => {
  const { node, top } = open("a", "b");
  using _node = node;
  symlinkSync(join(top, "a"), join(top, "link"));
  const files = [{ path: "/etc/x" }];
  const shares = [
    { hostPath: join(top, "link"), path: "/srv/a" },
    { hostPath: join(top, "b"), path: "/srv/b" },
  ];
  const { id } = await node.create({ spec: { name: "web", files, shares } });
  const { vm } = node.pods.find(id).plan;
  t.deepEqual(vm.shares, [
    { tag: "share0", path: join(top, "a"), at: "/srv/a" },
    { tag: "share1", path: join(top, "b"), at: "/srv/b" },
  ]);
  t.is(vm.factory, undefined);
  t.is(vm.cmdline, "podnet.shares");
  const limits = new Map(vm.jail?.cgroups[0]?.files);
  t.is(limits.get("memory.max"), `${(128 + 256 + 2 * 256) * 2 ** 20}`);
  t.is(limits.get("pids.max"), `${1 + 96 + 2 * 8}`);
  const sent = node.calls.filter((call) => /^(?:mount|place|configure)/.test(call));
  t.deepEqual(sent, ["mount share0 /srv/a", "mount share1 /srv/b", "place /etc/x 0", "configure"]);
  await node.pods.delete(id, { force: false });
});

test("a stopped pod with shares takes another size, but no maximum of memory", async (t) => {
  const { node, top } = open("a");
  using _node = node;
  const { id } = await node.create({ spec: shared(join(top, "a")) });
  await node.pods.stop(id, { force: true });
  await node.pods.changes.resize(id, { memoryMib: 256, maxVcpu: 2 });
  t.like(node.pods.find(id).plan.vm, { memoryMib: 256, room: { vcpu: 2, memoryMib: 256 } });
  const grown = node.pods.changes.resize(id, { maxMemoryMib: 512 });
  const refused = { code: "UNSUPPORTED", field: "resources.max_memory_mib" };
  t.like(await t.throwsAsync(grown), refused);
  await node.pods.close(0);
});

test("a mount that the guest refuses undoes the create, and the step is named", async (t) => {
  const { node, top } = open("a");
  using _node = node;
  node.failing.add("mount share0");
  const refused = node.create({ spec: shared(join(top, "a")) });
  t.like(await t.throwsAsync(refused), { step: "guest.mount" });
  t.deepEqual(node.pods.list(), []);
});

test("callers below admin share what is in access.share_paths alone, whatever leads there", async (t) => {
  const { node, top } = open("allowed", "allowed-not", "elsewhere");
  using _node = node;
  symlinkSync(join(top, "elsewhere"), join(top, "allowed/out"));
  mkdirSync(join(top, "allowed/below"));
  for (const name of ["elsewhere", "allowed-not", "allowed/out", "absent", "allowed/out/absent"])
    t.like(await t.throwsAsync(byOperator(node, shared(join(top, name))), undefined, name), {
      code: "PERMISSION_DENIED",
      field: "shares[0].host_path",
    });
  await byOperator(node, { name: "whole", ...shared(join(top, "allowed")) });
  const { id } = await byOperator(node, { name: "part", ...shared(join(top, "allowed/below")) });
  t.deepEqual(node.pods.find(id).plan.vm.sharesWithin, [join(top, "allowed")]);
  // Administrators share what they like.
  await node.create({ spec: { name: "admin", ...shared(join(top, "elsewhere")) } });
  await node.pods.close(0);
});

test("a directory that cannot be served is refused before anything is made", async (t) => {
  const { node, top } = open("closed");
  using _node = node;
  chmodSync(join(top, "closed"), 0o750);
  writeFileSync(join(top, "file"), "");
  for (const [name, why] of [
    ["closed", /may not be read by others/],
    ["file", /is no directory/],
    ["file/below", /does not exist/],
    ["absent", /does not exist/],
  ] as const) {
    const refused = await t.throwsAsync(node.create({ spec: shared(join(top, name)) }));
    t.like(refused, { code: "SHARE_UNUSABLE", field: "shares[0].host_path" }, name);
    t.regex(refused?.message ?? "", why);
  }
  t.deepEqual(node.calls, []);
});

test("a pod writes to what lies in access.writable_share_paths and is a user's own alone", async (t) => {
  const { node, top } = open("a");
  using _node = node;
  Object.assign(node.config, { writableSharePaths: [join(top, "a"), join(top, "gone")] });
  const own = (name: string, uid: number, gid = uid, mode = 0o700): void => {
    mkdirSync(join(top, name));
    chownSync(join(top, name), uid, gid);
    chmodSync(join(top, name), mode);
  };
  own("b", 4321);
  own("a/data", 4321);
  own("a/of-root", 0);
  own("a/root-group", 4321, 0);
  own("a/closed", 4321, 4321, 0o500);
  symlinkSync(join(top, "b"), join(top, "a/link"));
  const written = (name: string) => ({
    shares: [{ hostPath: join(top, name), path: "/srv", writable: true }],
  });
  for (const [name, code, why] of [
    ["b", "PERMISSION_DENIED", /No pod may write/],
    ["a/link", "PERMISSION_DENIED", /No pod may write/],
    ["a/of-root", "SHARE_UNUSABLE", /belongs to root/],
    ["a/root-group", "SHARE_UNUSABLE", /belongs to root/],
    ["a/closed", "SHARE_UNUSABLE", /may not be written to by its owner/],
    ["a/absent", "SHARE_UNUSABLE", /does not exist/],
  ] as const)
    for (const make of [(spec: object) => node.create({ spec }), byOperator.bind(null, node)]) {
      const refused = await t.throwsAsync(make(written(name)), undefined, name);
      t.like(refused, { code, field: "shares[0].host_path" }, name);
      t.regex(refused?.message ?? "", why);
    }
  t.deepEqual(node.calls, []);
  const { id } = await node.create({ spec: { name: "db", ...written("a/data") } });
  const { vm } = node.pods.find(id).plan;
  t.deepEqual(vm.shares, [
    { tag: "share0", path: join(top, "a/data"), at: "/srv", writable: true },
  ]);
  t.deepEqual(vm.writableWithin, [join(top, "a"), join(top, "gone")]);
  t.true(node.calls.includes("mount share0 /srv written"));
  await node.pods.delete(id, { force: false });
});

for (const [what, boot] of [
  ["hyperstart", { agent: "hyperstart" }],
  ["none", { agent: "none" }],
] as const)
  test(`shares for a guest with ${what} are refused`, async (t) => {
    const { node, top } = open("a");
    using _node = node;
    const refused = node.create({ spec: { boot, ...shared(join(top, "a")) } });
    t.like(await t.throwsAsync(refused), { code: "UNSUPPORTED", field: "shares" });
  });

test("machines that are not confined have no shares", async (t) => {
  const { node, top } = open("a");
  using _node = node;
  Object.assign(node.host, { confinement: undefined });
  const refused = node.create({ spec: shared(join(top, "a")) });
  t.like(await t.throwsAsync(refused), { code: "UNSUPPORTED", field: "shares" });
  t.deepEqual(node.calls, []);
});
