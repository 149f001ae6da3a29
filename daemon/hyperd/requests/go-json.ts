import * as z from "zod";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { countJson } from "../../../api/count-values.ts";

/** Fields, list entries and map entries of one body. */
const mostValues = 4096;

/**
 * An object as Go's decoder reads it: keys in any case, and `null` is an absent value. Keys of
 * `shape` are in lower case. An unknown key, which Go would pass over in silence, is refused.
 */
export const goObject = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.preprocess(foldKeys, z.strictObject(shape));

const foldKeys = (value: unknown): unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(
        Object.entries(value)
          .filter(([, each]) => each !== null)
          .map(([key, each]) => [key.toLowerCase(), each]),
      )
    : value;

/** Absent values are Go's zero values. */
export const text = z.string().default("");
export const flag = z.boolean().default(false);
export const integer = z
  .int()
  .min(0)
  .max(2 ** 31 - 1)
  .default(0);
export const list = <Item extends z.ZodType>(item: Item) => z.array(item).default([]);
/** A map's keys are a caller's own. */
export const texts = z.record(z.string(), z.string()).default({});

/** Reads a body, or a parameter that is JSON. Throws `INVALID_ARGUMENT`, `LIMIT_REACHED`. */
export function readGo<Schema extends z.ZodType>(
  schema: Schema,
  json: string,
  what: string,
): z.infer<Schema> {
  if (countJson(Buffer.from(json), mostValues) > mostValues)
    throw new PodnetError("LIMIT_REACHED", `${what} has more than ${mostValues} values`, {
      hint: "Send fewer entries of its lists and maps",
      details: { limit: "request_values" },
    });
  const read = schema.safeParse(parsed(json, what));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  const path = issue?.path.map(String).join(".") ?? "";
  const field = printable(path === "" ? what : path);
  throw new PodnetError("INVALID_ARGUMENT", `${what} cannot be read: ${issueText(issue)}`, {
    field,
    hint: "See docs/reference/hyperd.md for the fields that podnet reads",
  });
}

function parsed(json: string, what: string): unknown {
  try {
    return JSON.parse(json, refuseProto) as unknown;
  } catch (cause) {
    if (isPodnetError(cause)) throw cause;
    throw new PodnetError("INVALID_ARGUMENT", `${what} is not JSON`, {
      hint: "Send what hyperctl sends",
      cause,
    });
  }
}

/** A key that objects of JavaScript treat as none of their own: it would be passed over. */
function refuseProto(key: string, value: unknown): unknown {
  if (key !== "__proto__") return value;
  throw new PodnetError("INVALID_ARGUMENT", "__proto__ cannot be a key", {
    hint: "Choose another name",
  });
}

function issueText(issue: z.core.$ZodIssue | undefined): string {
  const at = printable(issue?.path.map(String).join(".") ?? "");
  const where = at === "" ? "" : ` in ${at}`;
  if (issue?.code === "unrecognized_keys")
    return `there is no field ${printable(issue.keys[0] ?? "")}${where}`;
  return `${printable(issue?.message ?? "")}${where}`;
}
