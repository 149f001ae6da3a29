import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, parseHostname, parsePodName, printable } from "../../core/names.ts";
import type { CreatePodRequest } from "../gen/podnet/v1/pod_service_pb.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { BootSpec, PodSpec, ResourcesSpec } from "../pod-spec.ts";
import { checkCount, invalid } from "../fields.ts";
import { checkForm, pathOrNone, validateDisk } from "./disks.ts";
import { validateDns } from "./dns.ts";
import { validateDataDisks } from "./data-disks.ts";
import { validateFiles } from "./files.ts";
import { refuseShares, validateShares } from "./shares.ts";
import { refuseClone, validateGuest } from "./guest.ts";
import { validateInterfaces } from "./interfaces.ts";
import { validateLayer } from "./layer.ts";
import { validateLifetime } from "./lifetime.ts";
import { validatePorts } from "./ports.ts";
import { validateImage, validateProcess, validateRestart } from "./process.ts";
import { validateRoutes } from "./routes.ts";

/** What the node fills in where a request says nothing. */
export interface SpecDefaults {
  readonly network: NetworkName;
}

/** A create, every field checked. */
export interface CreateSpec {
  readonly spec: PodSpec;
  readonly requestId?: string;
  readonly planOnly: boolean;
  /** Milliseconds; undefined takes the node's default. */
  readonly timeoutMs?: number;
}

const limits = {
  labels: 64,
  labelValue: 255,
  vcpu: 64,
  defaultVcpu: 1,
  /**
   * Less is a slip, whatever the image: the kernel alone takes more. What an image needs to boot
   * the node knows.
   */
  minMemoryMib: 32,
  maxMemoryMib: 1 << 20,
  defaultMemoryMib: 128,
  cmdline: 1024,
  disks: 8,
  minTimeoutMs: 1000,
  maxTimeoutMs: 600_000,
} as const;

/** Checks a create. `field` of an error is the path within the spec, e.g. `interfaces[1].mac`. */
export function validateCreate(request: CreatePodRequest, defaults: SpecDefaults): CreateSpec {
  return { ...validateCall(request), spec: validateSpec(request.spec, defaults) };
}

/** Checks how a pod is asked for. */
export function validateCall({
  requestId,
  planOnly,
  timeoutMs,
}: Pick<CreatePodRequest, "requestId" | "planOnly" | "timeoutMs">): Omit<CreateSpec, "spec"> {
  if (!/^[\x21-\x7e]{0,64}$/.test(requestId)) {
    throw invalid(
      "request_id",
      `Request id "${printable(requestId)}" is not usable`,
      "Use 1 to 64 visible ASCII characters, such as a UUID",
    );
  }
  if (timeoutMs !== 0 && (timeoutMs < limits.minTimeoutMs || timeoutMs > limits.maxTimeoutMs)) {
    throw invalid(
      "timeout_ms",
      `A timeout of ${timeoutMs} ms is out of range`,
      `Use ${limits.minTimeoutMs} to ${limits.maxTimeoutMs}, or 0 for the node's default`,
    );
  }
  return {
    ...(requestId === "" ? {} : { requestId }),
    planOnly,
    ...(timeoutMs === 0 ? {} : { timeoutMs }),
  };
}

