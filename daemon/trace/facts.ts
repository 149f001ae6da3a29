import type { Ip } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import type { Decision, Flow } from "../../policy/decide.ts";
import type { DomainName } from "../../policy/domain.ts";
import type { Protocol } from "../../policy/model.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { Sender } from "./sender.ts";

/** The packet that is traced: the first of a connection that a pod or container opens. */
export interface Asked {
  readonly sender: Sender;
  /** Absent for a name that other servers answer. */
  readonly ip?: Ip;
  /** As it was asked for; absent for an address. */
  readonly name?: DomainName;
  readonly protocol: Protocol;
  /** Absent for ICMP. */
  readonly port?: number;
}

/** Who has an address of a network. */
export interface Peer {
  /** `pod web`, or a container. */
  readonly text: string;
  readonly owner: FragmentKey;
  /** Its port exchanges nothing with other isolated ports. */
  readonly isolated: boolean;
  /** Why it takes no packets now; absent while it runs. */
  readonly absence?: string;
}

/** A published port, and where it leads. */
export interface Published {
  readonly text: string;
  readonly podIp: Ip;
  readonly podPort: number;
}

/** A service that has an address, as packets of its network meet it. */
export interface ServedAddress {
  readonly name: string;
  /** Each client stays with a backend. */
  readonly sticky: boolean;
  readonly ports: readonly ServedPort[];
  /** Why it is not as its user may expect, a sentence each. */
  readonly notices: readonly string[];
}

interface ServedPort {
  readonly protocol: Protocol;
  readonly port: number;
  /** Backends that get new connections, in the family of the address. */
  readonly backends: readonly ServedBackend[];
}

export interface ServedBackend {
  readonly text: string;
  readonly ip: Ip;
  readonly port: number;
  readonly weight: number;
}

/** The host that has an address of an overlay. */
export interface RemoteHost {
  readonly overlay: string;
  readonly backend: string;
  readonly publicIp: string;
  /** The pod that it reports with the address; absent without such a report. */
  readonly pod?: string;
  /** It did not answer the last probe. */
  readonly silent: boolean;
}

/** The host's route to an address, as the kernel answers. */
export interface HostRoute {
  /** The address is the host's own. */
  readonly local: boolean;
  /** Name of the link that packets leave by. */
  readonly link: string;
  readonly gateway?: Ip;
}

/** The facts that decide about a packet's path: podnet's own, and the kernel's. */
export interface TraceFacts {
  readonly networks: readonly NetworkDefinition[];
  /** False with `disable_iptables`. */
  readonly firewall: boolean;
  /** Why parts of the guard are not in force, a line each. */
  readonly guardLacking: readonly string[];
  /** Undefined where the host has no route. */
  readonly hostRoute: HostRoute | undefined;
  /** Whether frames between ports of the sender's bridge pass the host's rules. */
  readonly bridgedPass: boolean;
  readonly peerAt: (network: NetworkName, ip: Ip) => Peer | undefined;
  readonly publishedAt: (protocol: Protocol, ip: Ip, port: number) => Published | undefined;
  /** Undefined where no policy applies. */
  readonly decide: (
    owner: FragmentKey,
    direction: "egress" | "ingress",
    flow: Flow,
  ) => Decision | undefined;
  /** The service of a network that has an address. */
  readonly serviceAt: (network: NetworkName, ip: Ip) => ServedAddress | undefined;
  readonly elsewhere: (ip: Ip) => RemoteHost | undefined;
}

/** One step of the way. The first that denies is the last. */
export interface Step {
  /**
   * `route`, `guard`, `bridge`, `host`, `service`, `backend`, `policy`, `relay`, `network`, `nat`,
   * `overlay`, `end`.
   */
  readonly step: string;
  /** `unknown`: what comes here is not podnet's to decide. */
  readonly verdict: "pass" | "deny" | "unknown";
  /** What decided; empty where nothing could have denied it. */
  readonly rule: string;
  readonly text: string;
}
