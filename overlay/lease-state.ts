import type { Ip } from "../core/address.ts";
import type { PodnetError } from "../core/errors.ts";
import type { Host } from "./claim.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import type { Subnets } from "./flannel/key.ts";
import type { Prefix } from "./flannel/prefix.ts";
import type { OwnerId } from "./owner.ts";
import type { Committed, GrantId, LeaseTransaction, Revision } from "./store.ts";

/** The settings of a host's lease: its duration, and its treatment when it no longer fits. */
export interface LeaseSettings {
  readonly prefix: Prefix;
  /** Seconds of an etcd lease; flannel's are 86,400. */
  readonly ttlSeconds: number;
  /** How long before its end it is renewed, seconds. */
  readonly marginSeconds: number;
  /**
   * With subnets that a new configuration would not hand out: drain them and take others, or keep
   * them.
   */
  readonly misfit: "drain" | "keep";
}

/**
 * The subnets that this host has, as far as it is concerned: they stay its own until it gives them
 * up on purpose.
 */
export interface Own {
  readonly subnets: Subnets;
  readonly key: string;
  /** 0n: a reservation, which does not end. */
  readonly grant: GrantId;
  readonly grantedAt: number;
  /** The value that this host last wrote into the key. */
  readonly text: string;
  /**
   * The revision of the key that was asked to be deleted: as long as it is there, that may be done
   * however late.
   */
  readonly parting?: Revision;
  /**
   * The key was lost and made again. The new key does not prove that no other host has taken these
   * subnets by another key since.
   */
  readonly regained?: boolean;
}

/** The reasons why a host's lease is not as planned. */
export type Trouble =
  /** `file`: where it is looked for, if not in etcd. */
  | { readonly kind: "config-missing"; readonly file?: string }
  | { readonly kind: "config-invalid"; readonly error: PodnetError }
  | { readonly kind: "exhausted" }
  /** The key is gone: it is being registered again. */
  | { readonly kind: "lost"; readonly subnets: Subnets }
  /** Another host has the key of this one's subnets. */
  | { readonly kind: "taken"; readonly subnets: Subnets; readonly holder: string }
  | { readonly kind: "shared"; readonly ip: Ip; readonly holder: string }
  | { readonly kind: "no-address"; readonly family: 4 | 6 }
  /** The configuration has changed and no longer contains these subnets. */
  | { readonly kind: "misfit"; readonly subnets: Subnets }
  /** Kubernetes has no Node of this host. */
  | { readonly kind: "node-missing"; readonly node: string }
  /** Kubernetes has given this host's Node no podCIDR, or one that is of no use to the overlay. */
  | { readonly kind: "no-pod-cidr"; readonly node: string; readonly reason?: string }
  /** An annotation of this host's Node that is to say how it is reached, and is no address. */
  | {
      readonly kind: "unread-address";
      readonly node: string;
      readonly name: string;
      readonly text: string;
    }
  /** Nodes that want to take part and are given no routes: some of them, with the reasons. */
  | {
      readonly kind: "nodes-refused";
      readonly count: number;
      readonly some: readonly (readonly [node: string, reason: string])[];
    }
  /** A call of the store has failed; it is tried again. */
  | { readonly kind: "failing"; readonly error: unknown };

/** Since when, milliseconds of the events' time. */
export type Since<T> = T & { readonly since: number };

/** A call of the store that has not been answered. One at a time. */
export type Request =
  | { readonly kind: "config"; readonly id: number }
  | { readonly kind: "grant"; readonly id: number; readonly grant: GrantId; readonly at: number }
  | { readonly kind: "commit"; readonly id: number; readonly transaction: LeaseTransaction }
  /**
   * Ends an etcd lease, so that no transaction that is still on its way can put anything with it.
   */
  | { readonly kind: "cancel"; readonly id: number; readonly grant: GrantId };

/** An etcd lease without any key yet. */
export interface Spare {
  readonly grant: GrantId;
  readonly at: number;
}

