import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import path from "node:path";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { NetworkSpecSchema } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { PodSpecSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { NetworkSpec } from "../../api/network-spec.ts";
import { validateNetwork } from "../../api/validate/network.ts";
import { type CreateSpec, validateSpec } from "../../api/validate/validate.ts";
import type { NetworkName } from "../../core/names.ts";

type Json = { readonly [key: string]: JsonValue };

/** A pod of a report. */
export interface ReportedPod {
  readonly name: string;
  readonly state: string;
  readonly asked: CreateSpec;
  /** What it had, as text: to be compared with what the simulation gives it. */
  readonly had: readonly string[];
}

/** What of a bug report the simulation makes again. */
export interface Report {
  /** Configuration of podnetd, by key. */
  readonly flags: Readonly<Record<string, string>>;
  readonly networks: readonly NetworkSpec[];
  readonly pods: readonly ReportedPod[];
  /** What it does not make, with the reason. */
  readonly leftOut: readonly string[];
}

/** A file of a report: an archive of `podnet bugreport`, or a directory it was unpacked into. */
function fileOf(report: string, name: string): JsonValue {
  const text = statSync(report).isDirectory()
    ? readFileSync(path.join(report, name), "utf8")
    : execFileSync("tar", ["-xzOf", report, "--wildcards", `*/${name}`], { encoding: "utf8" });
  return JSON.parse(text) as JsonValue;
}

const isObject = (json: JsonValue | undefined): json is Json =>
  typeof json === "object" && json !== null && !Array.isArray(json);
const objects = (json: JsonValue | undefined): readonly Json[] =>
  Array.isArray(json) ? json.filter((each) => isObject(each)) : [];
const text = (json: JsonValue | undefined): string => (typeof json === "string" ? json : "");
const mtuOf = ({ mtu }: Json): number => (typeof mtu === "number" ? mtu : 1500);
const texts = (json: JsonValue | undefined): readonly string[] =>
  Array.isArray(json) ? json.map(text) : [];

/** Parts of a pod that need files, programs or devices of the reported host. */
const ofHost = ["boot", "process", "restart", "lifetime", "files", "shares", "disks"] as const;

/** Reads a report. Throws when it has no pods or networks, as one made without podnetd. */
export function readReport(file: string): Report {
  const networks = objects(fileOf(file, "networks.json"));
  const pods = fileOf(file, "pods.json");
  const versions = fileOf(file, "versions.json");
  if (!Array.isArray(pods) || networks.length === 0)
    throw new Error(`The report was made without podnetd: ${JSON.stringify(pods)}`);
  const leftOut: string[] = [];
  const named = networks.find((network) => network["default"] === true) ?? networks[0] ?? {};
  const name = text(named["name"]) as NetworkName;
  const podnetd = isObject(versions) && isObject(versions["podnetd"]) ? versions["podnetd"] : {};
  return {
    flags: {
      factory: "cold",
      firewall: text(podnetd["firewall"]).startsWith("nft") ? "nftables" : "iptables",
      ...(name === "" ? {} : { "network.name": name }),
      "network.bridge": text(named["bridge"]),
      ...subnetFlags(named),
      "network.mtu": `${mtuOf(named)}`,
    },
    networks: networks
      .filter((network) => network !== named)
      .flatMap((network) =>
        tried(leftOut, `network ${text(network["name"])}`, () => networkOf(network)),
      ),
    pods: objects(pods)
      .toSorted((a, b) => (text(a["createdAt"]) < text(b["createdAt"]) ? -1 : 1))
      .flatMap((pod) =>
        tried(leftOut, `pod ${text(pod["name"])}`, () => podOf(pod, name, leftOut)),
      ),
    leftOut,
  };
}

/** What cannot be read is left out: a report is of a bad day. */
function tried<T>(leftOut: string[], what: string, read: () => T): T[] {
  try {
    return [read()];
  } catch (thrown) {
    leftOut.push(`${what}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    return [];
  }
}

/** With the gateway as host bits. */
const subnetsOf = (network: Json) =>
  objects(network["subnets"]).map((subnet) => ({
    cidr: `${text(subnet["gateway"])}/${text(subnet["cidr"]).split("/")[1]}`,
    ranges: texts(subnet["ranges"]),
    reserved: texts(subnet["reservations"]),
  }));

/** Where a family has no subnet, its flag is left out. */
const subnetFlags = (network: Json): Record<string, string> =>
  Object.fromEntries(
    subnetsOf(network).map(({ cidr }) => [
      cidr.includes(":") ? "network.cidr6" : "network.cidr",
      cidr,
    ]),
  );

function networkOf(network: Json): NetworkSpec {
  const { name, bridge, mtu, dns, dnsSearch, masquerade, isolated, vlanFiltering } = network;
  const { admit, hostAccess, connections } = network;
  const asked = { name, bridge, mtu, dns, dnsSearch, masquerade, isolated, vlanFiltering };
  const all = { ...asked, admit, hostAccess, connections, subnets: subnetsOf(network) };
  const given = Object.entries(all).filter(([, value]) => value !== undefined) as [
    string,
    JsonValue,
  ][];
  return validateNetwork(fromJson(NetworkSpecSchema, Object.fromEntries(given)));
}

function podOf(pod: Json, network: NetworkName, leftOut: string[]): ReportedPod {
  const name = text(pod["name"]);
  const spec = isObject(pod["spec"]) ? { ...pod["spec"] } : {};
  for (const part of ofHost)
    if (Object.hasOwn(spec, part)) {
      if (JSON.stringify(spec[part]) !== "[]" && spec[part] !== null)
        leftOut.push(`pod ${name}: ${part}`);
      delete spec[part];
    }
  const views = objects(pod["interfaces"]).filter((each) => {
    const isOwn = text(each["network"]) !== "" && text(each["netns"]) === "";
    if (!isOwn) leftOut.push(`pod ${name}: interface ${text(each["guestName"])} of others`);
    return isOwn;
  });
  const interfaces = views.map((each) => ({
    network: text(each["network"]),
    addresses: texts(each["addresses"]),
    mac: text(each["mac"]),
    guestName: text(each["guestName"]),
    mtu: mtuOf(each),
  }));
  const { resources, labels, hostname, dns, routes, policy } = spec;
  const kept = { name, resources, labels, hostname, dns, routes, policy, ports: pod["ports"] };
  const given = Object.entries({ ...kept, interfaces }).filter(
    ([, value]) => value !== undefined && value !== null,
  ) as [string, JsonValue][];
  const message = fromJson(PodSpecSchema, Object.fromEntries(given), { ignoreUnknownFields: true });
  return {
    name,
    state: text(pod["state"]),
    asked: { spec: validateSpec(message, { network }), planOnly: false },
    had: interfaces.map(
      (each) =>
        `${each.guestName} on ${each.network}: ${each.addresses.join(" ")}, ${each.mac}, MTU ${each.mtu}`,
    ),
  };
}
