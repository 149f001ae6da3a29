import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { protectedKey } from "../../api/protected-labels.ts";
import type { SandboxSpec } from "../../api/pod-spec.ts";
import {
  type CreateSpec,
  type SpecDefaults,
  validateCreate,
  validateLabels,
} from "../../api/validate/validate.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import {
  type LinuxContainerResources,
  NamespaceMode,
  type PodSandboxConfig,
  type PortMapping,
  Protocol,
  type RunPodSandboxRequest,
} from "./gen/cri_pb.ts";
import type { VmSize } from "../../hypervisor/driver.ts";
import { mostOf } from "./sandbox-size.ts";
import { refuseLabels, refuseUsers } from "./refusals.ts";
import { sysctlsOf } from "./sysctls.ts";
import { writableShares } from "../pods/plan/writable-shares.ts";
import { writablePathsOf } from "./writable-paths.ts";

/** The runtime handlers that mean podnet; a RuntimeClass names one. */
export const handlers = ["", "podnet"] as const;

/** Throws `INVALID_ARGUMENT` for a runtime handler that is not podnet's. */
export function requireHandler(runtimeHandler: string, field: string): void {
  if (!handlers.some((each) => each === runtimeHandler))
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `There is no runtime handler "${printable(runtimeHandler)}"`,
      { field, hint: 'Leave it empty, or write "podnet" in the RuntimeClass' },
    );
}

/** What the guest itself needs in addition to its containers, MiB. */
const guestMib = 128;
const mostPodLabels = 64;

/**
 * The pod that a sandbox is. Throws `INVALID_ARGUMENT` and its like, and `UNSUPPORTED` for what a
 * machine of its own cannot be or podnet cannot do.
 */
export function sandboxSpec(
  { config, runtimeHandler }: RunPodSandboxRequest,
  defaults: SpecDefaults,
): CreateSpec {
  requireHandler(runtimeHandler, "runtime_handler");
  const metadata = config?.metadata;
  if (config === undefined || metadata === undefined || metadata.name === "")
    throw new PodnetError("INVALID_ARGUMENT", "The sandbox has no name", {
      field: "config.metadata",
      hint: "Give metadata with name, namespace, uid and attempt",
    });
  const { name, uid, namespace, attempt } = metadata;
  refuseOfHost(config);
  const options = config.linux?.securityContext?.namespaceOptions;
  const sysctls = sysctlsOf(config.linux?.sysctls ?? {});
  const sandbox: SandboxSpec = {
    metadata: { name, uid, namespace, attempt },
    labels: config.labels,
    annotations: config.annotations,
    handler: runtimeHandler,
    logDirectory: config.logDirectory,
    ...(sysctls.length === 0 ? {} : { sysctls }),
    namespaces: {
      network: options?.network ?? NamespaceMode.POD,
      pid: options?.pid ?? NamespaceMode.POD,
      ipc: options?.ipc ?? NamespaceMode.POD,
    },
  };
  const asked = validateCreate(
    create(CreatePodRequestSchema, {
      spec: {
        name: podNameOf(sandbox),
        hostname: config.hostname,
        labels: podLabels(config.labels),
        resources: { ...resourcesOf(config.linux?.resources), ...mostOf(config.annotations) },
        shares: [...writableShares(writablePathsOf(config.annotations))],
        ...dnsOf(config),
        // Port 0 of the host means that the port is not published.
        ports: config.portMappings.filter(({ hostPort }) => hostPort !== 0).map(portOf),
      },
    }),
    defaults,
  );
  return { ...asked, spec: { ...asked.spec, sandbox } };
}

/**
 * One name for one attempt at one pod of Kubernetes, so that its row keeps a second one away:
 * readable, and unique by a hash of all of the metadata.
 */
function podNameOf({ metadata }: Pick<SandboxSpec, "metadata">): string {
  const { namespace, name, uid, attempt } = metadata;
  const hash = createHash("sha256").update(JSON.stringify([namespace, name, uid, attempt]));
  const readable = name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  const start = readable.slice(0, 40).replaceAll(/^-+|-+$/g, "");
  return `${start === "" ? "sandbox" : start}-${hash.digest("hex").slice(0, 20)}`;
}

