import test from "ava";
import { create } from "@bufbuild/protobuf";
import { PodSpecSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { validateSpec } from "../../../../api/validate/validate.ts";
import { bootFiles } from "../../../../daemon/pods/plan/gather-files.ts";
import { planDisks } from "../../../../daemon/pods/plan/plan-disks.ts";
import type { DiskSnapshot, Snapshot } from "../../../../daemon/pods/plan/snapshot.ts";

const found = {
  kind: "disk",
  bytes: 1024,
  image: "file 1 1",
  mark: "file 1024 7",
  writable: true,
  usedBy: undefined,
  holders: [],
} as const;

function plan(
  disks: readonly object[],
  there: readonly DiskSnapshot[],
  files: Snapshot["files"] = {},
) {
  const wire = create(PodSpecSchema, { boot: { disks: [...disks] } });
  const spec = validateSpec(wire, { network: "default" as never });
  const snapshot = {
    podId: "abcdefghijkl",
    disksDir: "/state/disks",
    defaultImage: {},
    files,
    disks: there,
  };
  return planDisks(spec, snapshot as unknown as Snapshot);
}

test("a disk is written to in a file of the pod's own, unless it is read only or asked to go through", (t) => {
  const path = "/images/a";
  const other = { ...found, image: "file 1 2" };
  const third = { ...found, image: "file 1 3" };
  t.deepEqual(
    plan(
      [
        { path, format: "qcow2" },
        { path, readOnly: true },
        { path, writeThrough: true },
      ],
      [found, other, third],
    ),
    [
      {
        path,
        format: "qcow2",
        readOnly: false,
        overlay: { path: "/state/disks/abcdefghijkl/0.qcow2", bytes: 1024, over: "file 1024 7" },
      },
      { path, format: "raw", readOnly: true },
      { path, format: "raw", readOnly: false },
    ],
  );
});

test("an image that is written to is one pod's alone", (t) => {
  const path = "/images/a";
  const held = (use: "reads" | "writes"): DiskSnapshot => ({
    ...found,
    holders: [{ pod: "web", use }],
  });
  t.notThrows(() => plan([{ path }], [held("reads")]));
  t.notThrows(() => plan([{ path, readOnly: true }, { path }], [held("reads"), held("reads")]));
  const refused = (disks: readonly object[], there: readonly DiskSnapshot[]) =>
    t.throws(() => plan(disks, there));
  const inUse = { code: "IMAGE_IN_USE", field: "boot.disks[0].path" };
  const named = { ...inUse, details: { path, holder: "web" } };
  t.like(refused([{ path }], [held("writes")]), named);
  t.like(refused([{ path, readOnly: true }], [held("writes")]), named);
  t.like(refused([{ path, writeThrough: true }], [held("reads")]), named);
  // Programs that are no pods lock what they have, too.
  t.like(refused([{ path }], [{ ...found, usedBy: "writes" }]), inUse);
  t.like(refused([{ path, writeThrough: true }], [{ ...found, usedBy: "reads" }]), inUse);
  t.notThrows(() => plan([{ path }], [{ ...found, usedBy: "reads" }]));
  t.like(refused([{ path, writeThrough: true }], [{ ...found, writable: false }]), {
    code: "IMAGE_UNREADABLE",
    field: "boot.disks[0].path",
  });
  t.like(refused([{ path }, { path: "/images/link", writeThrough: true }], [found, found]), {
    code: "INVALID_ARGUMENT",
    field: "boot.disks[1].path",
  });
});

test("a pod does not write to what it boots from itself", (t) => {
  const path = "/images/initramfs";
  const files = { [path]: { kind: "file", bytes: 1024, image: found.image } } as const;
  t.notThrows(() => plan([{ path }], [found], files));
  t.throws(() => plan([{ path, writeThrough: true }], [found], files), {
    code: "INVALID_ARGUMENT",
  });
});

test("what the host boots a machine from", (t) => {
  const image = { kernel: "/vmlinux", initrd: "/initrd" };
  const boot = { cmdline: "", disks: [] };
  t.deepEqual(bootFiles(boot, image), image);
  t.deepEqual(bootFiles({ ...boot, initrd: "none" }, image), { kernel: "/vmlinux" });
  t.deepEqual(bootFiles({ ...boot, kernel: "/own", initrd: "none" }, image), { kernel: "/own" });
  t.deepEqual(bootFiles({ ...boot, kernel: "/own" }, image), { kernel: "/own", initrd: "/initrd" });
  t.deepEqual(bootFiles({ ...boot, kernel: "none" }, image), {});
});
