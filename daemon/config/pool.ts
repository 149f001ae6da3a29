import type { z } from "zod";
import { validateResources } from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

/** Machines of one size that wait for pods. */
export interface SizeClass {
  readonly vcpu: number;
  readonly memoryMib: number;
  /** How many of them wait. */
  readonly size: number;
}

export interface PoolConfig {
  /** The first one is of the default size; no two are of one size. */
  readonly classes: readonly SizeClass[];
  /** The pools are emptied when the host has less memory than this. */
  readonly reserveMib: number;
}

export function poolConfig(pool: z.infer<typeof configSchema>["pool"], read: Reader): PoolConfig {
  const usual = { ...validateResources(undefined), size: pool.size };
  return {
    classes: [usual, ...read("pool.classes", pool.classes, (list) => parseClasses(list, usual))],
    reserveMib: pool.reserve_mib,
  };
}

/** How a size is written: `2x512` is 2 virtual processors and 512 MiB. */
export const sizeText = ({ vcpu, memoryMib }: Pick<SizeClass, "vcpu" | "memoryMib">): string =>
  `${vcpu}x${memoryMib}`;

const mostWaiting = 1000;

function parseClasses(list: readonly string[], usual: SizeClass): SizeClass[] {
  const seen = new Set([sizeText(usual)]);
  return list.map((text) => {
    const [, vcpu, memoryMib, size] = /^(\d{1,4})x(\d{1,8})=(\d{1,4})$/.exec(text) ?? [];
    if (vcpu === undefined || Number(size) > mostWaiting)
      throw refused(
        `"${text}" is not VCPUSxMIB=COUNT`,
        `Use up to ${mostWaiting}, such as 2x512=3`,
      );
    const machine = validateResources({ vcpu: Number(vcpu), memoryMib: Number(memoryMib) });
    const name = sizeText(machine);
    if (seen.has(name))
      throw name === sizeText(usual)
        ? refused(`${name} is the default size`, "Set pool.size instead")
        : refused(`${name} is there twice`, "Leave one of them out");
    seen.add(name);
    return { ...machine, size: Number(size) };
  });
}

const refused = (problem: string, hint: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", problem, { hint });
