import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";

export interface QemuVersion {
  readonly major: number;
  readonly minor: number;
  readonly micro: number;
  /** The distribution's name for its build; may be empty. */
  readonly package: string;
}

/** One line from QEMU (QEMU's docs/interop/qmp-spec, sections 2.2 to 2.5). */
export type QmpMessage =
  | {
      readonly kind: "greeting";
      readonly version: QemuVersion;
      readonly capabilities: readonly string[];
    }
  /** `id` is undefined when QEMU could not determine which command it answers. */
  | { readonly kind: "return"; readonly id: number | undefined; readonly value: unknown }
  | {
      readonly kind: "error";
      readonly id: number | undefined;
      readonly errorClass: string;
      readonly description: string;
    }
  | {
      readonly kind: "event";
      readonly name: string;
      readonly data: JsonObject;
      /** Milliseconds since 1970 by QEMU's host clock; undefined when QEMU could not read it. */
      readonly timestampMs: number | undefined;
    };

type JsonObject = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Hint for a peer that does not speak QMP. */
export const notQmp = "The peer is not a QEMU, or it is broken; the connection is closed";

function garbage(line: string, why: string, cause?: unknown): PodnetError {
  return new PodnetError("QMP_PROTOCOL", `QMP line ${why}: "${printable(line)}"`, {
    hint: notQmp,
    cause,
  });
}

/** Parses one line strictly. Throws `QMP_PROTOCOL` for anything the specification does not know. */
export function parseMessage(line: string): QmpMessage {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw garbage(line, "is not JSON", error);
  }
  if (!isObject(value)) throw garbage(line, "is not an object");
  if ("QMP" in value) return parseGreeting(line, value["QMP"]);
  if (typeof value["event"] === "string") return parseEvent(line, value["event"], value);
  const id = value["id"];
  if (id !== undefined && !Number.isSafeInteger(id)) throw garbage(line, "has a foreign id");
  if ("return" in value)
    return { kind: "return", id: id as number | undefined, value: value["return"] };
  const error = value["error"];
  if (isObject(error) && typeof error["class"] === "string" && typeof error["desc"] === "string") {
    return {
      kind: "error",
      id: id as number | undefined,
      errorClass: error["class"],
      description: error["desc"],
    };
  }
  throw garbage(line, "is neither greeting, reply nor event");
}

function parseGreeting(line: string, greeting: unknown): QmpMessage {
  const version = isObject(greeting) ? greeting["version"] : undefined;
  const qemu = isObject(version) ? version["qemu"] : undefined;
  const capabilities = isObject(greeting) ? greeting["capabilities"] : undefined;
  if (!isObject(version) || !isObject(qemu) || !Array.isArray(capabilities))
    throw garbage(line, "is not a greeting");
  const { major, minor, micro } = qemu;
  if (typeof major !== "number" || typeof minor !== "number" || typeof micro !== "number")
    throw garbage(line, "is a greeting without a version");
  const build = version["package"];
  return {
    kind: "greeting",
    version: { major, minor, micro, package: typeof build === "string" ? build : "" },
    capabilities: capabilities.filter((name) => typeof name === "string"),
  };
}

function parseEvent(line: string, name: string, value: JsonObject): QmpMessage {
  const data = value["data"] ?? {};
  const stamp = value["timestamp"];
  if (!isObject(data) || !isObject(stamp)) throw garbage(line, "is an event without time or data");
  const { seconds, microseconds } = stamp;
  if (typeof seconds !== "number" || typeof microseconds !== "number")
    throw garbage(line, "is an event without a time");
  // QEMU writes -1 into both when its clock fails.
  const timestampMs = seconds < 0 ? undefined : seconds * 1000 + microseconds / 1000;
  return { kind: "event", name, data, timestampMs };
}
