import { fromJson } from "@bufbuild/protobuf";
import { AddDiskRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { parseDiskName, validateAddDisk } from "../../../api/validate/data-disks.ts";
import { json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT"] as const;

/** A request that is accepted names what QEMU and the host's files can bear. */
function request(bytes: Uint8Array): void {
  let asked: ReturnType<typeof fromJson<typeof AddDiskRequestSchema>>;
  try {
    asked = fromJson(AddDiskRequestSchema, JSON.parse(textOf(bytes)));
  } catch {
    return;
  }
  const disk = valueOf(refusals, () => validateAddDisk(asked));
  if (disk === undefined) return;
  const { name = "data", file, sizeMib = 0 } = disk;
  checkName(name);
  if ((file === undefined) === (sizeMib === 0)) throw new Error("Neither a file nor a size");
  if (file !== undefined && !/^\/[^\p{Cc}]*$/u.test(file.path)) throw new Error(file.path);
}

/** It is part of a file's name and of QEMU's ids, and a serial number. */
function checkName(name: string): void {
  if (!/^[a-z0-9-]{1,20}$/.test(name) || /^(?:disk\d+|seed)$/.test(name))
    throw new Error(`A name that cannot be: ${name}`);
}

function diskName(bytes: Uint8Array): void {
  const name = valueOf(refusals, () => parseDiskName(textOf(bytes)));
  if (name !== undefined) checkName(name);
}

export const disks: readonly Target[] = [
  {
    name: "api-add-disk",
    files: ["api/validate/data-disks.ts"],
    except: ["parseDiskName"],
    seeds: [
      { name: "data", sizeMib: 64 },
      { file: "/srv/a.raw", readOnly: true },
      { file: "/srv/a.qcow2", format: "qcow2", name: "disk0" },
      { file: "/srv/a", sizeMib: 1 },
      { sizeMib: 4_294_967_295 },
      { sizeMib: 1, format: "raw", readOnly: true },
    ].map((disk) => json({ idOrName: "web", disk })),
    words: [
      "disk",
      "name",
      "file",
      "format",
      "sizeMib",
      "readOnly",
      "qcow2",
      "/",
      "seed",
      "..",
      "\u0000",
    ],
    run: request,
  },
  {
    name: "api-disk-name",
    files: ["api/validate/data-disks.ts"],
    only: ["parseDiskName"],
    seeds: ["data", "data-2", "disk0", "disk-0", "seed", "a".repeat(20), "a".repeat(21)].map(utf8),
    words: ["-", "disk", "seed", "0", "\n", ",", "="],
    run: diskName,
  },
];
