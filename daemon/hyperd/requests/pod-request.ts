import { createHash } from "node:crypto";
import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PodSpecSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { invalid } from "../../../api/fields.ts";
import type { HyperdSpec } from "../../../api/pod-spec.ts";
import {
  type CreateSpec,
  type SpecDefaults,
  validateCreate,
} from "../../../api/validate/validate.ts";
import { isDnsLabel, printable } from "../../../core/names.ts";
import { containerName, idPattern } from "./container-name.ts";
import { filesOf } from "./pod-files.ts";
import { whiteListRules, whiteListsOf } from "./white-lists.ts";
import { mainOf } from "./main-of.ts";
import { publishedOf } from "./port-mappings.ts";
import { refuseUnsupported } from "./refusals.ts";
import type { UserContainer, UserInterface, UserPod } from "./user-pod.ts";
import { writtenSources } from "./written-sources.ts";

/** A network of podnet's, and the bridge that hyperd's callers know it by. */
interface NamedNetwork {
  readonly name: string;
  readonly bridge: string;
}

type PublishedPortInit = NonNullable<Spec["ports"]>[number];
type Spec = Exclude<MessageInitShape<typeof PodSpecSchema>, { readonly $typeName: string }>;

/**
 * The pod that a pod of hyperd's is. Throws `INVALID_ARGUMENT` and its like, and `UNSUPPORTED` for
 * what podnet cannot do. Pure.
 */
export function podRequest(
  pod: UserPod,
  networks: readonly NamedNetwork[],
  defaults: SpecDefaults,
): CreateSpec {
  refuseUnsupported(pod);
  const { id } = pod;
  if (id !== "" && !idPattern.test(id))
    throw invalid(
      "id",
      `"${printable(id)}" is not usable as a pod's id`,
      "Use at most 128 letters, digits, _, . and -, with a letter or a digit first",
    );
  const container = mainOf(pod);
  const ports = portsOf(pod);
  const whiteLists = whiteListsOf(pod);
  const spec: Spec = {
    name: podName(id),
    hostname: pod.hostname,
    labels: pod.labels,
    resources: resourcesOf(pod),
    interfaces: pod.interfaces.map((each, i) => interfaceOf(each, networks, `interfaces[${i}]`)),
    ...dnsOf(pod),
    ports,
    shares: [...writtenSources(pod)],
    ...(whiteLists === undefined
      ? {}
      : { policy: whiteListRules(whiteLists, ports.map(insideOf)) as JsonObject }),
    ...(container === undefined ? {} : containerOf(container, pod)),
  };
  const asked = validateCreate(create(CreatePodRequestSchema, { spec }), defaults);
  const { process } = asked.spec;
  return {
    ...asked,
    spec: {
      ...asked.spec,
      hyperd: {
        ...hyperdOf(pod, id),
        ...(whiteLists === undefined ? {} : { whiteLists }),
      },
      // hyperd's create boots the machine, and its start the container.
      ...(process === undefined ? {} : { process: { ...process, deferred: true } }),
    },
  };
}

/**
 * hyperd's ids may have capitals, dots and underscores, as those of `hyperctl run busybox:1.36`
 * do, and podnet's names may not: such a pod gets a name that is readable, and unique by a hash.
 */
function podName(id: string): string {
  if (id === "" || isDnsLabel(id)) return id;
  const readable = id
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .slice(0, 40);
  const hash = createHash("sha256").update(id).digest("hex").slice(0, 12);
  return `${readable.replaceAll(/^-+|-+$/g, "")}-${hash}`;
}

function hyperdOf(pod: UserPod, id: string): HyperdSpec {
  const named = id === "" || isDnsLabel(id) ? {} : { id };
  const sourced = pod.volumes.filter(({ source }) => source !== "");
  const volumes = {
    ...(pod.volumes.length === 0 ? {} : { volumes: pod.volumes.map(({ name }) => name) }),
    ...(sourced.length === 0
      ? {}
      : { sources: Object.fromEntries(sourced.map(({ name, source }) => [name, source])) }),
  };
  const container = mainOf(pod);
  if (container === undefined) return { ...named, ...volumes };
  const { image, labels } = container;
  const name = containerName(container.name, "containers[0].name");
  return { ...named, container: { name, image, labels } };
}

/** 0 is not given. */
const resourcesOf = ({ resource }: UserPod): NonNullable<Spec["resources"]> => {
  const { vcpu = 0, memory = 0 } = resource ?? {};
  return {
    ...(vcpu === 0 ? {} : { vcpu }),
    ...(memory === 0 ? {} : { memoryMib: memory }),
  };
};

const dnsOf = ({ dns, dnssearch, dnsoptions }: UserPod): Pick<Spec, "dns"> =>
  dns.length + dnssearch.length + dnsoptions.length === 0
    ? {}
    : { dns: { servers: dns, search: dnssearch, options: dnsoptions } };

/** The pod's port mappings, then those of its container. */
const portsOf = ({ portmappings, containers }: UserPod): NonNullable<Spec["ports"]> => [
  ...portmappings.map((each, i) => publishedOf(each, `portmappings[${i}]`)),
  ...containers.flatMap(({ ports }, i) =>
    ports.map(({ hostport, containerport, protocol }, j) =>
      publishedOf(
        { hostPort: String(hostport), containerPort: String(containerport), protocol },
        `containers[${i}].ports[${j}]`,
      ),
    ),
  ),
];

const insideOf = ({ podPort = 0, count = 1, protocol = "" }: PublishedPortInit) => ({
  podPort,
  count,
  protocol,
});

/** An interface, whose bridge may be that of a network of podnet's. */
function interfaceOf(
  { bridge, ip, ifname, mac, mtu, gateway }: UserInterface,
  networks: readonly NamedNetwork[],
  field: string,
): NonNullable<Spec["interfaces"]>[number] {
  const network = networks.find((each) => each.bridge === bridge);
  if (bridge !== "" && network === undefined && ip === "")
    throw invalid(
      `${field}.ip`,
      "if configured a bridge, must specify the IP address",
      "Give the address with its length, such as 10.0.0.5/24",
    );
  return {
    ...(network === undefined ? { bridge } : { network: network.name }),
    address: ip,
    tap: ifname,
    mac,
    gateway,
    ...(mtu === 0 ? {} : { mtu }),
  };
}

const policies: Readonly<Record<string, string | undefined>> = {
  "": undefined,
  never: undefined,
  onfailure: "on-failure",
  always: "always",
};

/** The container as the pod's main process. */
function containerOf(container: UserContainer, pod: UserPod): Spec {
  const asked = (container.restartpolicy || pod.restartpolicy).toLowerCase();
  if (!Object.hasOwn(policies, asked))
    throw invalid(
      "restartPolicy",
      `There is no restart policy "${printable(asked)}"`,
      "Use never, onFailure or always",
    );
  const policy = policies[asked];
  const { name = "", group = "" } = container.user ?? {};
  return {
    boot: { image: container.image },
    process: {
      args: container.command,
      entrypoint: container.entrypoint,
      env: Object.fromEntries(container.envs.map(({ env, value }) => [env, value])),
      workdir: container.workdir,
      user: [name, group].filter((each) => each !== "").join(":"),
      terminal: container.tty || pod.tty,
      stdin: true,
      stopSignal: container.stopsignal,
    },
    files: filesOf(container.files, pod.files, "containers[0]"),
    ...(policy === undefined ? {} : { restart: { policy } }),
  };
}
