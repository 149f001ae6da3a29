import type * as z from "zod";
import {
  type Cidr,
  familyOf,
  type Ip,
  type Ipv4,
  type Ipv6,
  parseCidr,
  parseIp,
} from "../../core/address.ts";
import { type NetworkName, parseNetworkName, printable } from "../../core/names.ts";
import { networkPrefix, parsePrefix, type Prefix } from "../../overlay/flannel/prefix.ts";
import { usualAnnotationPrefix } from "../../overlay/kube/annotations.ts";
import type { Reader } from "./reader.ts";
import type { overlaySchema } from "./overlay-schema.ts";

type Overlay = z.infer<typeof overlaySchema>;
type KubernetesOptional = "kubeconfig" | "node_name";
type EtcdOptional = "ca" | "cert" | "key" | "username" | "password_file";
type Optional = "can_reach" | "public_ip" | "public_ip6";

/** The settings as the schema types them; what may be left out without a default is optional. */
export type OverlayValues = Omit<Overlay, "etcd" | "kubernetes" | Optional> &
  Partial<Pick<Overlay, Optional>> & {
    readonly etcd: Omit<Overlay["etcd"], EtcdOptional> &
      Partial<Pick<Overlay["etcd"], EtcdOptional>>;
    readonly kubernetes: Omit<Overlay["kubernetes"], KubernetesOptional> &
      Partial<Pick<Overlay["kubernetes"], KubernetesOptional>>;
  };

/** Leases in etcd, and how it is reached; paths of files that are read when podnetd starts. */
export interface EtcdConfig {
  readonly kind: "etcd";
  readonly endpoints: readonly string[];
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly username: string | undefined;
  readonly passwordFile: string | undefined;
  readonly ttlSeconds: number;
  readonly marginSeconds: number;
}

/** Nodes of Kubernetes, and how its API server is reached. */
export interface KubernetesConfig {
  readonly kind: "kubernetes";
  /** Undefined: podnetd runs in a pod, with a token of its own. */
  readonly kubeconfig: string | undefined;
  /** The name of this host's Node; undefined: as its environment or its own name says. */
  readonly node: string | undefined;
  /** The file with the overlay's configuration. */
  readonly netConf: string;
  readonly annotationPrefix: string;
  readonly writesCondition: boolean;
}

/** Who gives the hosts their subnets. */
export type ManagerConfig = EtcdConfig | KubernetesConfig;

/** Which link and addresses of this host the others send to. */
export interface InterfaceChoice {
  readonly interfaces: readonly string[];
  readonly patterns: readonly RegExp[];
  readonly canReach: Ip | undefined;
  readonly publicIp: Ipv4 | undefined;
  readonly publicIp6: Ipv6 | undefined;
}

/** How this host joins others. */
export interface OverlayConfig {
  readonly manager: ManagerConfig;
  readonly prefix: Prefix;
  /** Empty: the single overlay at `prefix`, unless others are discovered. */
  readonly names: readonly NetworkName[];
  readonly discover: boolean;
  readonly choice: InterfaceChoice;
  readonly subnetFile: string;
  readonly subnetDir: string;
  /** Undefined leaves addresses of what leaves the overlay alone. */
  readonly masquerade:
    | { readonly randomFully: boolean; readonly except: readonly Cidr[] }
    | undefined;
  readonly forward: boolean;
  /** The overlay's network may overlap with what the host has. */
  readonly allowOverlap: boolean;
  /** Writers to etcd may name commands that run here. */
  readonly extension: boolean;
  readonly txChecksum: "auto" | "on" | "off";
  /** 0 never probes. */
  readonly probeMs: number;
}

/** Values for absent settings. */
export const overlayDefaults: Readonly<Record<string, unknown>> = {
  "overlay.subnet_manager": "etcd",
  "overlay.etcd.endpoints": [],
  "overlay.etcd.prefix": "/coreos.com/network",
  "overlay.kubernetes.net_conf": "/etc/kube-flannel/net-conf.json",
  "overlay.kubernetes.annotation_prefix": usualAnnotationPrefix,
  "overlay.kubernetes.network_condition": true,
  "overlay.names": [],
  "overlay.discover": false,
  "overlay.interface": [],
  "overlay.interface_regex": [],
  "overlay.lease_ttl_s": 86_400,
  "overlay.renew_margin_m": 60,
  "overlay.subnet_file": "/run/flannel/subnet.env",
  "overlay.subnet_dir": "/run/flannel/networks",
  "overlay.masquerade": false,
  "overlay.random_fully": true,
  "overlay.no_masquerade": [],
  "overlay.forward_rules": true,
  "overlay.allow_overlap": false,
  "overlay.extension": false,
  "overlay.tx_checksum": "auto",
  "overlay.probe_s": 30,
};

/**
 * The overlay's settings; undefined when neither an etcd nor Kubernetes is named: then the others
 * count for nothing.
 */
