import { create } from "@bufbuild/protobuf";
import { type PublishedPort, PublishedPortSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { invalid } from "../../../api/fields.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { PortSpec } from "../../../api/pod-spec.ts";
import { goObject, list, text } from "./go-json.ts";

/** A port mapping of a pod: ports are texts, `80` or `8000-8009`. */
export interface PortMapping {
  readonly containerPort: string;
  readonly hostPort: string;
  readonly protocol: string;
}

export const portMapping = goObject({
  containerport: text,
  hostport: text,
  protocol: text,
}).transform(
  ({ containerport, hostport, protocol }): PortMapping => ({
    containerPort: containerport,
    hostPort: hostport,
    protocol,
  }),
);
export const portMappings = list(portMapping);

interface Range {
  readonly first: number;
  readonly count: number;
}

/**
 * A mapping as podnet publishes it: at every address of the host, as hyperd does. Throws
 * `INVALID_ARGUMENT`, `UNSUPPORTED`. Pure.
 */
export function publishedOf(mapping: PortMapping, field: string): PublishedPort {
  const inside = readRange(mapping.containerPort, `${field}.containerPort`);
  const host =
    mapping.hostPort === "" || mapping.hostPort === "0"
      ? { first: 0, count: inside.count }
      : readRange(mapping.hostPort, `${field}.hostPort`);
  if (inside.count === 1 && host.count > 1)
    throw new PodnetError(
      "UNSUPPORTED",
      `podnet does not choose one of the host ports ${printable(mapping.hostPort)}`,
      { field: `${field}.hostPort`, hint: "Give one port, or none to have one chosen" },
    );
  if (inside.count !== host.count)
    throw invalid(
      field,
      `${host.count} host ports cannot lead to ${inside.count} container ports`,
      "Give two ranges of the same length",
    );
  return create(PublishedPortSchema, {
    hostIp: "*",
    hostPort: host.first,
    podPort: inside.first,
    count: inside.count,
    protocol: mapping.protocol.toLowerCase(),
  });
}

function readRange(port: string, field: string): Range {
  const [, from = "", to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(port) ?? [];
  const [first, last] = [Number(from), Number(to)];
  if (from === "" || first < 1 || last > 65_535 || last < first)
    throw invalid(
      field,
      `"${printable(port)}" is neither a port nor a range of ports`,
      "Write 80, or 8000-8009",
    );
  return { first, count: last - first + 1 };
}

/** Published ports as hyperd lists them. Pure. */
export const mappingView = ({ hostPort, podPort, count, protocol }: PortSpec): PortMapping => ({
  containerPort: rangeText(podPort, count),
  hostPort: rangeText(hostPort, count),
  protocol,
});

const rangeText = (first: number, count: number): string =>
  count === 1 ? String(first) : `${first}-${first + count - 1}`;

/** Whether a published port is the one of a mapping, at whatever address of the host. Pure. */
export const isMapped = (
  has: PortSpec,
  { hostPort, podPort, count, protocol }: PublishedPort,
): boolean =>
  (hostPort === 0 || has.hostPort === hostPort) &&
  has.podPort === podPort &&
  has.count === count &&
  has.protocol === (protocol === "" ? "tcp" : protocol);
