import { create } from "@bufbuild/protobuf";
import test from "ava";
import { AddDiskRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { parseDiskName, validateAddDisk } from "../../../../api/validate/data-disks.ts";

const asked = (disk: object) => validateAddDisk(create(AddDiskRequestSchema, { disk }));

test("a disk is a file or a size, and what is left out is chosen", (t) => {
  t.deepEqual(asked({ sizeMib: 64 }), { sizeMib: 64, readOnly: false });
  t.deepEqual(asked({ name: "a-1", file: "/srv/a", readOnly: true }), {
    name: "a-1",
    file: { path: "/srv/a", format: "raw" },
    readOnly: true,
  });
  t.deepEqual(asked({ file: "/srv/a", format: "qcow2" }), {
    file: { path: "/srv/a", format: "qcow2" },
    readOnly: false,
  });
});

const refused: readonly (readonly [object, string])[] = [
  [{}, "file"],
  [{ file: "/a", sizeMib: 1 }, "size_mib"],
  [{ file: "a" }, "file"],
  [{ file: "/a\n" }, "file"],
  [{ file: `/${"a".repeat(5000)}` }, "file"],
  [{ file: "/a", format: "vmdk" }, "format"],
  [{ sizeMib: 1, format: "raw" }, "format"],
  [{ sizeMib: 1, readOnly: true }, "read_only"],
  [{ sizeMib: 2 ** 31 + 1 }, "size_mib"],
  [{ sizeMib: 1, name: "A" }, "name"],
];
for (const [request, field] of refused)
  test(`${JSON.stringify(request).slice(0, 60)} is refused`, (t) => {
    const error = t.throws(() => asked(request));
    t.like(error, { code: "INVALID_ARGUMENT", field: `disk.${field}` } as never);
  });

test("names are what a serial number and QEMU's ids can hold, and none of a disk of the boot", (t) => {
  for (const name of ["a", "0", "a-b", "a".repeat(20), "disk", "disk-1", "seed-1"])
    t.is(parseDiskName(name), name);
  for (const name of ["", "-a", "a-", "a".repeat(21), "a,b", "a=b", "a.b", "ä", "a b", "../a"])
    t.throws(() => parseDiskName(name), { code: "INVALID_ARGUMENT" } as never, name);
  for (const name of ["disk0", "disk15", "seed"])
    t.throws(() => parseDiskName(name), { code: "INVALID_ARGUMENT" } as never, name);
});
