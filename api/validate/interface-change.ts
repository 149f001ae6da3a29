import { type Ip, type IpPrefix, parseIp } from "../../core/address.ts";
import { type IfName, type NetworkName, parseIfName } from "../../core/names.ts";
import { checkCount, invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/pod_service_pb.ts";
import type { Route } from "../gen/podnet/v1/pod_spec_pb.ts";
import type { InterfaceSpec, RouteSpec } from "../pod-spec.ts";
import { checkUnicast } from "./unicast.ts";
import { checkMtu, validateAddressList, validateInterface } from "./interfaces.ts";
import { maxRoutes, validateRoute } from "./routes.ts";

/** A route by an interface that is named alongside it. */
export type OwnRoute = Omit<RouteSpec, "interface">;

/** What is to become of an interface of a running pod. */
export type InterfaceChange = AddInterface | SetInterface | RemoveInterface;

export interface AddInterface {
  readonly kind: "add";
  readonly spec: InterfaceSpec;
  readonly routes: readonly OwnRoute[];
}

/** What is absent stays as it is. */
export interface SetInterface {
  readonly kind: "set";
  readonly name: IfName;
  readonly mtu?: number;
  readonly addresses?: readonly (Ip | IpPrefix)[];
  /** Null takes the default routes by this interface away. */
  readonly gateway?: Ip | null;
  /** Null leaves it to the kernel. */
  readonly metric?: number | null;
  readonly routes?: readonly OwnRoute[];
}

export interface RemoveInterface {
  readonly kind: "remove";
  readonly name: IfName;
}

/**
 * Throws `INVALID_ARGUMENT`, `ADDRESS_*`, `MAC_INVALID`, `MTU_OUT_OF_RANGE` with the field at
 * fault.
 */
export function validateAddInterface(
  request: wire.AddInterfaceRequest,
  network: NetworkName,
): AddInterface {
  const { interface: asked, routes } = request;
  if (asked === undefined)
    throw invalid("interface", "There is no interface to add", "Give one; {} is an automatic one");
  return {
    kind: "add",
    spec: validateInterface(asked, "interface", network),
    routes: ownRoutes(routes),
  };
}

export function validateUpdateInterface(request: wire.UpdateInterfaceRequest): SetInterface {
  const { guestName, mtu, addresses, gateway, metric, routes } = request;
  if (gateway !== undefined && gateway !== "")
    checkUnicast(parseIp(gateway, "gateway"), "gateway", { linkLocal: true });
  if (mtu !== undefined) checkMtu(mtu, 4, "mtu");
  return {
    kind: "set",
    name: parseIfName(guestName, "guest_name"),
    ...(mtu === undefined ? {} : { mtu }),
    ...(addresses === undefined
      ? {}
      : { addresses: validateAddressList(addresses.addresses, "addresses") }),
    ...(gateway === undefined
      ? {}
      : { gateway: gateway === "" ? null : parseIp(gateway, "gateway") }),
    ...(metric === undefined ? {} : { metric: metric === 0 ? null : metric }),
    ...(routes === undefined ? {} : { routes: ownRoutes(routes.routes) }),
  };
}

export const validateRemoveInterface = ({
  guestName,
}: wire.RemoveInterfaceRequest): RemoveInterface => ({
  kind: "remove",
  name: parseIfName(guestName, "guest_name"),
});

/** Routes whose interface goes without saying. */
function ownRoutes(routes: readonly Route[]): OwnRoute[] {
  checkCount(routes, maxRoutes, "routes");
  return routes.map((route, i) => {
    const field = `routes[${i}]`;
    if (route.interface !== "")
      throw invalid(`${field}.interface`, "It is by this interface", "Leave the interface out");
    const { interface: _own, ...rest } = validateRoute({ ...route, interface: "own" }, field, [
      "own",
    ]);
    return rest;
  });
}
