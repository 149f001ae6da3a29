import { create } from "@bufbuild/protobuf";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type PublishedPort, PublishedPortSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { parsePortText, portText } from "../../api/port-text.ts";
import { table } from "./text.ts";

/** `[[IP:]HOST:]POD[/PROTOCOL]` as the API takes it. */
export const portFromText = (text: string, flag: string): PublishedPort =>
  create(PublishedPortSchema, parsePortText(text, flag));

export const portsFromTexts = (texts: readonly string[]): PublishedPort[] =>
  texts.map((text) => portFromText(text, "port"));

/** Every published port of some pods, a line each. */
export const portTable = (pods: readonly Pod[]): string =>
  table(
    ["POD", "HOST", "PORT", "PROTOCOL", "SPEC"],
    pods.flatMap((pod) =>
      pod.ports.map((port) => [
        pod.name,
        hostText(port),
        rangeText(port.podPort, port.count),
        port.protocol,
        portText(port),
      ]),
    ),
  );

const rangeText = (first: number, count = 1): string =>
  count > 1 ? `${first}-${first + count - 1}` : `${first}`;

/** Where it is reached, at each address. */
function hostText({ hostIp, hostPort, count }: PublishedPort): string {
  const addresses = hostIp === "" ? ["127.0.0.1", "[::1]"] : [bracketed(hostIp)];
  return addresses.map((each) => `${each}:${rangeText(hostPort, count)}`).join(" ");
}

const bracketed = (ip: string): string => (ip.includes(":") ? `[${ip}]` : ip);

/** A pod's published ports alongside its other facts. */
export const portFacts = (pod: Pod): string[] =>
  pod.ports.map(
    (port) =>
      `  ${hostText(port)} to ${rangeText(port.podPort, port.count)}/${port.protocol || "tcp"}`,
  );
