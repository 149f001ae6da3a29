import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { Capability } from "../gen/cri_pb.ts";

/** By their numbers (capabilities(7), Linux 6.1). */
const names = (
  "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE " +
  "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO " +
  "SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME " +
  "SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG " +
  "WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
).split(" ");

/** What container runtimes give without being asked. */
const usual = (
  "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP " +
  "NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE"
).split(" ");

/** The numbers of the capabilities of a container. Throws `INVALID_ARGUMENT`, `UNSUPPORTED`. */
export function capabilitiesOf(asked: Capability | undefined): number[] {
  const { addCapabilities = [], dropCapabilities = [], addAmbientCapabilities = [] } = asked ?? {};
  if (addAmbientCapabilities.length > 0)
    throw new PodnetError("UNSUPPORTED", "podnet cannot give ambient capabilities", {
      field: field("add_ambient_capabilities"),
      hint: "Leave them out of the pod",
    });
  const add = addCapabilities.flatMap((name) => numbersOf(name, "add_capabilities"));
  const drop = new Set(dropCapabilities.flatMap((name) => numbersOf(name, "drop_capabilities")));
  const isAll = dropCapabilities.some((name) => plain(name) === "ALL");
  // As runtimes have it: what is added is there although all are dropped.
  const kept = usual.map((name) => names.indexOf(name)).filter((each) => !drop.has(each));
  const added = isAll ? add : add.filter((each) => !drop.has(each));
  return [...new Set([...kept, ...added])].toSorted((a, b) => a - b);
}

/** Their names; of undefined, all there are. */
export const capabilityNames = (numbers: readonly number[] | undefined): string[] =>
  numbers === undefined ? names : numbers.flatMap((number) => names[number] ?? []);

const field = (name: string): string => `config.linux.security_context.capabilities.${name}`;
const plain = (name: string): string => name.toUpperCase().replace(/^CAP_/, "");

function numbersOf(name: string, of: string): number[] {
  if (plain(name) === "ALL") return [...names.keys()];
  const number = names.indexOf(plain(name));
  if (number !== -1) return [number];
  throw new PodnetError("INVALID_ARGUMENT", `There is no capability "${printable(name)}"`, {
    field: field(of),
    hint: "Use names as in capabilities(7), such as NET_ADMIN",
  });
}
