import * as z from "zod";

const path = z.string().startsWith("/", "must be an absolute path");
const texts = z.array(z.string());

/** The keys of `[overlay]`: how this host joins others. */
export const overlaySchema = z.strictObject({
  subnet_manager: z
    .enum(["etcd", "kubernetes"])
    .describe("Who gives the hosts their subnets: leases in etcd, or Kubernetes' Nodes"),
  etcd: z.strictObject({
    endpoints: texts.describe("Endpoints of etcd, http:// or https:// each; no overlay when empty"),
    prefix: z.string().describe("Prefix of the overlay's keys in etcd; flannel's by default"),
    ca: path.describe("The authority that signed etcd's certificates, PEM"),
    cert: path.describe("Client certificate for etcd, PEM"),
    key: path.describe("Private key of the client certificate, PEM"),
    username: z.string().min(1).describe("User name for etcd"),
    password_file: path.describe("File with the password of etcd.username, on one line"),
  }),
  kubernetes: z.strictObject({
    kubeconfig: path.describe(
      "How Kubernetes' API server is reached; when not given, as a pod reaches it",
    ),
    node_name: z
      .string()
      .min(1)
      .describe("Name of this host's Node; NODE_NAME or the host's name when not given"),
    net_conf: path.describe("File with the overlay's configuration, in flannel's format"),
    annotation_prefix: z
      .string()
      .describe("Prefix of the annotations of Nodes; flannel's by default"),
    network_condition: z
      .boolean()
      .describe("Set the Node's condition NetworkUnavailable to False once the network works"),
  }),
  names: texts.describe(
    "Names of several overlays, each configured in etcd at PREFIX/NAME; the one at PREFIX when empty",
  ),
  discover: z
    .boolean()
    .describe("Join every overlay that is configured at PREFIX/NAME, as they come and go"),
  interface: texts.describe(
    "Links to the other hosts, by name or address; the first that exists is used",
  ),
  interface_regex: texts.describe(
    "Links to the other hosts, as regular expressions of addresses, then of names",
  ),
  can_reach: z
    .string()
    .describe(
      "An address: the link with the route to it leads to the other hosts, where no interface is named",
    ),
  public_ip: z
    .string()
    .describe("IPv4 address that other hosts send to; the link's own when not given"),
  public_ip6: z
    .string()
    .describe("IPv6 address that other hosts send to; the link's own when not given"),
  lease_ttl_s: z
    .int()
    .min(10)
    .max(31_536_000)
    .describe("Seconds that this host's lease lasts when it is not renewed"),
  renew_margin_m: z
    .int()
    .min(1)
    .max(1439)
    .describe(
      "Minutes before its end at which the lease is renewed; half-way when the lease is shorter",
    ),
  subnet_file: path.describe(
    "File with the overlay's subnet and MTU for other programs, in flannel's format",
  ),
  subnet_dir: path.describe("Directory of these files for several overlays, NAME.env each"),
  masquerade: z.boolean().describe("Packets that leave the overlay get the host's address (NAT)"),
  random_fully: z.boolean().describe("Draw the source ports of masqueraded connections at random"),
  no_masquerade: texts.describe("Networks outside of the overlay that see the addresses of pods"),
  forward_rules: z
    .boolean()
    .describe(
      "Accept forwarded packets from and to the overlay, where other rules would drop them",
    ),
  allow_overlap: z
    .boolean()
    .describe("Use an overlay's network even if it overlaps with addresses or routes of this host"),
  extension: z
    .boolean()
    .describe("Allow the backend extension: etcd's configuration names commands that podnetd runs"),
  tx_checksum: z
    .enum(["auto", "on", "off"])
    .describe(
      "Leave the checksums of tunnelled packets to the network card; auto tests whether that works",
    ),
  probe_s: z
    .int()
    .min(0)
    .max(3600)
    .describe("Seconds between probes of the other hosts; 0: no probes"),
});
