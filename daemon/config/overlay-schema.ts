import { z } from "zod";

const path = z.string().startsWith("/", "must be an absolute path");
const texts = z.array(z.string());

/** The keys of `[overlay]`: how this host joins others. */
export const overlaySchema = z.strictObject({
  etcd: z.strictObject({
    endpoints: texts.describe(
      "Where the hosts' etcd answers, http:// or https:// each; no overlay when empty",
    ),
    prefix: z.string().describe("Where the overlay's keys are in etcd; flannel's own unless given"),
    ca: path.describe("Authority that has signed etcd's certificates, PEM"),
    cert: path.describe("The certificate shown to etcd, PEM"),
    key: path.describe("Its private key, PEM"),
    username: z.string().min(1).describe("User of etcd, where it asks for one"),
    password_file: path.describe("A file with that user's password, on one line"),
  }),
  names: texts.describe(
    "Several overlays, each configured in etcd below PREFIX/NAME; the one at PREFIX when empty",
  ),
  discover: z
    .boolean()
    .describe("Join every overlay that is configured below PREFIX/NAME, as they come and go"),
  interface: texts.describe(
    "Links by which this host reaches the others, by name or address; the first that is there",
  ),
  interface_regex: texts.describe(
    "The same by regular expressions, of addresses and then of names",
  ),
  can_reach: z
    .string()
    .describe("The link by which packets go to this address, where none is named"),
  public_ip: z
    .string()
    .describe("The IPv4 address that others send to; the link's own unless given"),
  public_ip6: z
    .string()
    .describe("The IPv6 address that others send to; the link's own unless given"),
  lease_ttl_s: z
    .int()
    .min(10)
    .max(31_536_000)
    .describe("Seconds that this host's lease lasts when it is not renewed"),
  renew_margin_m: z
    .int()
    .min(1)
    .max(1439)
    .describe("Minutes before its end that the lease is renewed; half-way when it is shorter"),
  subnet_file: path.describe("What programs on the host are told of the overlay, as flannel does"),
  subnet_dir: path.describe("The same of several overlays, NAME.env each"),
  masquerade: z
    .boolean()
    .describe("What leaves the overlay gets the host's address, and nothing inside of it does"),
  random_fully: z.boolean().describe("Source ports of what is masqueraded are drawn at random"),
  no_masquerade: texts.describe("Networks beside the overlay that see pods' own addresses"),
  forward_rules: z
    .boolean()
    .describe("Accept what is forwarded from and to the overlay where other rules drop it"),
  allow_overlap: z
    .boolean()
    .describe("Take an overlay's network though it overlaps with addresses or routes of this host"),
  extension: z
    .boolean()
    .describe("Let commands that the overlay's configuration in etcd names run here as podnetd"),
  tx_checksum: z
    .enum(["auto", "on", "off"])
    .describe("Leave checksums of what enters the tunnel to the network card; auto tries it out"),
  probe_s: z
    .int()
    .min(0)
    .max(3600)
    .describe("Seconds between probes of the other hosts; 0 never probes"),
});
