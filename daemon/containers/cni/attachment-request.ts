import { create } from "@bufbuild/protobuf";
import { PublishedPortSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { protectedKey, protectedPrefix } from "../../../api/protected-labels.ts";
import type { PortSpec } from "../../../api/pod-spec.ts";
import { validateLabels } from "../../../api/validate/validate.ts";
import { validatePorts } from "../../../api/validate/ports.ts";
import { kubernetesPod } from "../../../cni/protocol/args.ts";
import { type CniPort, parseWantedIp } from "../../../cni/protocol/capabilities.ts";
import { read } from "../../../cni/protocol/json.ts";
import { cniError, refusal } from "../../../cni/protocol/refusal.ts";
import type { CniRequest } from "../../../cni/protocol/request.ts";
import { type IfName, isDnsLabel, printable } from "../../../core/names.ts";
import { type Ip, type IpPrefix, ipOf, type Mac, parseUnicastMac } from "../../../core/address.ts";

/** Requests by their subject: ADD and CHECK an attachment, DEL an attachment, a whole network. */
export type AddRequest = Extract<CniRequest, { readonly command: "ADD" | "CHECK" }>;
export type DelRequest = Extract<CniRequest, { readonly command: "DEL" }>;
export type NetworkRequest = Extract<CniRequest, { readonly command: "GC" | "STATUS" }>;

/**
 * A request to attach a container: what its runtime asks, wherever the runtime wrote it: a
 * capability first, then `args`, then `CNI_ARGS`.
 */
export interface AttachmentRequest
  extends Pick<AddRequest, "containerId" | "ifName" | "netns" | "config"> {
  readonly ips: readonly Ip[];
  readonly mac?: Mac;
  readonly ports: readonly PortSpec[];
  /** Names on its network, in lower case. */
  readonly names: readonly string[];
  /** The pod of the request, if the runtime names it: `namespace/name`. */
  readonly pod?: string;
  /** By which policies choose it. */
  readonly labels: Readonly<Record<string, string>>;
  /**
   * OpenShift SDN: the host's end of an existing veth pair, whose other end OpenShift's plugin sets
   * up.
   */
  readonly hostVeth?: IfName;
}

/** Reads an ADD. Throws with CNI's error 4 or 7, `UNSUPPORTED`, `INVALID_ARGUMENT`. */
export function attachmentRequest(
  { containerId, ifName, netns, args, config }: AddRequest,
  hostVeth?: IfName,
): AttachmentRequest {
  const { capabilities } = config;
  const mac = capabilities.mac ?? config.args.mac ?? argOf(args, "MAC", parseUnicastMac);
  const ips = [capabilities.ips, config.args.ips].find((each) => each.length > 0) ?? ipsOf(args);
  const pod = kubernetesPod(args);
  return {
    containerId,
    ifName,
    netns,
    config,
    ips: ips.map(bare),
    ...(mac === undefined ? {} : { mac }),
    ports: portsOf(capabilities.portMappings),
    names: namesOf(capabilities.aliases, args.get("K8S_POD_NAME")),
    ...(pod === undefined ? {} : { pod: `${pod.namespace}/${pod.name}` }),
    labels: labelsOf(capabilities.annotations, config.args.labels),
    ...(hostVeth === undefined ? {} : { hostVeth }),
  };
}

/** The annotation of a pod that gives labels to its container: `role=builder,app=web`. */
const labelsAnnotation = "podnet/labels";

/**
 * Labels by the annotation, then those of `args`. Wrong ones fail the ADD: without a label a
 * container could go without the policy that is meant for it.
 */
function labelsOf(
  annotations: ReadonlyMap<string, string>,
  given: ReadonlyMap<string, string>,
): Readonly<Record<string, string>> {
  const text = annotations.get(labelsAnnotation) ?? "";
  const pairs = text === "" ? [] : text.split(",").map((pair) => pair.trim());
  const annotated = pairs.map((pair): [string, string] => {
    const equals = pair.indexOf("=");
    if (equals > 0) return [pair.slice(0, equals), pair.slice(equals + 1)];
    throw refusal(`Annotation ${labelsAnnotation} is not KEY=VALUE,KEY=VALUE`, {
      cni: cniError.config,
      field: labelsAnnotation,
      hint: "Write labels such as role=builder,app=web",
    });
  });
  const key = protectedKey(annotated.map(([each]) => each));
  if (key !== undefined)
    throw refusal(`Annotation ${labelsAnnotation} has the label ${printable(key)}`, {
      cni: cniError.config,
      field: labelsAnnotation,
      hint: `Labels that begin with ${protectedPrefix} are an administrator's: write them into args.cni.labels of the network configuration`,
    });
  return validateLabels(Object.fromEntries([...annotated, ...given]));
}

const bare = (ip: Ip | IpPrefix): Ip => (ip.includes("/") ? ipOf(ip as IpPrefix) : (ip as Ip));

const ipsOf = (args: ReadonlyMap<string, string>): readonly (Ip | IpPrefix)[] =>
  (argOf(args, "IP", (text) => text)?.split(",") ?? []).map((text) =>
    read(text, "CNI_ARGS IP", parseWantedIp, cniError.environment),
  );

function argOf<T>(
  args: ReadonlyMap<string, string>,
  key: string,
  parse: (text: string, field: string) => T,
): T | undefined {
  const text = args.get(key) ?? "";
  return text === "" ? undefined : read(text, `CNI_ARGS ${key}`, parse, cniError.environment);
}

/**
 * Aliases, and before them the name of the container where its runtime sends any, which podman
 * writes into `K8S_POD_NAME` (its plugin dnsname reads it there). A text that is no label of DNS is
 * passed over: aliases fail no ADD.
 */
function namesOf(aliases: readonly string[], own: string | undefined): readonly string[] {
  if (aliases.length === 0) return [];
  const all = own === undefined ? aliases : [own, ...aliases];
  return [...new Set(all.map((each) => each.toLowerCase()).filter(isDnsLabel))];
}

/** A mapping that names no address is for all of the host's. */
const portsOf = (mappings: readonly CniPort[]): readonly PortSpec[] =>
  validatePorts(
    mappings.map(({ hostPort, containerPort, protocol, hostIp }) =>
      create(PublishedPortSchema, {
        hostIp: hostIp ?? "*",
        hostPort,
        podPort: containerPort,
        count: 1,
        protocol,
      }),
    ),
    "runtimeConfig.portMappings",
  );
