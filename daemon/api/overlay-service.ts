import { hostname } from "node:os";
import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import {
  type SubnetPair,
  validateOverlayRef,
  validateReservation,
  validateSubnetPair,
} from "../../api/validate/overlay.ts";
import type { Cidr } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { dropsOf } from "../../network/overlay/udp/counters.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { Reservation } from "../../overlay/reservations.ts";
import type { OverlayControl, OverlayPeerView, OverlayView } from "../overlays/view.ts";
import { note, type ServiceParts } from "./context.ts";
import { time } from "./views.ts";

/** The overlay service: the networks over many hosts that this one is in. */
export function overlayService(
  parts: Pick<ServiceParts, "overlays" | "hostRecords" | "log">,
): ServiceImpl<typeof wire.OverlayService> {
  const { overlays, hostRecords } = parts;
  const nameOf = ({ self, key, host }: OverlayPeerView): string =>
    self ? hostname() : (host ?? hostRecords?.remote.hostOf(key) ?? "");
  const chosen = (asked: string) => choose(overlays, asked);
  return {
    list: () => ({
      overlays: (overlays?.list() ?? []).map(overlayView),
      troubles: [...(overlays?.troubles ?? [])],
    }),

    async listNodes({ overlay }) {
      const { control, name, view } = chosen(overlay);
      const found = await control.leasedNodes(name);
      const nodes = found.map((peer) => nodeView(peer, nameOf(peer)));
      return { nodes, subnetManager: view.manager, ...stale(view) };
    },

    async diff({ overlay }, { signal }) {
      const { control, name } = chosen(overlay);
      return { lines: [...(await control.diff(name, signal))] };
    },

    async leave({ overlay }, context) {
      const { control, name } = chosen(overlay);
      note(parts, context, `leave overlay ${name}`);
      await control.leave(name, context.signal);
      return {};
    },

    join({ overlay, takeOver }, context) {
      const { control, name } = chosen(overlay);
      note(parts, context, `join overlay ${name}${takeOver ? ", taking leases over" : ""}`);
      control.join(name, takeOver);
      return {};
    },

    async listReservations({ overlay }, { signal }) {
      const { control, name } = chosen(overlay);
      const found = await control.reservations(name, signal);
      return { reservations: found.map(reservationView) };
    },

    async addReservation(request, context) {
      const spec = validateReservation(request);
      const { control, name } = chosen(request.overlay);
      const { subnets } = spec;
      const of = subnets === undefined ? "" : ` ${subnetsOf(subnets).join(" ")}`;
      note(parts, context, `reserve${of} of overlay ${name} for ${spec.publicIps.join(" ")}`);
      const reservation = await control.reserve(name, spec, context.signal);
      return { reservation: reservationView(reservation) };
    },

    async removeReservation({ overlay, subnets }, context) {
      const asked = validateSubnetPair(subnets);
      const { control, name } = chosen(overlay);
      note(parts, context, `unreserve ${subnetsOf(asked).join(" ")} of overlay ${name}`);
      return { existed: await control.unreserve(name, asked, context.signal) };
    },
  };
}

interface Chosen {
  readonly control: OverlayControl;
  readonly name: string;
  readonly view: OverlayView;
}

/** The overlay that is named, or the only one. */
function choose(control: OverlayControl | undefined, asked: string): Chosen {
  const wanted = validateOverlayRef(asked);
  const all = control?.list() ?? [];
  const found = wanted === undefined ? all : all.filter(({ name }) => name === wanted);
  const [view] = found;
  if (control === undefined || view === undefined)
    throw new PodnetError(
      "OVERLAY_NOT_FOUND",
      wanted === undefined
        ? "This host is in no overlay"
        : `This host is in no overlay called "${wanted}"`,
      {
        field: "overlay",
        hint:
          control === undefined
            ? "Name etcd's endpoints in the configuration, or Kubernetes: overlay.etcd.endpoints, overlay.subnet_manager"
            : "See podnet overlay list",
      },
    );
  if (found.length > 1)
    throw new PodnetError("INVALID_ARGUMENT", "This host is in several overlays", {
      field: "overlay",
      hint: `Name one of ${all.map(({ name }) => name).join(", ")}`,
    });
  return { control, name: view.name, view };
}

const phases: Readonly<Record<LeasePhase, wire.OverlayPhase>> = {
  waiting: wire.OverlayPhase.WAITING,
  acquiring: wire.OverlayPhase.ACQUIRING,
  held: wire.OverlayPhase.HELD,
  lost: wire.OverlayPhase.LOST,
  draining: wire.OverlayPhase.DRAINING,
  left: wire.OverlayPhase.LEFT,
};

const stale = ({ staleMs }: OverlayView) =>
  staleMs === undefined ? {} : { staleMs: BigInt(Math.round(staleMs)) };

const ends = ({ expiresAt }: Pick<OverlayView, "expiresAt">) =>
  expiresAt === undefined ? {} : { expiresAt: time(expiresAt) };

const overlayView = (view: OverlayView): wire.Overlay =>
  create(wire.OverlaySchema, {
    name: view.name,
    phase: phases[view.phase],
    networks: [...view.networks],
    subnets: [...view.subnets],
    backend: view.backend,
    publicIps: [...view.publicIps],
    mtu: view.mtu,
    ...stale(view),
    ...ends(view),
    reserved: view.reserved,
    troubles: [...view.troubles],
    peers: view.peers,
    skippedKeys: view.skippedKeys,
    subnetManager: view.manager,
    network: view.network,
    ...(view.tunnel === undefined ? {} : { tunnel: tunnelView(view.tunnel) }),
  });

const tunnelView = ({ device, counters }: NonNullable<OverlayView["tunnel"]>) =>
  create(wire.OverlayTunnelSchema, {
    device,
    sentPackets: BigInt(counters.sentPackets),
    sentBytes: BigInt(counters.sentBytes),
    receivedPackets: BigInt(counters.receivedPackets),
    receivedBytes: BigInt(counters.receivedBytes),
    dropped: Object.fromEntries(
      Object.entries(dropsOf(counters))
        .filter(([, count]) => count > 0)
        .map(([reason, count]) => [reason, BigInt(count)]),
    ),
  });

const nodeView = (peer: OverlayPeerView, name: string): wire.OverlayNode =>
  create(wire.OverlayNodeSchema, {
    name,
    self: peer.self,
    subnets: [...peer.subnets],
    publicIps: [...peer.publicIps],
    backend: peer.backend,
    ...ends(peer),
    ...(peer.renewedAt === undefined ? {} : { renewedAt: time(peer.renewedAt) }),
    reserved: peer.reserved,
    ...(peer.reachable === undefined ? {} : { reachable: peer.reachable }),
    ...(peer.rttMs === undefined ? {} : { rttMs: peer.rttMs }),
    key: peer.key,
  });

const subnetsOf = ({ v4, v6 }: SubnetPair): Cidr[] =>
  [v4, v6].flatMap((subnet) => (subnet === undefined ? [] : [subnet]));

const reservationView = ({ subnets, publicIp, publicIp6 }: Reservation): wire.Reservation =>
  create(wire.ReservationSchema, {
    subnets: subnetsOf(subnets),
    publicIps: [publicIp, publicIp6].flatMap((ip) => (ip === undefined ? [] : [ip])),
  });
