import * as z from "zod";
import { mostHostAccess } from "../../core/host-access.ts";
import { architectures } from "../../hypervisor/architecture.ts";
import { overlaySchema } from "./overlay-schema.ts";

const path = z.string().startsWith("/", "must be an absolute path");
const seconds = (max: number) => z.int().min(0).max(max);
const count = (min: number, max: number) => z.int().min(min).max(max);
const entries = z.array(z.string());

/**
 * `PODNET_SOCKET` is where the command `podnet` finds podnetd: exported for it, it is not to move
 * podnetd's own socket.
 */
const ownVariables: Readonly<Record<string, string>> = { socket: "PODNETD_SOCKET" };

/**
 * Every key of `config.toml`. The environment variable and the flag of a key derive from its name:
 * `network.cidr` is `PODNET_NETWORK_CIDR` and `--network-cidr`; `socket` alone is `PODNETD_SOCKET`.
 */
export const configSchema = z.strictObject({
  state_dir: path.describe("Directory of the database of pods, networks and addresses"),
  run_dir: path.describe(
    "Directory of the sockets of podnetd and of its VMs; empty after a host restart",
  ),
  disks_dir: path.describe("Directory of the files that hold what pods write to their disks"),
  disk_max_mib: count(0, 2 ** 32 - 1).describe(
    "MiB that a pod may write to each disk, unless the disk sets max_mib; 0: as much as the size of the disk",
  ),
  socket: path.describe("Unix socket of the API"),
  socket_group: z
    .string()
    .min(1)
    .describe("Group that may connect to the socket, by name or number"),
  log_level: z
    .enum(["trace", "debug", "info", "warn", "error"])
    .describe("Lowest level that is logged"),
  tcp: z.strictObject({
    address: z.string().describe("ADDRESS:PORT where the API is also served, with mutual TLS"),
    cert: path.describe("The server's certificate, PEM"),
    key: path.describe("The server's private key, PEM"),
    client_ca: path.describe("The authority that must have signed a client's certificate, PEM"),
  }),
  access: z.strictObject({
    admin: entries.describe(
      "Who has the role admin, in addition to root and podnetd's user: uid:NAME, gid:NAME, cert:NAME",
    ),
    operator: entries.describe(
      "Who has the role operator; the members of socket_group when not given",
    ),
    viewer: entries.describe("Who has the role viewer"),
    image_paths: z
      .array(path)
      .describe("Directories of the kernels, initrds and disks that operators may name"),
    write_through_paths: z
      .array(path)
      .describe("Directories, files and devices that operators may use as write-through disks"),
    share_paths: z
      .array(path)
      .describe("Directories that operators may share with their pods, with all that is in them"),
    writable_share_paths: z
      .array(path)
      .describe("Directories in which pods may write to what they share, whoever creates them"),
  }),
  limits: z.strictObject({
    connections: count(8, 100_000).describe(
      "Connections to the unix socket; the same number applies to TCP",
    ),
    handshakes: count(4, 100_000).describe(
      "Unfinished TLS handshakes; one source address may have a quarter of them",
    ),
    connections_per_caller: count(1, 100_000).describe("Connections of one user or certificate"),
    connections_per_s: count(1, 1_000_000).describe(
      "New connections a second of one user or certificate, and by TCP of one source address, on average; bursts may be twice as large",
    ),
    requests_per_caller: count(1, 100_000).describe(
      "Concurrent requests and streams of one user or certificate",
    ),
    creates_per_caller: count(1, 10_000).describe(
      "Concurrent creates and starts of one user or certificate",
    ),
    starts: count(0, 10_000).describe(
      "Machines that start at a time; further ones wait. 0: four for each processor",
    ),
    captures_per_caller: count(1, 1000).describe(
      "Concurrent captures of one user or certificate; each buffers up to 4 MiB of packets",
    ),
    requests_per_s: count(1, 1_000_000).describe(
      "Requests a second of one user or certificate, on average; bursts may be twice as large",
    ),
    request_s: seconds(3600).min(1).describe("Seconds that a request may take to arrive"),
    stall_s: seconds(3600).min(1).describe("Seconds that an answer may stay unread"),
    idle_s: seconds(86_400).min(1).describe("Seconds that a connection may stay without a request"),
  }),
  network: z.strictObject({
    name: z.string().describe("Name of the default network"),
    bridge: z
      .string()
      .describe(
        "Bridge of the default network; an existing one is adopted if it carries the gateway address",
      ),
    cidr: z
      .string()
      .describe(
        "Subnet of the default network. With host bits set, that address is the gateway, else the first one is",
      ),
    cidr6: z.string().describe("IPv6 subnet of the default network, in addition to cidr"),
    mtu: z.int().min(576).max(65521).describe("MTU of the bridge and its ports"),
    ranges: z
      .array(z.string())
      .describe("Ranges that automatic addresses come from; all of the subnet when empty"),
    reserved: z
      .array(z.string())
      .describe("Addresses, subnets or FIRST-LAST ranges that are never handed out"),
    dns: z
      .array(z.string())
      .describe(
        "Name servers that the resolver asks, or that guests ask where there is no resolver; the host's own when empty",
      ),
    dns_search: z.array(z.string()).describe("Search domains for guests"),
    masquerade: z.boolean().describe("Packets that leave the host get the host's address (NAT)"),
    isolated: z.boolean().describe("Pods reach the gateway but not each other"),
    cloud_metadata: z
      .boolean()
      .describe(
        "Pods may reach 169.254.0.0/16 and the IPv6 metadata addresses of clouds outside of this host",
      ),
    accept_translated: z
      .boolean()
      .describe(
        "Connections that other programs on this host translate (DNAT) reach pods, not only containers",
      ),
    admit: z
      .array(z.string())
      .max(64)
      .describe(
        "Sources that may open connections to all of the network, such as pods of other nodes",
      ),
    host_access: z
      .array(z.string())
      .max(mostHostAccess)
      .describe(
        "What pods reach on the host beyond names, DHCP and ping: tcp/PORT, udp/PORT, tcp/FIRST-LAST; or all alone",
      ),
    connections: z
      .int()
      .describe(
        "Connections that the host remembers for each pod at most: 512, 2048, 8192 or 32768; 0: no limit",
      ),
    vlan_filtering: z
      .boolean()
      .describe("The bridge filters VLANs, so that an interface can be a member of one"),
    limit_in: z
      .string()
      .describe("Bandwidth towards each pod that does not say otherwise, such as 100mbit; none"),
    limit_out: z
      .string()
      .describe("Bandwidth from each pod that does not say otherwise, such as 50mbit; none"),
    packets_in: z
      .string()
      .describe("Packets a second towards each pod that does not say otherwise, such as 10k; none"),
    packets_out: z
      .string()
      .describe("Packets a second from each pod that does not say otherwise, such as 10k; none"),
  }),
  dns: z.strictObject({
    resolver: z
      .boolean()
      .describe(
        "podnetd answers DNS at the gateway of each network, unless the network is made with --no-resolver",
      ),
    domain: z.string().describe("Domain of pod names"),
    upstreams: z
      .array(z.string())
      .describe(
        "Name servers for all other names, on networks without dns; the host's own when empty",
      ),
    stale_s: z
      .int()
      .min(0)
      .max(259_200)
      .describe("Seconds that an old answer may be used while no server answers; 0: never"),
  }),
  overlay: overlaySchema,
  cni: z.strictObject({
    enabled: z.boolean().describe("podnetd serves container runtimes (CNI)"),
    socket: path.describe("Unix socket that podnet-cni connects to"),
    pending_dir: path.describe(
      "Directory where podnet-cni records DEL requests that podnetd could not take",
    ),
    service_cidr: z
      .string()
      .describe(
        "Kubernetes service subnet: containers reach it through their network's gateway, even where a macvlan0 also leads there",
      ),
    mtu: z
      .int()
      .min(576)
      .max(65521)
      .describe(
        "MTU of containers whose CNI configuration sets none; the network's MTU when not given",
      ),
    conf_dir: path.describe("Directory of CNI configuration lists for pods on CNI plugins"),
    bin_dirs: z
      .array(path)
      .min(1)
      .describe("Directories that are searched for CNI plugins, in this order"),
    vendor_dir: path.describe("Directory that is searched before cni.bin_dirs: DIR/PLUGIN/bin"),
    plugin_timeout_s: z.int().min(1).max(600).describe("Seconds that one CNI plugin may take"),
  }),
  cri: z.strictObject({
    socket: path.describe(
      "Unix socket of Kubernetes' runtime interface (CRI), for root alone; not served when not given",
    ),
    stream_address: z
      .string()
      .describe(
        "ADDRESS:PORT where kubelet streams programs, containers and ports, without TLS; port 0 is one that is free",
      ),
    log_path: path.describe("Directory that the logs of containers must be in, kubelet's own"),
    mount_paths: z
      .array(path)
      .describe(
        "Directories of the host whose files containers get copies of, where Kubernetes mounts them",
      ),
  }),
  tracing: z.strictObject({
    endpoint: z
      .string()
      .min(1)
      .describe(
        "Base URL of a collector of OpenTelemetry that takes spans by HTTP (OTLP); none are made when not given",
      ),
  }),
  hyperd: z.strictObject({
    socket: path.describe(
      "Unix socket of hyperd's REST and gRPC APIs, for root and socket_group; not served when not given",
    ),
    mount_paths: z
      .array(path)
      .describe(
        "Directories of the host whose files callers of hyperd's API may have copied into containers",
      ),
  }),
  metrics: z.strictObject({
    pods: z.boolean().describe("/metrics shows the usage of each pod, by its name"),
  }),
  firewall: z
    .enum(["auto", "iptables", "nftables"])
    .describe(
      "Firewall driver: iptables chains, or an nftables table of podnet's own; auto takes iptables where it is installed at the first start, and stays with what it took",
    ),
  iptables_chain: z.string().describe("Name of podnet's iptables chain"),
  iptables_variant: z
    .enum(["auto", "nft", "legacy"])
    .describe("Variant of iptables; auto takes the one that holds rules"),
  publish_ports: z
    .string()
    .describe(
      "Host ports that podnet may choose, FIRST-LAST; the kernel's ephemeral range when not given",
    ),
  service_cidrs: z
    .array(z.string())
    .max(2)
    .describe("Subnets that addresses of services come from, one of each address family"),
  disable_iptables: z.boolean().describe("Make no firewall rules: no NAT, no filtering"),
  guard_ethertypes: z
    .array(z.int().min(0x600).max(0xffff))
    .describe(
      "Numbers of the protocols (EtherTypes) that guests of podnet's networks may speak, in addition to IPv4, IPv6 and ARP",
    ),
  relay_port: count(1, 65_535).describe(
    "TCP port of this host to which connections are redirected whose name a policy decides about",
  ),
  policy_log: path.describe(
    "File to which denials of policies are written, a JSON object a line; none when not given",
  ),
  policy_log_mib: count(1, 4096).describe(
    "MiB of policy_log, after which it is renamed to PATH.1 and begins anew",
  ),
  qemu: z.strictObject({
    arch: z
      .enum(architectures)
      .describe("Architecture of VMs; software emulation unless it is the host's own"),
    path: path.describe("The QEMU program; searched in PATH when not given"),
    kvm: z.enum(["auto", "on", "off"]).describe("Hardware virtualization"),
    confine: z
      .enum(["on", "off"])
      .describe("Run each QEMU with its own user, namespaces, root filesystem and limits"),
    uids: z.string().describe("User ids for VMs, one for each, and two for helpers: FIRST-LAST"),
    memory_overhead_mib: count(32, 1024 * 1024).describe(
      "Memory that QEMU may use in addition to its guest's, MiB",
    ),
    pids: count(8, 100_000).describe("Threads that QEMU may have in addition to one for each vCPU"),
    cgroup: z
      .string()
      .regex(
        /^[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:\/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$/,
        "must be a relative path",
      )
      .describe("Where the control groups of VMs are made, below each hierarchy"),
  }),
  image: z.strictObject({
    kernel: path.describe("Kernel of pods that name none"),
    initrd: path.describe("Initramfs of pods that name none"),
  }),
  images: z.strictObject({
    registries: entries.describe(
      "Registries that operators may pull from, as HOST or HOST:PORT; names without a registry mean the first",
    ),
    insecure: entries.describe("Registries that are asked by HTTP without TLS"),
    ca: path.describe(
      "Certificates of the registries' authorities in addition to the usual ones, PEM",
    ),
    auth_file: path.describe(
      "Credentials for registries: a config.json of docker or an auth.json of podman",
    ),
    max_mib: count(1, 2 ** 32 - 1).describe("MiB that the files of all images may have"),
    image_max_mib: count(1, 2 ** 32 - 1).describe("MiB that the files in one image may have"),
    layers_max_mib: count(0, 2 ** 32 - 1).describe(
      "MiB of pulled layers that are kept for images that share them",
    ),
    evict: z
      .boolean()
      .describe("Images that no pod uses make room for new ones, the least recently used first"),
    job_s: seconds(86_400).min(1).describe("Seconds that a pull or an import may take"),
  }),
  drift_s: seconds(3600).describe(
    "Seconds between looks for outside changes, which are then repaired, and for dropped packets, which are then reported; 0 switches both off",
  ),
  factory: z
    .enum(["cold", "template", "pool"])
    .describe(
      "How pods of the default image start: cold boots them, template clones them, pool has clones wait for them",
    ),
  pool: z.strictObject({
    size: z
      .int()
      .min(0)
      .max(1000)
      .describe("Clones of the default size that wait for a pod, with factory pool"),
    classes: z
      .array(z.string())
      .describe(
        "Clones of other sizes that wait, VCPUSxMIB=COUNT each, 2x512=3; of a container image with its name before it, app:1 1x128=2",
      ),
    reserve_mib: z
      .int()
      .min(0)
      .max(4_194_304)
      .describe("MiB of the host's memory below which podnetd empties its pools"),
  }),
  quarantine_s: seconds(86_400).describe(
    "Seconds that a released address stays in quarantine before it is handed out again",
  ),
  timeouts: z.strictObject({
    create_s: seconds(3600).min(1).describe("Seconds that a create may take"),
    ready_s: seconds(3600).min(1).describe("Seconds that a guest's agent may take to say READY"),
    stop_s: seconds(600).describe(
      "Seconds that a guest may take to power off before its VM is ended",
    ),
    power_button_s: seconds(600).describe(
      "Seconds that a guest without an agent may take to power off before its VM is ended",
    ),
  }),
});

/** How a value is written in an environment variable or flag. */
type LeafKind = "text" | "integer" | "boolean" | "list" | "choice";

export interface ConfigKey {
  /** Dotted, as in the file: `network.cidr`. */
  readonly key: string;
  readonly kind: LeafKind;
  readonly choices: readonly string[];
  readonly help: string;
  readonly schema: z.ZodType;
  readonly env: string;
  readonly flag: string;
}

function leafKind(schema: z.ZodType): LeafKind {
  if (schema instanceof z.ZodArray) return "list";
  if (schema instanceof z.ZodBoolean) return "boolean";
  if (schema instanceof z.ZodEnum) return "choice";
  if (schema instanceof z.ZodNumber) return "integer";
  return "text";
}

function* leaves(object: z.ZodObject, prefix: string): Generator<ConfigKey> {
  for (const [name, schema] of Object.entries(object.shape) as [string, z.ZodType][]) {
    const key = prefix + name;
    if (schema instanceof z.ZodObject) {
      yield* leaves(schema, `${key}.`);
      continue;
    }
    yield {
      key,
      kind: leafKind(schema),
      choices: schema instanceof z.ZodEnum ? schema.options.map(String) : [],
      help: schema.description ?? "",
      schema,
      env: ownVariables[key] ?? `PODNET_${key.replaceAll(".", "_").toUpperCase()}`,
      flag: `--${key.replaceAll(/[._]/g, "-")}`,
    };
  }
}

/** Every key, in the order of the schema. */
export const configKeys: readonly ConfigKey[] = [...leaves(configSchema, "")];

/** Makes all keys optional, and those of nested tables. */
const partly = (object: z.ZodObject): z.ZodObject =>
  z.strictObject(
    Object.fromEntries(
      Object.entries(object.shape as Record<string, z.ZodType>).map(([name, schema]) => [
        name,
        (schema instanceof z.ZodObject ? partly(schema) : schema).optional(),
      ]),
    ),
  );

/** Schema of a file: every key, none of them required. */
export const fileSchema = partly(configSchema);