/** Checks a pod spec; none at all is a pod of defaults. */
export function validateSpec(spec: wire.PodSpec | undefined, defaults: SpecDefaults): PodSpec {
  const interfaces = validateInterfaces(spec?.interfaces ?? [], defaults.network);
  const name = spec?.name ?? "";
  const hostname = spec?.hostname ?? "";
  const ports = validatePorts(spec?.ports ?? []);
  const files = validateFiles(spec?.files ?? []);
  const shares = validateShares(spec?.shares ?? []);
  const disks = validateDataDisks(spec?.disks ?? []);
  const lifetime = spec?.lifetime === undefined ? undefined : validateLifetime(spec.lifetime);
  const checked: PodSpec = {
    ...(name === "" ? {} : { name: parsePodName(name) }),
    labels: validateLabels(spec?.labels ?? {}),
    resources: validateResources(spec?.resources),
    boot: validateBoot(spec?.boot),
    interfaces,
    ...(hostname === "" ? {} : { hostname: parseHostname(hostname) }),
    ...(spec?.dns === undefined ? {} : { dns: validateDns(spec.dns) }),
    routes: validateRoutes(spec?.routes ?? [], interfaces),
    ...(ports.length === 0 ? {} : { ports }),
    // (podnetd reads it when it plans: this module does not know what policies are.)
    ...(spec?.policy === undefined ? {} : { policy: spec.policy }),
    ...(files.length === 0 ? {} : { files }),
    ...(shares.length === 0 ? {} : { shares }),
    ...(disks.length === 0 ? {} : { disks }),
    ...processOf(spec),
    ...(lifetime === undefined ? {} : { lifetime }),
  };
  refuseShares(checked);
  return checked;
}

/** What the pod is there for, and what follows its end. */
function processOf(spec: wire.PodSpec | undefined): Pick<PodSpec, "process" | "restart"> {
  const { process, boot } = spec ?? {};
  const restart = spec?.restart === undefined ? undefined : validateRestart(spec.restart);
  const hasProcess = process !== undefined || (boot?.image ?? "") !== "";
  if (restart !== undefined && !hasProcess)
    throw invalid("restart", "The pod has no main process", "Give process, or an image");
  if (process !== undefined && (boot?.agent ?? "") !== "")
    throw invalid("process", "The agent that runs it is podnet's own", "Leave boot.agent out");
  return {
    ...(process === undefined ? {} : { process: validateProcess(process) }),
    ...(restart === undefined ? {} : { restart }),
  };
}

const labelKey = /^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$/;

const badLabelKey = (key: string, field: string): PodnetError =>
  invalid(
    field,
    `Label key "${printable(key)}" is not usable`,
    "Use 1 to 63 characters from A-Z a-z 0-9 . _ / - that start and end with a letter or digit",
  );

/** Checks labels: of a pod, or to select by. */
export function validateLabels(
  labels: Readonly<Record<string, string>>,
  of = "labels",
): Readonly<Record<string, string>> {
  checkCount(Object.keys(labels), limits.labels, of);
  for (const [key, value] of Object.entries(labels)) {
    const field = `${of}["${printable(key)}"]`;
    if (!labelKey.test(key)) throw badLabelKey(key, field);
    if (value.length > limits.labelValue || /\p{Cc}/u.test(value)) {
      throw invalid(
        field,
        `The value of label "${key}" is not usable`,
        `Use at most ${limits.labelValue} characters, none of them control characters`,
      );
    }
  }
  return { ...labels };
}

/** A change of a pod's labels. */
export interface LabelsChange {
  readonly set: Readonly<Record<string, string>>;
  readonly remove: readonly string[];
}

/** Checks a change of labels, which changes something. */
export function validateLabelsChange({ set, remove }: LabelsChange): LabelsChange {
  checkCount(remove, limits.labels, "remove");
  const checked = validateLabels(set, "set");
  if (Object.keys(checked).length + remove.length === 0)
    throw invalid("set", "No label is to be changed", "Give labels to set, or keys to remove");
  for (const [i, key] of remove.entries()) {
    if (!labelKey.test(key)) throw badLabelKey(key, `remove[${i}]`);
    if (Object.hasOwn(checked, key))
      throw invalid(
        `remove[${i}]`,
        `Label "${key}" is to be both set and removed`,
        "Name each label once",
      );
  }
  return { set: checked, remove: [...new Set(remove)] };
}

/** Labels after a change. Pure. Throws `INVALID_ARGUMENT` when they are too many. */
export function changedLabels(
  labels: PodSpec["labels"],
  { set, remove }: LabelsChange,
): PodSpec["labels"] {
  const kept = Object.entries(labels).filter(([key]) => !remove.includes(key));
  return validateLabels(Object.fromEntries([...kept, ...Object.entries(set)]), "set");
}

