import type { Fault } from "../fault.ts";

const live = "test/unit/daemon/pods/live-disks.test.ts";

/** Disks of running pods, layers over images, and images that are disks. */
export const dataDiskFaults: readonly Fault[] = [
  {
    kind: "record",
    name: "a disk's row does not say that it is being added",
    file: "daemon/pods/disks/live-disks.ts",
    find: '({ plan }) => withDisk(plan, { ...disk, change: "adding" }),',
    put: "({ plan }) => withDisk(plan, disk),",
    noticedBy: {
      file: live,
      title:
        "a disk is added after its row and removed after its row, with the file that podnetd made",
    },
  },
  {
    kind: "undo",
    name: "a disk's file stays when a guest has kept the disk until its machine's end",
    file: "daemon/pods/disks/act-disks.ts",
    find: "for (const disk of changingDisks(live.plan)) {\n    await removeOwnFiles(madeFiles([disk]));",
    put: "for (const disk of changingDisks(live.plan)) {",
    noticedBy: {
      file: live,
      title:
        "a guest that keeps a disk has it, with its file, until it lets go or its machine ends",
    },
  },
  {
    kind: "bound",
    name: "the file of a disk is not looked at again when it is opened",
    file: "hypervisor/disks/disks.ts",
    find: "openFile(file, flags, check)",
    put: "openFile(file, flags)",
    noticedBy: {
      file: live,
      title:
        "callers below admin give files of the configured directories alone, whatever leads there",
    },
  },
  {
    kind: "bound",
    name: "a file that took a disk's place is given to QEMU as it is",
    file: "hypervisor/disks/disks.ts",
    find: "const why = openFault(fd, format);",
    put: "const why = undefined;",
    noticedBy: {
      file: live,
      title: "a file that took the place of a disk is looked at again when the pod starts",
    },
  },
  {
    kind: "bound",
    name: "a disk that names other files is taken into the store of images",
    file: "daemon/images/image-jobs.ts",
    find: "if (disk !== undefined) refuseBadDisk(fd, disk);",
    put: "",
    noticedBy: {
      file: "test/vm/image-disks.test.ts",
      title: "a disk that is not whole, or leads elsewhere, is no image",
    },
  },
  {
    kind: "undo",
    name: "the layer of a pod stays behind when the pod is deleted",
    file: "hypervisor/disks/copy-on-write.ts",
    find: "return layer === undefined ? [] : [path];",
    put: "return layer === undefined ? [] : [];",
    noticedBy: {
      file: "test/unit/daemon/pods/plan-layer.test.ts",
      title: "a persistent layer is the last disk, made with the pod and removed with it",
    },
  },
];
