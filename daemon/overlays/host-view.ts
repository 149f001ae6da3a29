import type { Clock } from "../../core/clock.ts";
import type { NetworkName } from "../../core/names.ts";
import type { HostLeaseState } from "../../overlay/host-lease.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { Subnets } from "../../overlay/flannel/key.ts";
import type { Peers } from "../../overlay/peers.ts";
import type { Lease, Leases } from "../../overlay/registry.ts";
import type { GrantId } from "../../overlay/store.ts";
import type { Uplink } from "./kernel/choose-uplink.ts";
import type { LeaseEnd } from "./lease/lease-ends.ts";
import { cidrsOf, familiesOf } from "./kernel/make-desired.ts";
import type { Probe } from "./probes/prober.ts";
import { troubleText } from "./trouble-text.ts";
import type { OverlayPeerView, OverlayView } from "./view.ts";

/** The knowledge about an overlay on this host. */
export interface HostKnowledge {
  readonly name: string;
  /** The name of the subnet manager. */
  readonly manager: string;
  readonly network: NetworkName;
  readonly state: HostLeaseState;
  readonly phase: LeasePhase;
  /** The host's subnets when podnetd last knew them, if it knows nothing newer. */
  readonly stored: Subnets | undefined;
  readonly uplink: Uplink | undefined;
  /** Others can be notified of this host: its interface is known, and its backend can be used. */
  readonly placed: boolean;
  readonly mtu: number;
  readonly peers: Pick<Peers, "size" | "passedOver">;
  /** For how long the manager has not been heard, milliseconds; undefined while it is. */
  readonly staleMs: number | undefined;
  /** The number of peers known from another boot, while etcd has reported none in this one. */
  readonly recalled: number;
  /** Problems in addition to the lease's own. */
  readonly troubles: readonly string[];
  readonly tunnel: OverlayView["tunnel"];
  readonly clock: Clock;
}

/** When this host's lease ends unless it is renewed; undefined when it does not. */
function ownEnd({ time }: HostLeaseState, clock: Clock): LeaseEnd | undefined {
  if (time === undefined) return undefined;
  const { renewedAt, endsAt } = time;
  const at = Math.round(clock.now() - (clock.monotonic() - renewedAt));
  return { renewedAt: at, endsAt: at + (endsAt - renewedAt) };
}

/** The view of an overlay on this host, for the API. */
export function overlayView(known: HostKnowledge): OverlayView {
  const { name, network, state, phase, uplink, mtu, peers, clock } = known;
  const { config } = state;
  const subnets = state.subnets ?? known.stored;
  const ends = ownEnd(state, clock)?.endsAt;
  const { unreadable, ...others } = peers.passedOver;
  return {
    name,
    phase,
    manager: known.manager,
    networks: config === undefined ? [] : spaces(config),
    subnets: subnets === undefined ? [] : cidrsOf(subnets),
    ...(state.own === undefined ? {} : { leaseKey: state.own.key }),
    backend: config?.backend.type ?? "",
    publicIps: [uplink?.publicIp, uplink?.publicIp6].filter((ip, i) => {
      const families = config === undefined ? [] : familiesOf(config);
      return ip !== undefined && families.includes(i === 0 ? 4 : 6);
    }) as OverlayView["publicIps"],
    mtu,
    ...(known.staleMs === undefined ? {} : { staleMs: known.staleMs }),
    ...(ends === undefined ? {} : { expiresAt: ends }),
    reserved: state.reserved,
    troubles: [
      ...state.troubles
        // A host without a local endpoint has no address yet; `known.troubles` gives the reason.
        .filter(({ kind }) => known.placed || kind !== "no-address")
        .map(troubleText),
      ...known.troubles,
    ],
    peers: peers.size + known.recalled,
    skippedKeys: unreadable + others["unknown-backend"] + others["other-backend"],
    network,
    ...(known.tunnel === undefined ? {} : { tunnel: known.tunnel }),
  };
}

const spaces = ({ v4, v6 }: NonNullable<HostLeaseState["config"]>): OverlayView["networks"] =>
  [v4, v6].flatMap((space) => (space === undefined ? [] : [space.network]));

/** Every host that has a lease, by subnet, this one among them. */
export function nodeViews(
  leases: Leases,
  {
    state,
    clock,
    probe,
    ends,
    hostOf,
  }: Pick<HostKnowledge, "state" | "clock"> & {
    /** The ends of other hosts' leases, as far as they are known. */
    readonly ends: ReadonlyMap<GrantId, LeaseEnd>;
    /** The result of the last probe of a host, by its key. */
    readonly probe: (key: string) => Probe | undefined;
    /** The name of a host, by its key, where the key says it. */
    readonly hostOf: (key: string) => string | undefined;
  },
): OverlayPeerView[] {
  return [...leases]
    .filter((entry): entry is Lease => entry.kind === "lease")
    .toSorted((a, b) => a.key.localeCompare(b.key, "en", { numeric: true }))
    .map(({ key, subnets, value, grant }): OverlayPeerView => {
      const self = key === state.own?.key;
      const probed = self ? undefined : probe(key);
      const host = hostOf(key);
      const end = self ? ownEnd(state, clock) : ends.get(grant);
      return {
        key,
        ...(host === undefined ? {} : { host }),
        subnets: cidrsOf(subnets),
        publicIps: [value.publicIp, value.publicIp6].filter((ip) => ip !== undefined),
        backend: value.backendType,
        ...(end === undefined ? {} : { expiresAt: end.endsAt, renewedAt: end.renewedAt }),
        reserved: grant === 0n,
        self,
        ...(probed === undefined ? {} : { reachable: probed.reachable }),
        ...(probed?.rttMs === undefined ? {} : { rttMs: probed.rttMs }),
      };
    });
}