export function overlayConfig(values: OverlayValues, read: Reader): OverlayConfig | undefined {
  const { etcd } = values;
  const prefix = read("overlay.etcd.prefix", etcd.prefix, (text) => parsePrefix(text));
  const names = read("overlay.names", values.names, (list) =>
    list.map((name) => {
      networkPrefix(prefix, name);
      return parseNetworkName(name);
    }),
  );
  const choice: InterfaceChoice = {
    interfaces: values.interface,
    patterns: read("overlay.interface_regex", values.interface_regex, (list) =>
      list.map((text) => new RegExp(text, "u")),
    ),
    canReach: given(values.can_reach, (text) =>
      read("overlay.can_reach", text, (ip) => parseIp(ip)),
    ),
    publicIp: given(values.public_ip, (text) =>
      read("overlay.public_ip", text, (ip) => inFamily(ip, 4) as Ipv4),
    ),
    publicIp6: given(values.public_ip6, (text) =>
      read("overlay.public_ip6", text, (ip) => inFamily(ip, 6) as Ipv6),
    ),
  };
  const except = read("overlay.no_masquerade", values.no_masquerade, (list) =>
    list.map((text) => parseCidr(text)),
  );
  const manager = managerConfig(values, read);
  if (manager === undefined) return undefined;
  return {
    manager,
    prefix,
    names: [...new Set(names)],
    discover: values.discover,
    choice,
    subnetFile: values.subnet_file,
    subnetDir: values.subnet_dir,
    masquerade: values.masquerade ? { randomFully: values.random_fully, except } : undefined,
    forward: values.forward_rules,
    allowOverlap: values.allow_overlap,
    extension: values.extension,
    txChecksum: values.tx_checksum,
    probeMs: values.probe_s * 1000,
  };
}

/** Undefined: this host joins no others. */
const managerConfig = (values: OverlayValues, read: Reader): ManagerConfig | undefined =>
  values.subnet_manager === "kubernetes"
    ? kubernetesConfig(values, read)
    : etcdConfig(values, read);

function etcdConfig(values: OverlayValues, read: Reader): EtcdConfig | undefined {
  const { etcd } = values;
  // One is of no use without the other.
  const bothOrNone = (first: keyof typeof etcd, second: keyof typeof etcd): void => {
    if ((etcd[first] === undefined) === (etcd[second] === undefined)) return;
    const present = etcd[first] === undefined ? second : first;
    read(`overlay.etcd.${present}`, undefined, () => {
      throw new TypeError(`overlay.etcd.${first} and overlay.etcd.${second} are given together`);
    });
  };
  read("overlay.etcd.endpoints", etcd.endpoints, (list) => list.forEach(checkEndpoint));
  bothOrNone("cert", "key");
  bothOrNone("username", "password_file");
  if (etcd.endpoints.length === 0) return undefined;
  return {
    kind: "etcd",
    endpoints: etcd.endpoints,
    ca: etcd.ca,
    cert: etcd.cert,
    key: etcd.key,
    username: etcd.username,
    passwordFile: etcd.password_file,
    ttlSeconds: values.lease_ttl_s,
    marginSeconds: values.renew_margin_m * 60,
  };
}

function kubernetesConfig(values: OverlayValues, read: Reader): KubernetesConfig {
  const { kubernetes, etcd, names, discover } = values;
  const refuse = (key: string, because: string): void =>
    read(key, undefined, () => {
      throw new TypeError(`${because} with overlay.subnet_manager = "kubernetes"`);
    });
  if (etcd.endpoints.length > 0)
    refuse("overlay.etcd.endpoints", "etcd is not used: leave its endpoints out");
  if (names.length > 0) refuse("overlay.names", "there is one overlay, without a name,");
  if (discover) refuse("overlay.discover", "there is one overlay, and nothing to discover,");
  return {
    kind: "kubernetes",
    kubeconfig: kubernetes.kubeconfig,
    node: given(kubernetes.node_name, (name) =>
      read("overlay.kubernetes.node_name", name, nodeName),
    ),
    netConf: kubernetes.net_conf,
    annotationPrefix: read(
      "overlay.kubernetes.annotation_prefix",
      kubernetes.annotation_prefix,
      annotationPrefix,
    ),
    writesCondition: kubernetes.network_condition,
  };
}

/** Names of objects and prefixes of annotations are names of DNS, in lower case. */
const dnsName = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/;

function nodeName(name: string): string {
  if (name.length <= 253 && dnsName.test(name)) return name;
  throw new TypeError(`"${printable(name)}" is no name of a Node: see kubectl get nodes`);
}

/** As flanneld's: it may end in a slash. */
function annotationPrefix(text: string): string {
  const prefix = text.replace(/\/$/, "");
  if (prefix.length <= 200 && dnsName.test(prefix)) return prefix;
  throw new TypeError(`"${printable(text)}" is no prefix such as ${usualAnnotationPrefix}`);
}

const given = <In, Out>(value: In | undefined, parse: (value: In) => Out): Out | undefined =>
  value === undefined ? undefined : parse(value);

function inFamily(text: string, family: 4 | 6): Ip {
  const ip = parseIp(text);
  if (familyOf(ip) === family) return ip;
  throw new TypeError(`${ip} is no address of IPv${family}`);
}

function checkEndpoint(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && /^https?:$/.test(url.protocol) && url.pathname === "/") return;
  throw new TypeError("write each as https://10.0.0.1:2379, or http:// without TLS");
}
