import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Command, Option } from "commander";
import {
  BootSchema,
  CloudInitSchema,
  DiskSchema,
  DnsSchema,
  GuestFileSchema,
  InterfaceSchema,
  type PodSpec,
  PodSpecSchema,
  ResourcesSchema,
  ShareSchema,
  RouteSchema,
} from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { copyHelp, fileFrom, volumeFrom, volumeHelp } from "./file-flags.ts";
import { FlagWriter, type GivenFlags } from "./given.ts";
import {
  interfaceFrom,
  interfaceHelp,
  type InterfaceParts,
  overlay,
  routeFrom,
} from "./interface-flags.ts";
import { readRulesFile, readText } from "../pod-file.ts";
import { collect, parseCount, parseMemory, parsePairs, parseParts } from "../parse.ts";
import { portFromText } from "../views/port-view.ts";

/** The flags that say what a pod is. */
export interface SpecFlags {
  readonly name?: string;
  readonly label?: readonly string[];
  readonly vcpu?: string;
  /** As vcpu; the name that `podnet run` has for it. */
  readonly cpus?: string;
  readonly memory?: string;
  readonly maxVcpu?: string;
  readonly maxMemory?: string;
  readonly kernel?: string;
  readonly initrd?: string;
  readonly cmdline?: string;
  readonly disk?: readonly string[];
  readonly image?: string;
  readonly layer?: string;
  readonly layerSize?: string;
  readonly factory?: string;
  readonly agent?: string;
  readonly cloudInit?: string;
  readonly network?: string;
  readonly address?: string;
  readonly mac?: string;
  readonly mtu?: string;
  readonly gateway?: string;
  readonly guestName?: string;
  readonly interface?: readonly string[];
  readonly hostname?: string;
  readonly dns?: readonly string[];
  readonly dnsSearch?: readonly string[];
  readonly dnsOption?: readonly string[];
  readonly route?: readonly string[];
  readonly publish?: readonly string[];
  readonly policy?: string;
  readonly copy?: readonly string[];
  readonly volume?: readonly string[];
}

/** Adds the flags that say what its network is, and what it is called. */
export function addNetworkFlags(command: Command): Command {
  return command
    .option("-n, --name <name>", "the pod's name; default pod- and the start of its id")
    .option("-l, --label <key=value>", "a label; may be repeated", collect)
    .optionsGroup("Network:")
    .option("--network <name>", "network of the first interface")
    .option("--address <ip[/len]>", "its address; default the next free one")
    .option("--mac <mac>", "its Ethernet address; default random")
    .option("--mtu <bytes>", "its MTU; default the network's")
    .option("--gateway <ip>", "default route by this gateway")
    .option("--guest-name <name>", "its name in the guest; default eth0")
    .option("--interface <parts>", `one more, may be repeated: ${interfaceHelp}`, collect)
    .option(
      "-p, --publish <spec>",
      "a port to publish: [[IP:]HOST:]POD[/tcp|udp|sctp]; may be repeated",
      collect,
    )
    .option("--policy <file>", "rules of its own, before policies: default, rules, ingress")
    .option(
      "--route <parts>",
      "a route: DESTINATION,via=GATEWAY,dev=INTERFACE,metric=…; may be repeated",
      collect,
    )
    .option("--hostname <name>", "hostname in the guest; default the pod's name")
    .option("--dns <ip>", "a name server; default the host's; may be repeated", collect)
    .option("--dns-search <domain>", "a search domain; may be repeated", collect)
    .option("--dns-option <option>", "a resolver option such as ndots:2; may be repeated", collect);
}

/** Adds the flags about the writable layer of an image's root. */
export function addLayerFlags(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--layer <kind>",
        "where writes to the image's root go: ephemeral, in memory until a stop; persistent, on a disk until the pod is deleted; default ephemeral",
      ).choices(["ephemeral", "persistent"]),
    )
    .option("--layer-size <amount>", "size of a persistent layer; default disk_max_mib, or 10G");
}

/** Adds the flag that shares a directory, or copies a file. */
export function addVolumeFlag(command: Command): Command {
  return command.option(
    "-v, --volume <src:path>",
    `a directory of the host that the guest reads, or a file that it gets, may be repeated: ${volumeHelp}`,
    collect,
  );
}

/** Adds all the flags to a command. */
export function addSpecFlags(command: Command): void {
  addNetworkFlags(command)
    .optionsGroup("Machine:")
    .option("--vcpu <count>", "virtual processors; default 1")
    .option("--memory <amount>", "memory in MiB, or with a unit: 256M, 1G; default 128M")
    .option("--max-vcpu <count>", "the most that podnet update may give it while it runs")
    .option("--max-memory <amount>", "likewise; default what it starts with")
    .option(
      "--kernel <path>",
      "kernel on the host, or none: the first disk boots; default podnet's",
    )
    .option("--initrd <path>", "initramfs on the host, or none; default podnet's")
    .option("--cmdline <words>", "words added to the kernel's command line")
    .option("--image <name>", "an image in the store, whose files are the root and which it runs");
  addVolumeFlag(addLayerFlags(command))
    .option("--disk <parts>", `a disk, may be repeated: ${diskHelp}`, collect)
    .option(
      "--copy <src:dst>",
      `a file that the guest gets at each boot, may be repeated: ${copyHelp}`,
      collect,
    )
    .option(
      "--factory <how>",
      "cold boots it, template clones it, pool takes a clone that waits; default as podnetd is set up",
    )
    .option("--agent <who>", "who configures the guest: hyperstart or none; default podnet's agent")
    .option("--cloud-init <file>", "a NoCloud seed disk with this user data");
}

