import type { GuestConfig, GuestRoute } from "./configure.ts";

/** Attributes of a route in addition to its destination and path. */
export type RouteAttributes = Pick<GuestRoute, "source" | "mtu" | "advmss">;

/** The attributes that a route has. Pure. */
export const routeAttributes = ({ source, mtu, advmss }: RouteAttributes): RouteAttributes => ({
  ...(source === undefined ? {} : { source }),
  ...(mtu === undefined ? {} : { mtu }),
  ...(advmss === undefined ? {} : { advmss }),
});

/** Whether a route is as asked for in all attributes that were asked for. Pure. */
export const hasAttributes = (there: RouteAttributes, wanted: RouteAttributes): boolean =>
  (wanted.source ?? there.source) === there.source &&
  (wanted.mtu ?? there.mtu) === there.mtu &&
  (wanted.advmss ?? there.advmss) === there.advmss;

/** Whether a configuration says anything that `withoutAttributes` leaves out. Pure. */
export const asksAttributes = ({
  interfaces,
  routes,
}: Pick<GuestConfig, "interfaces" | "routes">): boolean =>
  interfaces.some(({ noArp }) => noArp === true) ||
  routes.some((route) => Object.keys(routeAttributes(route)).length > 0);

/**
 * The configuration for an agent of an earlier podnet, which refuses all of it for an unknown key.
 * Pure.
 */
export const withoutAttributes = <Config extends Pick<GuestConfig, "interfaces" | "routes">>(
  config: Config,
): Config => ({
  ...config,
  interfaces: config.interfaces.map(({ noArp: _noArp, ...each }) => each),
  routes: config.routes.map(({ source: _source, mtu: _mtu, advmss: _advmss, ...each }) => each),
});