export interface LeaseState {
  readonly settings: LeaseSettings;
  readonly host: Host;
  /** The subnets to take again if they are free. */
  readonly previous: Subnets | undefined;
  readonly config: OverlayConfig | undefined;
  readonly configRevision: Revision;
  /** Whether the leases were listed once: before that, no subnet is known to be free. */
  readonly listed: boolean;
  /** Since when the store has not been followed. */
  readonly staleSince: number | undefined;
  readonly own: Own | undefined;
  /**
   * The subnets requested in a transaction with an unknown outcome: no others are requested until
   * it is known.
   */
  readonly candidate: Subnets | undefined;
  /**
   * Subnets just acquired. They become this host's own once all revisions up to `until` are known:
   * another host may have taken them by another key at that moment.
   */
  readonly probation: { readonly own: Own; readonly until: Revision } | undefined;
  readonly intended: "join" | "leave";
  /** Hosts that are gone: their leases do not keep this host from their addresses. */
  readonly departed: ReadonlySet<OwnerId>;
  /**
   * Whether leases of any host that name this host's address are taken over, until this host has
   * its own.
   */
  readonly takesOver: boolean;
  readonly drain: "no" | "asked" | "done";
  readonly request: Request | undefined;
  readonly nextRequest: number;
  readonly spare: Spare | undefined;
  readonly failures: number;
  /** Races for subnets that others have won, since it last had any. */
  readonly losses: number;
  /** No request before then. */
  readonly notBefore: number;
  /** When a tick is wanted. */
  readonly wakeAt: number | undefined;
  readonly troubles: readonly Since<Trouble>[];
}

/**
 * The events of a host's lease; each carries the time in milliseconds and a random number from 0 to
 * below 1.
 */
export type LeaseEvent =
  | { readonly kind: "tick" }
  /** The configuration's key as it was read or followed; undefined: it is not there. */
  | {
      readonly kind: "config";
      readonly text: string | undefined;
      readonly revision: Revision;
      readonly request?: number;
      /** Why it cannot be so on this host, though it can be read. */
      readonly refusal?: PodnetError;
    }
  /** The leases have been followed further. */
  | { readonly kind: "leases" }
  | { readonly kind: "stale" }
  | { readonly kind: "current" }
  /** An etcd lease was granted, or ended. */
  | { readonly kind: "answered"; readonly request: number }
  | {
      readonly kind: "committed";
      readonly request: number;
      readonly committed: Committed;
    }
  /** A call has failed, with an unknown outcome. */
  | { readonly kind: "failed"; readonly request: number; readonly error: unknown }
  /** The host's address or its backend's data are others now. */
  | { readonly kind: "host"; readonly host: Host }
  | { readonly kind: "leave" }
  /**
   * Takes part again; `takeOver`: whatever other host has a lease that names this host's address.
   */
  | { readonly kind: "join"; readonly takeOver?: boolean }
  /** The hosts that are gone. */
  | { readonly kind: "departed"; readonly owners: ReadonlySet<OwnerId> }
  /** No pod is left in the subnets. */
  | { readonly kind: "drained" };

export type LeaseCommand =
  | Request
  /** Revokes an etcd lease that is no longer needed; no caller waits for it. */
  | { readonly kind: "revoke"; readonly grant: GrantId }
  /** Empty these subnets, and report it. */
  | { readonly kind: "drain"; readonly subnets: Subnets }
  /** They are to stay after all. */
  | { readonly kind: "undrain" };

export interface Moment {
  /** Milliseconds that never go backwards. */
  readonly at: number;
  readonly draw: number;
}

/** A host that has no lease yet. */
export const beginning = (
  settings: LeaseSettings,
  host: Host,
  previous: Subnets | undefined,
): LeaseState => ({
  settings,
  host,
  previous,
  config: undefined,
  configRevision: -1n,
  listed: false,
  staleSince: undefined,
  own: undefined,
  candidate: undefined,
  probation: undefined,
  intended: "join",
  departed: new Set(),
  takesOver: false,
  drain: "no",
  request: undefined,
  nextRequest: 1,
  spare: undefined,
  failures: 0,
  losses: 0,
  notBefore: 0,
  wakeAt: undefined,
  troubles: [],
});

/**
 * When a lease granted then is renewed: the margin before its end, or half-way when it is shorter
 * than that.
 */
export const renewalAt = (
  { ttlSeconds, marginSeconds }: LeaseSettings,
  grantedAt: number,
): number => grantedAt + Math.max(ttlSeconds - marginSeconds, ttlSeconds / 2) * 1000;
