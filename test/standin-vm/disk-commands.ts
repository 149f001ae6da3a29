import { checkId, isObject, type Json } from "./arguments.ts";
import type { CommandContext } from "./commands.ts";
import { QmpError } from "./qmp-error.ts";

/** `add-fd`. */
export function addFd(args: Json, { machine, takeFd }: CommandContext): unknown {
  const fd = takeFd();
  if (fd === undefined) throw new QmpError("No file descriptor supplied via SCM_RIGHTS");
  return machine.diskFiles.add(fd, args["opaque"] as string | undefined);
}

/** `remove-fd`. */
export function removeFd(args: Json, { machine }: CommandContext): unknown {
  machine.diskFiles.remove(Number(args["fdset-id"]));
  return {};
}

/** `blockdev-add`, of the nodes that podnet makes. */
export function addNode(args: Json, { machine }: CommandContext): unknown {
  const { file } = args;
  machine.diskFiles.addNode(
    String(args["node-name"]),
    isObject(file) ? String(file["filename"]) : "",
  );
  return {};
}

/** `blockdev-del`. */
export function removeNode(args: Json, { machine }: CommandContext): unknown {
  const name = String(args["node-name"]);
  const isUsed = [...machine.disks.values()].some(({ drive }) => drive === name);
  if (isUsed) throw new QmpError(`Node ${name} is in use`);
  machine.diskFiles.removeNode(name);
  return {};
}

/** `device_add` of a disk; the caller has looked at bus and id. */
export function addDisk(args: Json, slot: number, { machine }: CommandContext): unknown {
  const id = String(args["id"]);
  const drive = String(args["drive"]);
  checkId(id);
  if (!machine.diskFiles.hasNode(drive))
    throw new QmpError(`Property 'virtio-blk-device.drive' can't find value '${drive}'`);
  if ([...machine.disks.values()].some((disk) => disk.drive === drive))
    throw new QmpError(`Drive '${drive}' is already in use by another block device`);
  machine.addDisk({ id, slot, drive });
  return {};
}
