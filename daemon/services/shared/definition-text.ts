import { create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { ServiceSpecSchema } from "../../../api/gen/podnet/v1/service_service_pb.ts";
import type { ServiceSpec } from "../../../api/service-spec.ts";
import { validateService } from "../../../api/validate/service.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { type NetworkName, parseNetworkName, printable } from "../../../core/names.ts";

/** A service of all hosts of an overlay, as etcd has it. */
export interface SharedDefinition {
  readonly overlay: string;
  /** Name of the host that changed it last. */
  readonly host: string;
  /** Its network is each host's own. */
  readonly spec: ServiceSpec;
}

/** A later podnet that writes another format increments it; earlier ones refuse its records. */
const version = 1;
/** Longest that is read, characters; more than 1,024 backends come to. */
const longest = 262_144;

export function sharedText({ overlay, host, spec }: SharedDefinition): string {
  const { name, addresses, ports, backends, select = {}, affinity = "", check } = spec;
  const message = create(ServiceSpecSchema, {
    name,
    addresses: [...addresses],
    ports: ports.map(({ protocol, port, target }) => ({ protocol, port, targetPort: target })),
    backends: backends.map((each) => ({ ...each })),
    select: { ...select },
    affinity,
    ...(check && { check }),
  });
  return JSON.stringify({ version, overlay, host, spec: toJson(ServiceSpecSchema, message) });
}

/**
 * Reads what any program may have written to etcd: all of it is checked as a caller's is. Throws
 * `INVALID_ARGUMENT`. `networkOf` has the network that is part of an overlay; undefined is
 * answered where this host has none.
 */
export function parseShared(
  name: string,
  text: string,
  networkOf: (overlay: string) => NetworkName | undefined,
): SharedDefinition | undefined {
  try {
    if (text.length > longest) throw unreadable("it is too long");
    const { version: its, overlay, host, spec } = fieldsOf(JSON.parse(text));
    if (its !== version) throw unreadable(`its version is ${printable(String(its))}`);
    if (typeof overlay !== "string" || !isHostName(host))
      throw unreadable("it names no overlay or no host");
    const network = networkOf(parseNetworkName(overlay, "overlay"));
    if (network === undefined) return undefined;
    const message = fromJson(ServiceSpecSchema, spec as JsonValue);
    const read = validateService(message, { network });
    if (read.name !== name || message.network !== "" || message.scope !== "")
      throw unreadable("it is of another service");
    if (read.addresses.length === 0) throw unreadable("it has no address");
    return { overlay, host, spec: { ...read, scope: "overlay" } };
  } catch (thrown) {
    if (isPodnetError(thrown)) throw thrown;
    // (What protobuf and JSON say of a text that is wrong.)
    throw unreadable(printable((thrown as Error).message).slice(0, 200));
  }
}

/** Its name is shown as it is. */
const isHostName = (value: unknown): value is string =>
  typeof value === "string" && value.length <= 255 && printable(value) === value;

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw unreadable("it is no object");
  return value as Readonly<Record<string, unknown>>;
}

const unreadable = (why: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `its definition in etcd cannot be read: ${why}`);
