import { PodnetError } from "../../core/errors.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { makeDirectories, readText, replaceFile } from "./files.ts";
import { openFlag, sys } from "./sys.ts";

/** Where hyperstart keeps files of the pod for its containers. */
export const hyperDirectory = "/tmp/hyper";

/**
 * In a custom image all users can write to /tmp: root does not write to names there that others may
 * have made a link.
 */
export const forContainers = (): boolean => sys.pid() === 1;

/**
 * Sets the kernel's hostname, and hyperstart's file with it; the name the image has written down
 * stays.
 */
export function setHostname(name: string): void {
  if (name.length > 64 || !/^[A-Za-z0-9._-]+$/.test(name))
    throw new PodnetError("INVALID_ARGUMENT", "The hostname is not usable", { field: "hostname" });
  sys.setHostname(name);
  if (!forContainers()) return;
  makeDirectories(hyperDirectory);
  replaceFile(`${hyperDirectory}/hostname`, encodeUtf8(`${name}\n`));
}

export const hostname = (): string => (readText("/proc/sys/kernel/hostname") ?? "").trimEnd();

/** RNDADDENTROPY and RNDRESEEDCRNG: include/uapi/linux/random.h (Linux 6.1). */
const addEntropy = 0x40085203;
const reseed = 0x5207;

/**
 * Stirs bytes into the kernel's pool and reseeds at once. A guest cloned from a memory image has
 * its twins' random state: without this all of them draw the same "random" numbers.
 */
export function addRandomness(bytes: Uint8Array): void {
  // struct rand_pool_info: bits counted, bytes, the bytes.
  const info = new Uint8Array(8 + bytes.length);
  const view = new DataView(info.buffer);
  view.setInt32(0, bytes.length * 8, true);
  view.setInt32(4, bytes.length, true);
  info.set(bytes, 8);
  const fd = sys.open("/dev/urandom", openFlag.write);
  try {
    sys.ioctlBytes(fd, addEntropy, info);
    sys.ioctlNumber(fd, reseed, 0);
  } finally {
    sys.close(fd);
  }
}

const machineIdFile = "/etc/machine-id";

/** Gives the guest another machine-id(5): 32 hexadecimal digits from the kernel's random pool. */
export function newMachineId(): void {
  makeDirectories("/etc");
  replaceFile(machineIdFile, encodeUtf8(`${newUuid().replaceAll("-", "")}\n`));
}

/** Gives the guest a machine-id unless its image brought one. */
export function ensureMachineId(): void {
  if ((readText(machineIdFile) ?? "").trim() === "") newMachineId();
}

const newUuid = (): string =>
  (readText("/proc/sys/kernel/random/uuid") ?? String(sys.clock())).trim();

/** Pages are 4 KiB on x86_64 and in Debian's arm64 kernels. */
const pageKib = 4;

/** Resident memory of this process, KiB. */
export const residentKib = (): number =>
  Number((readText("/proc/self/statm") ?? "").split(" ")[1] ?? 0) * pageKib;

/** Different at every start of the agent. */
export const newEpoch = newUuid;
