import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { type Protocol, protocols } from "../../policy/model.ts";

/**
 * The protocol and port of a flow that is asked about: without a protocol it is tcp with a
 * port, else icmp. Throws `INVALID_ARGUMENT`.
 */
export function serviceOf(
  protocol: string,
  port: number | undefined,
): { readonly protocol: Protocol; readonly port?: number } {
  if (port === undefined) return { protocol: protocolOf(protocol || "icmp") };
  if (port >= 1 && port <= 65_535) return { protocol: protocolOf(protocol || "tcp"), port };
  throw wrong("port", `${port} is no port`, "Give a number from 1 to 65535");
}

function protocolOf(text: string): Protocol {
  const found = protocols.find((protocol) => protocol === text);
  if (found !== undefined) return found;
  throw wrong(
    "protocol",
    `"${printable(text)}" is no protocol`,
    `Give one of ${protocols.join(", ")}`,
  );
}

const wrong = (field: string, message: string, hint: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, { field, hint });
