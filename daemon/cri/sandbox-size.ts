import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { memoryBlockMib, type VmPlan, type VmSize, sizeOf } from "../../hypervisor/driver.ts";

/** Annotations that say how large a sandbox's machine may become while it runs. */
const mostVcpu = "podnet/max-vcpu";
const mostMemory = "podnet/max-memory-mib";

/** The room of a sandbox's machine. Throws `INVALID_ARGUMENT`. */
export function mostOf(annotations: Readonly<Record<string, string>>): {
  readonly maxVcpu?: number;
  readonly maxMemoryMib?: number;
} {
  const [maxVcpu, maxMemoryMib] = [mostVcpu, mostMemory].map((key) => wholeOf(annotations, key));
  return {
    ...(maxVcpu === undefined ? {} : { maxVcpu }),
    ...(maxMemoryMib === undefined ? {} : { maxMemoryMib }),
  };
}

function wholeOf(annotations: Readonly<Record<string, string>>, key: string): number | undefined {
  const text = annotations[key];
  if (text === undefined) return undefined;
  if (/^[1-9]\d{0,6}$/.test(text)) return Number(text);
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is not a whole number`, {
    field: `config.annotations["${key}"]`,
    hint: "Write digits alone, 1 to 9999999",
  });
}

/**
 * The size of a machine that runs, for what its containers are to have in all; undefined when it
 * suffices. A machine that is larger than its containers keeps its size: nothing is taken from it
 * while it runs, and their limits are those of the guest. Throws `UNSUPPORTED` where it has no
 * room.
 */
export function sizeFor(
  vm: Pick<VmPlan, "vcpu" | "memoryMib" | "grown" | "room">,
  asked: Partial<VmSize>,
): VmSize | undefined {
  const has = sizeOf(vm);
  const most = vm.room ?? has;
  const { vcpu = has.vcpu, memoryMib = has.memoryMib } = asked;
  const blocks = Math.max(0, Math.ceil((memoryMib - has.memoryMib) / memoryBlockMib));
  const next = {
    vcpu: Math.max(has.vcpu, vcpu),
    memoryMib: has.memoryMib + blocks * memoryBlockMib,
  };
  for (const [is, room, what, key] of [
    [next.vcpu, most.vcpu, "processors", mostVcpu],
    [next.memoryMib, most.memoryMib, "MiB of memory", mostMemory],
  ] as const)
    if (is > room)
      throw new PodnetError(
        "UNSUPPORTED",
        `The sandbox's machine needs ${is} ${what}, and has room for ${room} while it runs`,
        {
          field: "resources",
          hint: `Make the pod again, or give it room when it is made: the annotation ${key}`,
        },
      );
  return next.vcpu === has.vcpu && next.memoryMib === has.memoryMib ? undefined : next;
}