/** A machine shares nothing with its node, and has a kernel of its own. */
function refuseOfHost({ linux, windows }: PodSandboxConfig): void {
  if (windows !== undefined)
    throw new PodnetError("UNSUPPORTED", "podnet cannot run a pod of Windows", {
      field: "config.windows",
      hint: "Give such a pod a node of Windows",
    });
  const at = "config.linux.security_context";
  refuseLabels(linux?.securityContext?.selinuxOptions, at);
  refuseUsers(linux?.securityContext?.namespaceOptions?.usernsOptions, at);
  const options = linux?.securityContext?.namespaceOptions;
  for (const which of ["network", "pid", "ipc"] as const)
    if (options?.[which] === NamespaceMode.NODE)
      throw new PodnetError("UNSUPPORTED", `A pod with the node's ${which} cannot be a machine`, {
        field: `config.linux.security_context.namespace_options.${which}`,
        hint: "Give such a pod a RuntimeClass of containers on the node",
      });
}

/**
 * The labels that a label of podnet can be, so that policies can choose by them, but for protected
 * ones: users of Kubernetes are not podnet's administrators. All labels are kept with the sandbox.
 */
function podLabels(labels: Readonly<Record<string, string>>): Record<string, string> {
  const fitting = Object.entries(labels).filter(
    ([key, value]) => protectedKey([key]) === undefined && isPodLabel(key, value),
  );
  return Object.fromEntries(fitting.slice(0, mostPodLabels));
}

function isPodLabel(key: string, value: string): boolean {
  try {
    validateLabels({ [key]: value });
    return true;
  } catch (thrown) {
    if (isPodnetError(thrown)) return false;
    throw thrown;
  }
}

/**
 * `resources` are the sum of the limits of the containers. `overhead` is what kubelet sets aside
 * for the machine on the host, and no part of the guest.
 */
export function resourcesOf(resources: LinuxContainerResources | undefined): Partial<VmSize> {
  const { cpuQuota = 0n, cpuPeriod = 0n, memoryLimitInBytes = 0n } = resources ?? {};
  const limitMib = Math.ceil(Number(memoryLimitInBytes) / 2 ** 20);
  const processors = cpuQuota > 0n && cpuPeriod > 0n ? Number(cpuQuota) / Number(cpuPeriod) : 0;
  return {
    ...(processors > 0 ? { vcpu: Math.max(1, Math.ceil(processors)) } : {}),
    ...(limitMib > 0 ? { memoryMib: guestMib + limitMib } : {}),
  };
}

const dnsOf = ({ dnsConfig }: PodSandboxConfig) =>
  dnsConfig === undefined
    ? {}
    : {
        dns: {
          servers: dnsConfig.servers,
          search: dnsConfig.searches,
          options: dnsConfig.options,
        },
      };

const protocols: Readonly<Partial<Record<Protocol, string>>> = {
  [Protocol.TCP]: "tcp",
  [Protocol.UDP]: "udp",
  [Protocol.SCTP]: "sctp",
};

function portOf({ protocol, containerPort, hostPort, hostIp }: PortMapping, i: number) {
  const field = `config.port_mappings[${i}]`;
  const text = protocols[protocol];
  if (text === undefined)
    throw new PodnetError("INVALID_ARGUMENT", `There is no protocol ${Number(protocol)}`, {
      field: `${field}.protocol`,
      hint: "Use TCP, UDP or SCTP",
    });
  for (const port of [hostPort, containerPort])
    if (port < 1 || port > 65_535)
      throw new PodnetError("INVALID_ARGUMENT", `${port} is not a port`, {
        field,
        hint: "Use 1 to 65535",
      });
  return { hostIp: hostIp === "" ? "*" : hostIp, hostPort, podPort: containerPort, protocol: text };
}
