import { z } from "zod";
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
  state_dir: path.describe("Where the record of pods and addresses is kept"),
  run_dir: path.describe(
    "Where sockets of the daemon and of the machines live; empty after a host restart",
  ),
  disks_dir: path.describe(
    "Where what pods write to their disks is kept; disks in state_dir unless given",
  ),
  disk_max_mib: count(0, 2 ** 32 - 1).describe(
    "MiB that a pod may write to each of its disks that do not say; 0: as much as the disk is large",
  ),
  socket: path.describe("The API's unix socket"),
  socket_group: z.string().min(1).describe("Group that may use the socket, by name or number"),
  log_level: z.enum(["trace", "debug", "info", "warn", "error"]).describe("How much is logged"),
  tcp: z.strictObject({
    address: z.string().describe("Serve the API on this ADDRESS:PORT too, with mutual TLS"),
    cert: path.describe("The server's certificate, PEM"),
    key: path.describe("The server's private key, PEM"),
    client_ca: path.describe("Clients must show a certificate signed by this authority, PEM"),
  }),
  access: z.strictObject({
    admin: entries.describe("Who may do everything beside root: uid:NAME, gid:NAME, cert:NAME"),
    operator: entries.describe(
      "Who may create, run programs in and delete pods; the members of socket_group when not given",
    ),
    viewer: entries.describe("Who may look on only"),
    image_paths: z
      .array(path)
      .describe(
        "Directories with the kernels, initrds and disks that callers who are no admin may name; when not given that of the default image, STATE_DIR/images and /usr/share/podnet",
      ),
    write_through_paths: z
      .array(path)
      .describe(
        "Directories, files and devices that disks of such callers may be written through to; none when not given",
      ),
  }),
  limits: z.strictObject({
    connections: count(8, 100_000).describe("Connections to the unix socket, and as many by TCP"),
    handshakes: count(4, 100_000).describe(
      "TLS handshakes that are not finished, apart from connections; of one source address a quarter",
    ),
    connections_per_caller: count(1, 100_000).describe("Connections of one user or certificate"),
    connections_per_s: count(1, 1_000_000).describe(
      "New connections a second of one user or certificate, and by TCP of one source address, in the long run; twice as many at once",
    ),
    requests_per_caller: count(1, 100_000).describe("Its requests and streams under way at a time"),
    creates_per_caller: count(1, 10_000).describe("Its creates and starts under way at a time"),
    captures_per_caller: count(1, 1000).describe(
      "Its captures of traffic at a time, each with up to 4 MiB of packets that wait",
    ),
    requests_per_s: count(1, 1_000_000).describe(
      "Its requests a second in the long run; twice as many at once",
    ),
    request_s: seconds(3600).min(1).describe("Longest a request may take to arrive"),
    stall_s: seconds(3600).min(1).describe("Longest a caller may leave an answer unread"),
    idle_s: seconds(86_400).min(1).describe("Longest a connection may stay without a request"),
  }),
  network: z.strictObject({
    name: z.string().describe("Name of the network pods join by default"),
    bridge: z.string().describe("Its bridge, made or adopted"),
    cidr: z
      .string()
      .describe("Its addresses; with host bits set, that address is the gateway, else the first"),
    cidr6: z.string().describe("Its IPv6 addresses beside those of cidr; none unless given"),
    mtu: z.int().min(576).max(65521).describe("MTU of the bridge and its ports"),
    ranges: z
      .array(z.string())
      .describe("Automatic addresses come from these alone; from all of the network when empty"),
    reserved: z
      .array(z.string())
      .describe("Never handed out: addresses, networks or FIRST-LAST ranges"),
    dns: z
      .array(z.string())
      .describe(
        "Nameservers that the resolver asks, or guests without one; the host's own when empty",
      ),
    dns_search: z.array(z.string()).describe("Search domains for guests"),
    masquerade: z.boolean().describe("What leaves the host gets the host's address (NAT)"),
    isolated: z.boolean().describe("Pods reach the gateway but not each other"),
    cloud_metadata: z
      .boolean()
      .describe("Pods reach 169.254.0.0/16 and the clouds' metadata outside of this host"),
    accept_translated: z
      .boolean()
      .describe("Connections translated (DNAT) on this host reach pods too, not containers alone"),
    admit: z
      .array(z.string())
      .max(64)
      .describe(
        "From these sources all of the network is reached: pods of other nodes, routed here",
      ),
    vlan_filtering: z
      .boolean()
      .describe("The bridge filters VLANs, so that interfaces can be members of one"),
  }),
  dns: z.strictObject({
    resolver: z
      .boolean()
      .describe("Pods ask their gateway for names, on networks that do not say otherwise"),
    domain: z.string().describe("What names of pods end with"),
    upstreams: z
      .array(z.string())
      .describe("Asked for all other names by networks without dns; the host's own when empty"),
    stale_s: z
      .int()
      .min(0)
      .max(259_200)
      .describe("How old an answer may be that is given when no server answers; 0 for none"),
  }),
  overlay: overlaySchema,
  cni: z.strictObject({
    enabled: z.boolean().describe("Container runtimes may ask for networks, by CNI"),
    socket: path.describe("Where podnet-cni asks; cni.sock in run_dir unless given"),
    pending_dir: path.describe(
      "Where podnet-cni writes down what came while podnetd was away; cni-pending in state_dir unless given",
    ),
    service_cidr: z
      .string()
      .describe("Reached by the gateway of a container's network, also where a macvlan0 leads"),
    mtu: z
      .int()
      .min(576)
      .max(65521)
      .describe("MTU of containers whose configuration names none; their network's unless given"),
    conf_dir: path.describe("Lists of CNI plugins, for pods that take their network from one"),
    bin_dirs: z.array(path).min(1).describe("Where those plugins lie; the first that has one wins"),
    vendor_dir: path.describe("Looked into before: DIR/PLUGIN/bin"),
    plugin_timeout_s: z.int().min(1).max(600).describe("How long one such plugin may take"),
  }),
  metrics: z.strictObject({
    pods: z.boolean().describe("/metrics shows what each pod uses, by its name"),
  }),
  firewall: z
    .enum(["iptables", "nftables"])
    .describe("What writes the rules: the ancestors' chains, or a table of podnet's own"),
  iptables_chain: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,28}$/, "must be 1 to 28 characters from A-Z a-z 0-9 _ -")
    .describe("Chain of the per-pod rules"),
  iptables_variant: z
    .enum(["auto", "nft", "legacy"])
    .describe("Which iptables; auto takes the one that holds rules"),
  publish_ports: z
    .string()
    .describe(
      "Host ports podnet chooses from, FIRST-LAST; the kernel's own range for outgoing connections when not given",
    ),
  disable_iptables: z.boolean().describe("Make no firewall rule at all: no NAT, no filtering"),
  qemu: z.strictObject({
    arch: z
      .enum(architectures)
      .describe("What machines are of; under software emulation unless it is the host's own"),
    path: path.describe("The QEMU program of that architecture; found in PATH when not given"),
    kvm: z.enum(["auto", "on", "off"]).describe("Hardware virtualisation"),
    confine: z
      .enum(["on", "off"])
      .describe("Shut each QEMU in: a user, namespaces and a root of its own, and limits"),
    uids: z.string().describe("Users machines run as, each as another one: FIRST-LAST"),
    memory_overhead_mib: count(32, 1024 * 1024).describe(
      "Memory QEMU may use beside its guest's, MiB",
    ),
    pids: count(8, 100_000).describe("Threads QEMU may have beside one for each vCPU"),
    cgroup: z
      .string()
      .regex(
        /^[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:\/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$/,
        "must be a relative path",
      )
      .describe("Where control groups of machines are made, below each hierarchy"),
  }),
  image: z.strictObject({
    kernel: path.describe("Kernel of pods that bring none"),
    initrd: path.describe("Initramfs of pods that bring none"),
  }),
  drift_s: seconds(3600).describe(
    "Seconds between looks for what others changed of the host, which is then healed; 0 never looks",
  ),
  factory: z
    .enum(["cold", "template"])
    .describe("How pods of the default image start: booted, or cloned from a template"),
  quarantine_s: seconds(86_400).describe("Seconds a freed address rests before it is given again"),
  timeouts: z.strictObject({
    create_s: seconds(3600).min(1).describe("Longest a create may take"),
    ready_s: seconds(3600).min(1).describe("Longest a guest may take to say READY"),
    stop_s: seconds(600).describe("Longest a guest may take to power off before it is ended"),
    power_button_s: seconds(600).describe("The same of a guest without an agent"),
  }),
});

/** How a value is written in an environment variable or flag. */
export type LeafKind = "text" | "integer" | "boolean" | "list" | "choice";

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

/** None of its keys required, nor those of its tables. */
const partly = (object: z.ZodObject): z.ZodObject =>
  z.strictObject(
    Object.fromEntries(
      Object.entries(object.shape as Record<string, z.ZodType>).map(([name, schema]) => [
        name,
        (schema instanceof z.ZodObject ? partly(schema) : schema).optional(),
      ]),
    ),
  );

/** What a file may hold: every key of the schema, none of them required. */
export const fileSchema = partly(configSchema);
