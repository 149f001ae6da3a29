import { execFileSync } from "node:child_process";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { configuration, openNode } from "../fixtures/node.ts";

type Node = ReturnType<typeof openNode>;

const silent = {
  signal: new AbortController().signal,
  progress: { started: () => {}, finished: () => {} },
};

/** A file that stands for the squashfs of an image. */
function imageOf(node: Node): string {
  const path = join(node.config.stateDir, "image.squashfs");
  writeFileSync(path, Buffer.alloc(4096));
  return path;
}

const bootOf = (node: Node, more: object, disks: readonly object[] = []) => ({
  cmdline: "podnet.root=vda",
  disks: [{ path: imageOf(node), readOnly: true }, ...disks],
  ...more,
});

const layerOf = (node: Node, id: string): string => join(node.config.disksDir, id, "layer.raw");

test("a persistent layer is the last disk, made with the pod and removed with it", async (t) => {
  using node = openNode(configuration({}));
  const layer = { layer: "persistent", layerMib: 32 };
  const { id } = await node.create({ spec: { boot: bootOf(node, layer) } });
  const file = layerOf(node, id);
  const { vm } = node.pods.find(id).plan;
  t.is(vm.cmdline, "podnet.root=vda podnet.layer=vdb");
  t.like(vm.disks[1], { path: file, readOnly: false, layer: { bytes: 32 << 20 } });
  t.is(vm.factory, undefined);
  t.is(statSync(file).size, 32 << 20);
  const head = execFileSync("dumpe2fs", ["-h", file], { stdio: ["ignore", "pipe", "ignore"] });
  t.regex(head.toString(), /^Filesystem features: .*has_journal/m);
  t.regex(head.toString(), /^Reserved block count: +0$/m);

  const before = statSync(file).ino;
  await node.pods.stop(id, { force: true });
  await node.pods.start(id, silent);
  t.is(statSync(file).ino, before, "a start does not make it anew");
  await node.pods.delete(id, { force: false });
  t.false(existsSync(join(node.config.disksDir, id)));
  await node.pods.close(0);
});

test("a create that fails leaves no layer", async (t) => {
  using node = openNode(configuration({}));
  node.failing.add("plug bad");
  const spec = {
    boot: bootOf(node, { layer: "persistent", layerMib: 16 }),
    disks: [{ name: "bad", sizeMib: 1 }],
  };
  await t.throwsAsync(node.create({ spec }));
  t.deepEqual(execFileSync("ls", ["-A", node.config.disksDir]).toString(), "");
  await node.pods.close(0);
});

test("a layer is as large as asked for, as the node says, or 10 GiB", async (t) => {
  const sizeOf = async (diskMaxMib: number, layerMib?: number): Promise<number> => {
    using node = openNode({ ...configuration({}), diskMaxMib });
    const layer = layerMib === undefined ? {} : { layerMib };
    const disks = [{ path: imageOf(node), readOnly: true }];
    const boot = bootOf(node, { layer: "persistent", ...layer }, disks);
    const { id } = await node.create({ spec: { boot } });
    t.regex(node.pods.find(id).plan.vm.cmdline, /podnet\.layer=vdc$/);
    const { size } = statSync(layerOf(node, id));
    await node.pods.close(0);
    return size / 2 ** 20;
  };
  t.is(await sizeOf(0), 10_240);
  t.is(await sizeOf(64), 64);
  t.is(await sizeOf(64, 16), 16);
  const tooLarge = sizeOf(64, 65);
  t.like(await t.throwsAsync(tooLarge), { code: "INVALID_ARGUMENT", field: "boot.layer_mib" });
});

test("what cannot go with a layer is refused, with its field", async (t) => {
  using node = openNode(configuration({}));
  const refused = async (boot: object, like: object): Promise<void> => {
    const error = await t.throwsAsync(async () => node.create({ spec: { boot } }));
    t.like(error, like, error?.message);
  };
  const invalid = (field: string) => ({ code: "INVALID_ARGUMENT", field });
  await refused(bootOf(node, { layer: "kept" }), invalid("boot.layer"));
  await refused(bootOf(node, { layerMib: 64 }), invalid("boot.layer_mib"));
  await refused(bootOf(node, { layer: "ephemeral", layerMib: 64 }), invalid("boot.layer_mib"));
  await refused(bootOf(node, { layer: "persistent", layerMib: 15 }), invalid("boot.layer_mib"));
  await refused({ layer: "persistent" }, invalid("boot.layer"));
  await refused(bootOf(node, { layer: "persistent", factory: "template" }), {
    code: "UNSUPPORTED",
    field: "boot.factory",
  });
  await node.pods.close(0);
});