/** Flags of the first interface, with the part of it that each gives, and the field. */
const ofFirst = [
  ["network", "network", "network"],
  ["address", "address", "address"],
  ["mac", "mac", "mac"],
  ["mtu", "mtu", "mtu"],
  ["gateway", "gateway", "gateway"],
  ["guestName", "name", "guest_name"],
] as const satisfies readonly (readonly [keyof SpecFlags, keyof InterfaceParts, string])[];

function putInterfaces(spec: PodSpec, flags: FlagWriter<SpecFlags>): void {
  for (const [key, part, field] of ofFirst)
    flags.put(key, `interfaces[0].${field}`, (text) => {
      spec.interfaces[0] = overlay(spec.interfaces[0] ?? create(InterfaceSchema), { [part]: text });
    });
  flags.append("interface", "interfaces", spec.interfaces, (text) =>
    interfaceFrom("--interface", text),
  );
}

const diskHelp = "PATH[,format=raw|qcow2][,max=AMOUNT][,ro][,write-through]";
const diskWords = ["ro", "readonly", "write-through"];

function diskFrom(text: string): MessageInitShape<typeof DiskSchema> {
  const { first, rest } = parseParts("--disk", text, ["format", "path", "max"], diskWords);
  return {
    path: rest["path"] ?? first,
    format: rest["format"] ?? "",
    readOnly: rest["ro"] !== undefined || rest["readonly"] !== undefined,
    writeThrough: rest["write-through"] !== undefined,
    ...(rest["max"] === undefined ? {} : { maxMib: parseMemory(rest["max"], "--disk max") }),
  };
}

/**
 * The pod that flags ask for: a file's spec, where there is one, with each flag given in its place.
 * Throws `INVALID_ARGUMENT`.
 */
export async function specFromFlags(
  given: SpecFlags,
  file: PodSpec | undefined,
  record: GivenFlags,
): Promise<PodSpec> {
  const spec = file ?? create(PodSpecSchema);
  const flags = new FlagWriter(given, record);
  flags.put("name", "name", (name) => {
    spec.name = name;
  });
  flags.put("hostname", "hostname", (name) => {
    spec.hostname = name;
  });
  const labels = (given.label ?? []).map((text) => `labels["${text.split("=", 1)[0]}"]`);
  flags.put("label", labels, (texts) => {
    Object.assign(spec.labels, parsePairs("--label", texts));
  });
  putInterfaces(spec, flags);
  putMachine(spec, flags);
  putDns(spec, flags);
  flags.append("publish", "ports", spec.ports, (text) => portFromText(text, "--publish"));
  flags.append("route", "routes", spec.routes, (text) =>
    create(RouteSchema, routeFrom("--route", text)),
  );
  flags.append("copy", "files", spec.files, (text) => create(GuestFileSchema, fileFrom(text)));
  putVolumes(spec, given.volume ?? [], record);
  const rules = given.policy === undefined ? undefined : await readRulesFile(given.policy);
  flags.put("policy", "policy", () => {
    spec.policy = rules ?? {};
  });
  return spec;
}

function putVolumes(spec: PodSpec, volumes: readonly string[], record: GivenFlags): void {
  for (const text of volumes) {
    const found = volumeFrom(text);
    const [field, count] =
      "share" in found ? ["shares", spec.shares.length] : ["files", spec.files.length];
    record.add(`${field}[${count}]`, `--volume ${text}`);
    if ("share" in found) spec.shares.push(create(ShareSchema, found.share));
    else spec.files.push(create(GuestFileSchema, found.file));
  }
}

function putDns(spec: PodSpec, flags: FlagWriter<SpecFlags>): void {
  const dns = () => (spec.dns ??= create(DnsSchema));
  flags.put("dns", "dns.servers", (servers) => {
    dns().servers = [...servers];
  });
  flags.put("dnsSearch", "dns.search", (domains) => {
    dns().search = [...domains];
  });
  flags.put("dnsOption", "dns.options", (options) => {
    dns().options = [...options];
  });
}

/** Flags that are a text of the boot each, and its field. */
const ofBoot = ["image", "layer", "kernel", "initrd", "cmdline", "factory", "agent"] as const;

function putMachine(spec: PodSpec, flags: FlagWriter<SpecFlags>): void {
  const resources = () => (spec.resources ??= create(ResourcesSchema));
  const boot = () => (spec.boot ??= create(BootSchema));
  for (const key of ["vcpu", "cpus"] as const)
    flags.put(key, "resources.vcpu", (text) => {
      resources().vcpu = parseCount(`--${key}`, text);
    });
  flags.put("memory", "resources.memory_mib", (text) => {
    resources().memoryMib = parseMemory(text);
  });
  flags.put("maxVcpu", "resources.max_vcpu", (text) => {
    resources().maxVcpu = parseCount("--max-vcpu", text);
  });
  flags.put("maxMemory", "resources.max_memory_mib", (text) => {
    resources().maxMemoryMib = parseMemory(text);
  });
  for (const key of ofBoot)
    flags.put(key, `boot.${key}`, (text) => {
      boot()[key] = text;
    });
  flags.put("layerSize", "boot.layer_mib", (text) => {
    boot().layerMib = parseMemory(text, "--layer-size");
  });
  flags.put("cloudInit", "boot.cloud_init", (file) => {
    boot().cloudInit = create(CloudInitSchema, { userData: readText(file) });
  });
  flags.put("disk", [], () => boot());
  flags.append("disk", "boot.disks", spec.boot?.disks ?? [], (text) =>
    create(DiskSchema, diskFrom(text)),
  );
}
