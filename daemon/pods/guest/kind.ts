import type { InterfaceSpec, PodSpec } from "../../../api/pod-spec.ts";
import type { InterfaceChange } from "../../../api/validate/interface-change.ts";
import type { IpPrefix } from "../../../core/address.ts";
import type { GuestIdentity, OpenGuestOptions } from "../../../guest-init/channel/guest.ts";
import type {
  GuestConfig,
  GuestDns,
  ObservedGuest,
} from "../../../guest-init/protocol/configure.ts";
import type { PortLease } from "../../dhcp/lease.ts";
import type { AnsweringNetwork } from "../interfaces/plan-answers.ts";
import type { NicInterface, InterfacePlan } from "../store/pod-plan.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/**
 * A kind of guest: what can be configured in it, how, and what cannot. Each kind is one module of
 * this folder. Other code asks a kind what it can do, and never which one it is.
 */
export interface GuestKind {
  /** The kind's name in the API. */
  readonly name: "podnet" | "hyperstart" | "none";
  /** An agent in the guest is sent its network, and runs programs. Other guests ask for theirs. */
  readonly hasAgent: boolean;
  /** The guest takes IPv6 addresses, routes and name servers. */
  readonly takesIpv6: boolean;
  /** The guest reads its network at its start: a machine that podnet starts waits for its NICs. */
  readonly needsNicsFirst: boolean;
  /** The power button asks it to power off, not an agent. */
  readonly hasPowerButton: boolean;
  /** A running guest follows a change of its name servers. */
  readonly followsServers: boolean;
  /** The guest may make its link-local addresses in another way than of its MAC. */
  readonly choosesLinkLocal: boolean;
  /** The guest reports its name servers. */
  readonly showsServers: boolean;
  /** How podnetd speaks to the agent. */
  readonly channel: Pick<OpenGuestOptions, "extension">;
  readonly steps: GuestSteps;
  readonly text: GuestText;

  /** Throws `UNSUPPORTED` with the field, before anything is decided. */
  refuse(spec: PodSpec): void;
  /**
   * Throws `UNSUPPORTED` for problems that only the decided addresses, gateways and routes show.
   */
  refuseDecided(
    spec: PodSpec,
    guest: GuestConfig,
    interfaces: readonly InterfacePlan[],
    networks: readonly AnsweringNetwork[],
  ): void;
  /** Throws `UNSUPPORTED` with the field. */
  refuseChange(change: InterfaceChange, machine: { readonly isOwn: boolean }): void;
  /**
   * The snapshot as far as the guest can use it. Throws `UNSUPPORTED` where one of the interfaces
   * would get no address.
   */
  world(
    snapshot: Snapshot,
    interfaces: readonly InterfaceSpec[],
    fieldOf: (i: number) => string,
  ): Snapshot;
  /** The lease that podnetd answers on a port; undefined where podnetd does not answer. */
  lease(
    guest: GuestConfig,
    each: NicInterface,
    networks: readonly AnsweringNetwork[],
  ): PortLease | undefined;
  /** The name servers of the guest, chosen from those offered. */
  dns(offered: GuestDns): GuestDns;
  /** The files of a seed disk (cloud-init's NoCloud) that concern the network, by name. */
  seedFiles(
    guest: GuestConfig,
    interfaces: readonly InterfacePlan[],
  ): Readonly<Record<string, string>>;
  /** Whether an interface of a running pod has its addresses, by the guest's observed addresses. */
  isConfigured(addresses: readonly IpPrefix[], observed: readonly string[]): boolean;
}

/** The kind's part of bringing a pod up, in the order in which it comes. */
interface GuestSteps {
  /** Once the machine has started. */
  readonly boot: readonly { readonly kind: "guest.ready" }[];
  /** Before the guest is configured, where the pod has shares. */
  readonly shares: readonly { readonly kind: "guest.mount" }[];
  /** Before the guest is configured, where the pod has files. */
  readonly files: readonly { readonly kind: "guest.write" }[];
  /** While NICs are plugged. */
  readonly configure: readonly { readonly kind: "guest.configure" }[];
  /** After a NIC is plugged. */
  plugged(
    nic: Pick<NicInterface, "position" | "network" | "addresses">,
  ): readonly { readonly kind: "guest.answer"; readonly position: number }[];
  /** At the end. */
  readonly verify: readonly { readonly kind: "guest.verify" }[];
}

/** The texts about a kind of guest for people. */
interface GuestText {
  /** The title of the agent's messages. */
  readonly configureTitle: string;
  /** The agent's messages; a guest that is not `fresh` skips what it has already. */
  configureLines(guest: GuestConfig, fresh: boolean): string[];
  /** What cannot be done with the guest, by its identity and its reports. */
  cannot(identity?: GuestIdentity, observed?: ObservedGuest): readonly string[];
}
