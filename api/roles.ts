import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { Health } from "./gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "./gen/grpc/reflection/v1/reflection_pb.ts";
import { CniService } from "./gen/podnet/v1/cni_service_pb.ts";
import { ImageService } from "./gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "./gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "./gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "./gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "./gen/podnet/v1/pod_service_pb.ts";
import { ServiceService } from "./gen/podnet/v1/service_service_pb.ts";
import { PolicyService } from "./gen/podnet/v1/policy_service_pb.ts";

/** What a caller may do; each role may do what those before it may. */
export const roles = ["viewer", "operator", "admin"] as const;

export type Role = (typeof roles)[number];

/** Whether a role suffices where `needed` is asked for. */
export const suffices = (role: Role, needed: Role): boolean =>
  roles.indexOf(role) >= roles.indexOf(needed);

/** A role for every method of a service: one that is left out does not compile. */
type RolesOf<S extends DescService> = Readonly<Record<keyof S["method"], Role>>;

// A plan reports the host's rules and paths but changes nothing; it is asked for by the call that
// would create. A console may show secrets that a guest printed; a verify runs two programs.
const pods: RolesOf<typeof PodService> = {
  create: "operator",
  createStream: "operator",
  get: "viewer",
  list: "viewer",
  start: "operator",
  delete: "operator",
  watch: "viewer",
  exec: "operator",
  startExec: "operator",
  // Arguments may hold secrets, as output may.
  listExecs: "operator",
  getExec: "operator",
  waitExec: "operator",
  signalExec: "operator",
  followExec: "operator",
  console: "operator",
  openConsole: "operator",
  logs: "operator",
  attachProcess: "operator",
  verify: "operator",
  stop: "operator",
  pause: "operator",
  resume: "operator",
  update: "operator",
  // A pod can be created with any labels, too.
  label: "operator",
  addInterface: "operator",
  updateInterface: "operator",
  removeInterface: "operator",
  // Of files that operators may name.
  addDisk: "operator",
  removeDisk: "operator",
  limit: "operator",
  publishPorts: "operator",
  unpublishPorts: "operator",
  // A foreign socket, anywhere on the host.
  attach: "admin",
  detach: "operator",
  stats: "viewer",
  capture: "operator",
  guard: "viewer",
  trace: "viewer",
  // Writes rules, and shows the traffic of a flow.
  traceLive: "operator",
};
const networks: RolesOf<typeof NetworkService> = {
  get: "viewer",
  list: "viewer",
  create: "admin",
  update: "admin",
  delete: "admin",
};
// What other hosts do with this one is its administrator's.
const overlays: RolesOf<typeof OverlayService> = {
  list: "viewer",
  listNodes: "viewer",
  diff: "viewer",
  leave: "admin",
  join: "admin",
  listReservations: "viewer",
  addReservation: "admin",
  removeReservation: "admin",
};
// Where the plugin goes runs as root.
const cni: RolesOf<typeof CniService> = {
  list: "viewer",
  guard: "viewer",
  trace: "viewer",
  traceLive: "operator",
  install: "admin",
  uninstall: "admin",
};
// Who may create pods may not open what an administrator has closed.
const policies: RolesOf<typeof PolicyService> = {
  get: "viewer",
  list: "viewer",
  apply: "admin",
  delete: "admin",
  explain: "viewer",
  tail: "viewer",
  learn: "admin",
};
// A service leads pods of a network to others of it, and opens nothing.
const services: RolesOf<typeof ServiceService> = {
  get: "viewer",
  list: "viewer",
  create: "operator",
  update: "operator",
  changeBackends: "operator",
  delete: "operator",
};
// What an operator removes, pods of others may be about to use: one that is used is refused.
const images: RolesOf<typeof ImageService> = {
  // From registries and paths that are not configured: admin.
  pull: "operator",
  import: "operator",
  list: "viewer",
  get: "viewer",
  tag: "operator",
  untag: "operator",
  remove: "operator",
  prune: "admin",
};
const node: RolesOf<typeof NodeService> = {
  info: "viewer",
  health: "viewer",
  diff: "viewer",
  down: "admin",
  listPools: "viewer",
  // The memory and the processors of the host are its administrator's.
  fillPools: "admin",
  drainPools: "admin",
  // A log of more lines fills the disk, one of fewer hides what others did.
  logLevel: "admin",
};
const health: RolesOf<typeof Health> = { check: "viewer", watch: "viewer" };
const reflection: RolesOf<typeof ServerReflection> = { serverReflectionInfo: "viewer" };

const byService: Readonly<Record<string, Readonly<Record<string, Role>>>> = {
  [PodService.typeName]: pods,
  [NetworkService.typeName]: networks,
  [OverlayService.typeName]: overlays,
  [CniService.typeName]: cni,
  [PolicyService.typeName]: policies,
  [ServiceService.typeName]: services,
  [ImageService.typeName]: images,
  [NodeService.typeName]: node,
  [Health.typeName]: health,
  [ServerReflection.typeName]: reflection,
};

/**
 * The least role that may call a method. One that is not in the table above is for administrators
 * alone.
 */
export const roleFor = (method: DescMethod): Role =>
  byService[method.parent.typeName]?.[method.localName] ?? "admin";
