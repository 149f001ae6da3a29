import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import { DiskState, type Pod, type PodDisk, PodSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { DataDiskSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { FlagWriter } from "../../flags/given.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { parseMemory } from "../../parse.ts";
import { usage } from "../../usage.ts";
import { lower } from "../../views/pod-view.ts";
import { harmless, table } from "../../views/text.ts";

interface AddOptions extends OutputOptions {
  readonly file?: string;
  readonly size?: string;
  readonly format?: string;
  readonly readOnly?: boolean;
  readonly name?: string;
}

const addExamples = `
The pod has the disk again when it is started anew. The guest finds it by its name: Debian as
/dev/disk/by-id/virtio-NAME, and every Linux in /sys/block/vd*/serial.

With --file the pod writes to this file, which no other pod can use then, and which stays when the
disk is removed. With --size podnetd makes an empty disk, which is removed with the disk or the pod.

Examples:
  podnet disk add web --size 1G                        an empty disk, with the name data
  podnet disk add web --size 512M --name cache
  podnet disk add web --file /srv/set.raw --read-only  any number of pods can read it`;

const removeNote = `
Unmount the disk in the guest first. A file that podnetd made for the disk is removed with it; a
file that was given stays. A guest that keeps the disk has it until it lets go or ends.

Works for stopped pods too.`;

/** The commands about plugged disks. */
export function addDisk(program: Command, context: Context): void {
  const group = program
    .command("disk")
    .alias("disks")
    .description("plug disks into a running pod, remove and list them");
  addList(group, context);
  addAdd(group, context);
  addRemove(group, context);
}

function addList(group: Command, context: Context): void {
  addOutput(group.command("list").alias("ls").description("list a pod's plugged disks"))
    .argument("<pod>", "name or id")
    .action(async (idOrName: string, options: OutputOptions) => {
      const { pod } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.get({ idOrName }, { signal }),
      );
      await answer(context, options, pod);
    });
}

function addAdd(group: Command, context: Context): void {
  addOutput(group.command("add").description("plug a disk into a running pod"))
    .argument("<pod>", "name or id")
    .option("--file <path>", "a file or block device on the host, by its full path")
    .option("--size <amount>", "an empty disk instead, in MiB or with a unit: 512M, 1G")
    .option("--format <format>", "of the file: raw or qcow2; default raw")
    .option("--read-only", "the pod cannot write to it")
    .option("--name <name>", "1 to 20 characters from a-z, 0-9 and -; default data")
    .addHelpText("after", addExamples)
    .action(async (idOrName: string, options: AddOptions) => {
      if ((options.file === undefined) === (options.size === undefined))
        throw usage("A disk is a file, or an empty one of a size", "Give --file or --size");
      const disk = create(DataDiskSchema);
      const flags = new FlagWriter(options, context.given);
      flags.put("file", "disk.file", (path) => (disk.file = path));
      flags.put("size", "disk.size_mib", (size) => (disk.sizeMib = parseMemory(size, "--size")));
      flags.put("format", "disk.format", (format) => (disk.format = format));
      flags.put("readOnly", "disk.read_only", (readOnly) => (disk.readOnly = readOnly));
      flags.put("name", "disk.name", (name) => (disk.name = name));
      const { pod } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.addDisk({ idOrName, disk }, { signal }),
      );
      await answer(context, options, pod);
    });
}

function addRemove(group: Command, context: Context): void {
  addOutput(group.command("remove").alias("rm").description("unplug a disk from a pod"))
    .argument("<pod>", "name or id")
    .argument("<name>", "the disk's name")
    .addHelpText("after", removeNote)
    .action(async (idOrName: string, name: string, options: OutputOptions) => {
      const { pod } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.removeDisk({ idOrName, name }, { signal }),
      );
      await answer(context, options, pod);
    });
}

async function answer(
  { io }: Context,
  { output }: OutputOptions,
  pod: Pod | undefined,
): Promise<void> {
  if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  if (output === "table") io.stdout.write(diskTable(pod.disks));
  else await printDocument(io, output, document("Pod", toPlain(PodSchema, pod)));
}

const diskTable = (disks: readonly PodDisk[]): string =>
  table(
    ["NAME", "STATE", "ACCESS", "SIZE", "FORMAT", "FILE"],
    disks.map(({ name, state, readOnly, madeMib, format, path }) => [
      name,
      lower(DiskState, state),
      readOnly ? "read only" : "read and write",
      madeMib === 0 ? "" : `${madeMib}M`,
      format,
      harmless(path),
    ]),
  );
