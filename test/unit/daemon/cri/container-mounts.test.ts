import {
  chmodSync,
  chownSync,
  closeSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { confinement } from "../fixtures/confinement.ts";
import { nginx } from "./rig.ts";
import { asked, started } from "./container-rig.ts";

test("an emptyDir is one that containers share, until it has something in it", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const cache = join(it.mounts, "u-1/volumes/kubernetes.io~empty-dir/cache");
  const part = join(it.mounts, "u-1/volume-subpaths/cache/app/0");
  const claim = join(it.mounts, "u-1/volumes/kubernetes.io~csi/claim/mount");
  for (const path of [cache, part, claim]) mkdirSync(path, { recursive: true });
  const named = (name: string, containerPath: string, hostPath = cache) =>
    asked(it.podSandboxId, {
      metadata: { name, attempt: 0 },
      mounts: [{ containerPath, hostPath, readonly: name === "reader" }],
    });
  await cri.createContainer(named("writer", "/a"));
  await cri.createContainer(named("reader", "/b"));
  const { volumes } = node.containers;
  t.truthy(volumes.get("/a")?.volume);
  t.is(volumes.get("/a")?.volume, volumes.get("/b")?.volume);
  // What a container writes to a volume that is empty yet would never reach it.
  for (const path of [part, claim])
    await t.throwsAsync(cri.createContainer(named("part", "/c", path)), {
      code: Code.Unimplemented,
    });
  writeFileSync(join(cache, "of-the-host"), "x");
  await t.throwsAsync(cri.createContainer(named("late", "/c")), { code: Code.Unimplemented });
});

test("a container writes to what its sandbox's annotation names, and gets that live", async (t) => {
  const data = mkdtempSync(join(tmpdir(), "podnet-written-"));
  mkdirSync(join(data, "part"));
  chownSync(data, 4321, 4321);
  // A server that begins to listen meanwhile sets another mask for this process.
  chmodSync(data, 0o700);
  symlinkSync("/etc", join(data, "out"));
  const annotations = { "podnet/writable-paths": data };
  await using it = await started({ annotations }, ({ node }) => {
    Object.assign(node.config, { writableSharePaths: [data] });
    Object.assign(node.host, { confinement, epoch: "one" });
    const { kernel, initrd } = node.config.image;
    for (const file of [kernel, initrd]) if (file !== undefined) chmodSync(file, 0o644);
  });
  const { cri, node } = it.rig;
  const { shares } = node.pods.find(it.podSandboxId).plan.vm;
  t.deepEqual(shares, [{ tag: "share0", path: data, at: "/run/podnet-shares/0", writable: true }]);
  const named = (name: string, hostPath: string, readonly = false) =>
    asked(it.podSandboxId, {
      metadata: { name, attempt: 0 },
      mounts: [{ containerPath: `/${name}`, hostPath, readonly }],
    });
  for (const [name, path, readonly] of [
    ["all", data, false],
    ["part", join(data, "part"), false],
    ["read", join(data, "part"), true],
  ] as const)
    await cri.createContainer(named(name, path, readonly));
  const at = "/run/podnet-shares/0";
  const got = (path: string) => {
    const { share, readOnly } = node.containers.volumes.get(path) ?? {};
    return { ...share, readOnly };
  };
  t.deepEqual(got("/all"), { at, below: "", readOnly: false });
  t.deepEqual(got("/part"), { at, below: "part", readOnly: false });
  t.deepEqual(got("/read"), { at, below: "part", readOnly: true });
  for (const path of [join(data, "out"), join(data, ".."), `${data}-other`])
    await t.throwsAsync(cri.createContainer(named("out", path)));
  for (const text of ["", `${data},`, `${data}, ${data}`, "relative", `${data}/../x`])
    await t.throwsAsync(
      cri.runPodSandbox(nginx({ annotations: { "podnet/writable-paths": text }, hostname: "x" })),
      { code: Code.InvalidArgument },
      text,
    );
});

test("mounts keep owners, hide what the image has there, and come from the top down", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const conf = join(it.mounts, "conf");
  mkdirSync(join(conf, "deep"), { recursive: true });
  for (const [name, owner] of [
    ["token", 1000],
    ["deep/other", 0],
  ] as const) {
    writeFileSync(join(conf, name), name);
    chownSync(join(conf, name), owner, owner);
    chmodSync(join(conf, name), 0o640);
  }
  const below = join(it.mounts, "u-1/volumes/kubernetes.io~empty-dir/below");
  mkdirSync(below, { recursive: true });
  const mounts = [
    { containerPath: "/etc/app/deep/below/", hostPath: below },
    { containerPath: "/etc/app", hostPath: conf, readonly: true },
  ];
  await cri.createContainer(asked(it.podSandboxId, { mounts }));
  const steps = node.calls.filter((call) => /^container (file|volume)/.test(call));
  t.is(steps[0], "container volume /etc/app");
  t.is(steps.at(-1), "container volume /etc/app/deep/below");
  t.is(node.containers.volumes.get("/etc/app")?.volume, undefined, "its own");
  const owners = node.containers.files.map(({ path, uid, gid, mode }) => [path, uid, gid, mode]);
  t.deepEqual(
    owners.toSorted((a, b) => String(a[0]).localeCompare(String(b[0]))),
    [
      ["/etc/app/deep/other", 0, 0, 0o640],
      ["/etc/app/token", 1000, 1000, 0o640],
    ],
  );
});

test("a mount of many files is refused before they are read", async (t) => {
  await using it = await started();
  const many = join(it.mounts, "many");
  mkdirSync(many);
  // Read whole, they would be 2 GiB.
  for (let i = 0; i < 4096; i++) {
    const file = openSync(join(many, String(i)), "w");
    ftruncateSync(file, 512 * 1024);
    closeSync(file);
  }
  const before = process.resourceUsage().maxRSS;
  const mounts = [{ containerPath: "/x", hostPath: many, readonly: true }];
  await t.throwsAsync(it.rig.cri.createContainer(asked(it.podSandboxId, { mounts })), {
    code: Code.ResourceExhausted,
  });
  t.true(process.resourceUsage().maxRSS - before < 512 * 1024, "KiB");
});
