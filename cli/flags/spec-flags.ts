import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  BootSchema,
  CloudInitSchema,
  type DiskSchema,
  DnsSchema,
  InterfaceSchema,
  type PodSpec,
  PodSpecSchema,
  ResourcesSchema,
} from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { copyHelp, fileFrom } from "./file-flags.ts";
import {
  interfaceFrom,
  interfaceHelp,
  type InterfaceParts,
  overlay,
  routeFrom,
} from "./interface-flags.ts";
import { readText } from "../pod-file.ts";
import { collect, parseCount, parseMemory, parsePairs, parseParts } from "../parse.ts";
import { portFromText } from "../views/port-view.ts";

/** The flags that say what a pod is. */
export interface SpecFlags {
  readonly name?: string;
  readonly label?: readonly string[];
  readonly vcpu?: string;
  readonly memory?: string;
  readonly kernel?: string;
  readonly initrd?: string;
  readonly cmdline?: string;
  readonly disk?: readonly string[];
  readonly image?: string;
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

/** Adds all the flags to a command. */
export function addSpecFlags(command: Command): void {
  addNetworkFlags(command)
    .optionsGroup("Machine:")
    .option("--vcpu <count>", "virtual processors; default 1")
    .option("--memory <amount>", "memory in MiB, or with a unit: 256M, 1G; default 128M")
    .option(
      "--kernel <path>",
      "kernel on the host, or none: the first disk boots; default podnet's",
    )
    .option("--initrd <path>", "initramfs on the host, or none; default podnet's")
    .option("--cmdline <words>", "words added to the kernel's command line")
    .option("--image <name>", "an image in the store, whose files are the root and which it runs")
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

function setInterfaces(spec: PodSpec, flags: SpecFlags): void {
  const { network, address, mac, mtu, gateway, guestName: name } = flags;
  const first = Object.fromEntries(
    Object.entries({ network, address, mac, mtu, gateway, name }).filter(
      ([, v]) => v !== undefined,
    ),
  ) as InterfaceParts;
  if (Object.keys(first).length > 0) {
    spec.interfaces[0] = overlay(spec.interfaces[0] ?? create(InterfaceSchema), first);
  }
  for (const text of flags.interface ?? [])
    spec.interfaces.push(interfaceFrom("--interface", text));
}

const diskHelp = "PATH[,format=raw|qcow2][,max=AMOUNT][,ro][,write-through]";
const diskWords = ["ro", "readonly", "write-through"];

function disk(text: string): MessageInitShape<typeof DiskSchema> {
  const { first, rest } = parseParts("--disk", text, ["format", "path", "max"], diskWords);
  return {
    path: rest["path"] ?? first,
    format: rest["format"] ?? "",
    readOnly: rest["ro"] !== undefined || rest["readonly"] !== undefined,
    writeThrough: rest["write-through"] !== undefined,
    ...(rest["max"] === undefined ? {} : { maxMib: parseMemory(rest["max"], "--disk max") }),
  };
}

/** The flags' pod: a file's spec, where there is one, with each flag given in its place. */
export function specFromFlags(flags: SpecFlags, file: PodSpec | undefined): PodSpec {
  const spec = file ?? create(PodSpecSchema);
  if (flags.name !== undefined) spec.name = flags.name;
  if (flags.hostname !== undefined) spec.hostname = flags.hostname;
  Object.assign(spec.labels, parsePairs("--label", flags.label ?? []));
  setInterfaces(spec, flags);
  setMachine(spec, flags);
  const { dns, dnsSearch, dnsOption } = flags;
  if (dns !== undefined || dnsSearch !== undefined || dnsOption !== undefined) {
    spec.dns ??= create(DnsSchema);
    if (dns !== undefined) spec.dns.servers = [...dns];
    if (dnsSearch !== undefined) spec.dns.search = [...dnsSearch];
    if (dnsOption !== undefined) spec.dns.options = [...dnsOption];
  }
  spec.ports.push(...(flags.publish ?? []).map((text) => portFromText(text, "--publish")));
  const routes = create(PodSpecSchema, {
    routes: (flags.route ?? []).map((text) => routeFrom("--route", text)),
  }).routes;
  spec.routes.push(...routes);
  spec.files.push(...create(PodSpecSchema, { files: (flags.copy ?? []).map(fileFrom) }).files);
  return spec;
}

function setMachine(spec: PodSpec, flags: SpecFlags): void {
  const { vcpu, memory, kernel, initrd, cmdline, factory, agent, cloudInit, image } = flags;
  if (vcpu !== undefined || memory !== undefined) {
    spec.resources ??= create(ResourcesSchema);
    if (vcpu !== undefined) spec.resources.vcpu = parseCount("--vcpu", vcpu);
    if (memory !== undefined) spec.resources.memoryMib = parseMemory(memory);
  }
  const disks = create(BootSchema, { disks: (flags.disk ?? []).map(disk) }).disks;
  if (image ?? kernel ?? initrd ?? cmdline ?? factory ?? agent ?? cloudInit ?? disks[0]) {
    spec.boot ??= create(BootSchema);
    spec.boot.kernel = kernel ?? spec.boot.kernel;
    spec.boot.initrd = initrd ?? spec.boot.initrd;
    spec.boot.cmdline = cmdline ?? spec.boot.cmdline;
    spec.boot.factory = factory ?? spec.boot.factory;
    spec.boot.agent = agent ?? spec.boot.agent;
    spec.boot.image = image ?? spec.boot.image;
    if (cloudInit !== undefined)
      spec.boot.cloudInit = create(CloudInitSchema, { userData: readText(cloudInit) });
    spec.boot.disks.push(...disks);
  }
}
