import type { Fault } from "../fault.ts";

const readers = {
  file: "test/vm/standin-disks.test.ts",
  title: "a pod does not write to what another pod or the node boots from",
};

const packing = {
  file: "test/vm/image-worker.test.ts",
  title: "a directory is packed by a program that reads it, and nothing else",
};

/** Files that pods boot from, read and write to. */
export const imagesFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "the node's default image can be written through to",
    file: "daemon/pods/plan/image-holders.ts",
    find: 'for (const path of [kernel, initrd]) add(path, { use: "reads" });',
    put: "void [kernel, initrd];",
    noticedBy: readers,
    slow: true,
  },
  {
    kind: "access",
    name: "a pod boots from an initramfs that another pod writes to",
    file: "daemon/pods/plan/plan-boot.ts",
    find: 'if (file.kind === "file" && file.writer !== undefined)',
    put: 'if (file.kind === "file" && file.writer === "")',
    noticedBy: readers,
    slow: true,
  },
  {
    kind: "access",
    name: "a pod writes to its own initramfs",
    file: "daemon/pods/plan/plan-disks.ts",
    find: 'bootFiles.map((image) => [image, "reads"])',
    put: 'bootFiles.slice(0, 0).map((image) => [image, "reads"])',
    noticedBy: {
      file: "test/unit/daemon/pods/plan-disks.test.ts",
      title: "a pod does not write to what it boots from itself",
    },
  },
  {
    kind: "access",
    name: "what packs a directory sees what is mounted below it",
    file: "hypervisor/jail/podnet-jail.c",
    find: "unsigned all = piece->kind == TREE ? 0 : AT_RECURSIVE;",
    put: "unsigned all = AT_RECURSIVE;",
    build: "jail",
    noticedBy: packing,
    slow: true,
  },
  {
    kind: "access",
    name: "what packs a directory has the host's network",
    file: "daemon/images/pack-directory.ts",
    find: "network: false,",
    put: "network: true,",
    noticedBy: packing,
    slow: true,
  },
  {
    kind: "undo",
    name: "a conversion that fails leaves the part that it has written",
    file: "images/convert-image.ts",
    find: "await rm(unfinished, { force: true });",
    put: "void rm;",
    noticedBy: {
      file: "test/unit/images/convert.test.ts",
      title: "limits and an interruption end a conversion, and leave nothing",
    },
  },
  {
    kind: "record",
    name: "the bytes of a layer are not compared with its digest",
    file: "images/archive/layer-bytes.ts",
    find: 'if (digest.endsWith(`:${hash.digest("hex")}`)) return;',
    put: 'if (hash.digest("hex") !== "") return;',
    noticedBy: {
      file: "test/unit/images/convert.test.ts",
      title: "a damaged image leaves nothing, and the error names what is damaged",
    },
  },
  {
    kind: "undo",
    name: "a podnetd that was killed leaves the directory of its import",
    file: "daemon/images/image-jobs.ts",
    find: "try {\n        await this.#removeJob(job);",
    put: "try {\n        deleteJob(db, job.id);",
    noticedBy: {
      file: "test/vm/image-worker.test.ts",
      title: "a podnetd that was killed within a pull or an import leaves nothing",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "a directory that meets a full disk is answered as one that cannot be read",
    file: "daemon/images/pack-directory.ts",
    find: "if (isCut || /No space left|quota exceeded/i.test(said))",
    put: "if (/No space left|quota exceeded/i.test(said))",
    noticedBy: {
      file: "test/vm/image-full.test.ts",
      title: "an image that finds no room leaves nothing, and says so",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "a caller without a credential joins a pull that has one",
    file: "daemon/images/image-jobs.ts",
    find: " ${markOf(credential)}`;",
    put: "`;\n    void markOf;",
    noticedBy: {
      file: "test/vm/image-pull.test.ts",
      title: "the credential of a call is for that call alone, and is nowhere afterwards",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "kubelet's credential goes to a registry that it is not for",
    file: "daemon/images/call-credential.ts",
    find: 'sent.serverAddress !== "" && plainKey(sent.serverAddress) !== registry',
    put: 'sent.serverAddress === "never" && plainKey(sent.serverAddress) !== registry',
    noticedBy: {
      file: "test/unit/daemon/cri/images.test.ts",
      title: "kubelet's credential is used for the registry that it is for, and is not logged",
    },
  },
  {
    kind: "escape",
    name: "system calls of a newer kernel pass every filter",
    file: "daemon/cri/seccomp/filter.ts",
    find: "end(profile.unknown),",
    put: "end(answer.allow),",
    noticedBy: {
      file: "test/unit/daemon/cri/seccomp.test.ts",
      title: "every call gets the answer of its rule, on both architectures",
    },
  },
  {
    kind: "escape",
    name: "a container makes namespaces of users below podnet's profile",
    file: "daemon/cri/seccomp/runtime-default.ts",
    find: 'if (!has("SYS_ADMIN"))',
    put: 'if (has("SYS_ADMIN"))',
    noticedBy: {
      file: "test/unit/daemon/cri/seccomp.test.ts",
      title: "podnet's own profile keeps what a container has no capability for away",
    },
  },
  {
    kind: "bound",
    name: "a file system whose first block is zeros is an archive without files",
    file: "images/archive/recognize.ts",
    find: "begin.every((byte) => byte === 0)",
    put: "begin.subarray(0, blockBytes).every((byte) => byte === 0)",
    noticedBy: {
      file: "test/unit/images/recognize.test.ts",
      title: "what is no image is refused by its name, with what was expected and what to do",
    },
  },
  {
    kind: "bound",
    name: "a qcow2 header of any length is taken",
    file: "hypervisor/disks/qcow2-file.ts",
    find: "if (headerBytes < qcow2HeadBytes || headerBytes > clusterBytes)",
    put: "if (headerBytes < 0)",
    noticedBy: {
      file: "test/vm/qcow2-heads.test.ts",
      title: "podnet refuses every qcow2 head that QEMU refuses, before anything is made",
    },
  },
  {
    kind: "access",
    name: "an operator's disk is written through wherever it lies",
    file: "hypervisor/disks/allowed-files.ts",
    find: "if (writesThrough && writeWithin !== undefined)",
    put: "if (writesThrough) return;\n  if (writeWithin !== undefined && writesThrough)",
    noticedBy: {
      file: "test/vm/standin-images.test.ts",
      title: "an operator's pod writes through to a disk of access.write_through_paths alone",
    },
    slow: true,
  },
  {
    kind: "mark",
    name: "the kernel that is kept for runv is the one that podnetd uses",
    file: "guest-init/image/build-image.ts",
    find: "(temporary) => copyFileSync(packaged, temporary));",
    put: "(temporary) => copyFileSync(extracted, temporary));",
    build: "image",
    noticedBy: {
      file: "test/vm/agent-image.test.ts",
      title:
        "a machine of an old type, as runv makes it, starts the bzImage that is kept, and no vmlinux",
    },
    slow: true,
  },
];
