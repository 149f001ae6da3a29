import type * as z from "zod";
import { validateResources } from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import { parseReference, referenceText } from "../../images/reference.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

/** Machines of one size and image that wait for pods. */
export interface SizeClass {
  /** Absent: podnet's own image. A name as `referenceText` writes it. */
  readonly image?: string;
  readonly vcpu: number;
  readonly memoryMib: number;
  /** How many of them wait. */
  readonly size: number;
}

export interface PoolConfig {
  /** The first one is of podnet's own image and the default size; no two are alike. */
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

/** How a class is written without its count: `2x512`, or `app:1 2x512` for a container image. */
export const classText = ({ image, vcpu, memoryMib }: Omit<SizeClass, "size">): string =>
  `${image === undefined ? "" : `${image} `}${vcpu}x${memoryMib}`;

const mostWaiting = 1000;

function parseClasses(list: readonly string[], usual: SizeClass): SizeClass[] {
  const seen = new Set([classText(usual)]);
  return list.map((text) => {
    const [, name, vcpu, memoryMib, size] =
      /^(?:(\S+) )?(\d{1,4})x(\d{1,8})=(\d{1,4})$/.exec(text) ?? [];
    if (vcpu === undefined || Number(size) > mostWaiting)
      throw refused(
        `"${text}" is not VCPUSxMIB=COUNT, nor IMAGE VCPUSxMIB=COUNT`,
        `Use up to ${mostWaiting}, such as 2x512=3`,
      );
    const machine = validateResources({ vcpu: Number(vcpu), memoryMib: Number(memoryMib) });
    const image = name === undefined ? {} : { image: imageName(name) };
    const kind = classText({ ...image, ...machine });
    if (seen.has(kind))
      throw kind === classText(usual)
        ? refused(`${kind} is the default size`, "Set pool.size instead")
        : refused(`${kind} is there twice`, "Leave one of them out");
    seen.add(kind);
    return { ...image, ...machine, size: Number(size) };
  });
}

/** An image's name with its tag, so that names that mean the same are written the same. */
export const imageName = (text: string): string => referenceText(parseReference(text, "image"));

const refused = (problem: string, hint: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", problem, { hint });