/**
 * Checks a machine's size; what is left out is the default. Throws `INVALID_ARGUMENT`,
 * `MEMORY_TOO_SMALL`.
 */
export function validateResources(
  resources: { readonly [Field in keyof ResourcesSpec]?: number | undefined } | undefined,
): ResourcesSpec {
  const { vcpu = limits.defaultVcpu, memoryMib = limits.defaultMemoryMib } = resources ?? {};
  const { maxVcpu = vcpu, maxMemoryMib = memoryMib } = resources ?? {};
  if (vcpu < 1 || vcpu > limits.vcpu) {
    throw invalid(
      "resources.vcpu",
      `A machine has no ${vcpu} virtual processors`,
      `Use 1 to ${limits.vcpu}, or leave it out for ${limits.defaultVcpu}`,
    );
  }
  if (memoryMib < limits.minMemoryMib) {
    throw new PodnetError("MEMORY_TOO_SMALL", `No guest boots with ${memoryMib} MiB`, {
      field: "resources.memory_mib",
      hint: `Give at least ${limits.minMemoryMib} MiB`,
      details: { wanted_mib: memoryMib, smallest_mib: limits.minMemoryMib },
    });
  }
  if (memoryMib > limits.maxMemoryMib) {
    throw invalid(
      "resources.memory_mib",
      `${memoryMib} MiB are too many`,
      `Use ${limits.minMemoryMib} to ${limits.maxMemoryMib}`,
    );
  }
  checkMost("max_vcpu", maxVcpu, vcpu, limits.vcpu);
  checkMost("max_memory_mib", maxMemoryMib, memoryMib, limits.maxMemoryMib);
  return {
    vcpu,
    memoryMib,
    ...(resources?.maxVcpu === undefined ? {} : { maxVcpu }),
    ...(resources?.maxMemoryMib === undefined ? {} : { maxMemoryMib }),
  };
}

function checkMost(
  name: "max_vcpu" | "max_memory_mib",
  most: number,
  least: number,
  limit: number,
) {
  if (most >= least && most <= limit) return;
  throw invalid(
    `resources.${name}`,
    most < least
      ? `A machine that starts with ${least} cannot have ${most} at most`
      : `${most} are too many`,
    `Use ${least} to ${limit}, or leave it out: then the machine stays as it starts`,
  );
}

const factories = ["cold", "template", "pool"] as const;

const isFactory = (text: string): text is (typeof factories)[number] =>
  (factories as readonly string[]).includes(text);

function validateBoot(boot: wire.Boot | undefined): BootSpec {
  if (boot === undefined) return { cmdline: "", disks: [] };
  const { kernel, initrd, cmdline, disks, factory } = boot;
  if (cmdline.length > limits.cmdline || !/^[\x20-\x7e]*$/.test(cmdline)) {
    throw invalid(
      "boot.cmdline",
      "The kernel command line is not usable",
      `Use at most ${limits.cmdline} printable ASCII characters`,
    );
  }
  checkCount(disks, limits.disks, "boot.disks");
  if (factory !== "" && !isFactory(factory)) {
    throw invalid(
      "boot.factory",
      `Factory "${printable(factory)}" is not known`,
      `Use ${factories.join(", ")}`,
    );
  }
  const checked: BootSpec = {
    ...(kernel === "" ? {} : { kernel: pathOrNone(kernel, "boot.kernel") }),
    ...(initrd === "" ? {} : { initrd: pathOrNone(initrd, "boot.initrd") }),
    cmdline,
    disks: disks.map((disk, i) => validateDisk(disk, `boot.disks[${i}]`)),
    ...(factory === "" ? {} : { factory }),
    ...validateGuest(boot),
    ...validateImage(boot),
    ...validateLayer(boot),
  };
  checkForm(checked);
  refuseClone(checked);
  return checked;
}
