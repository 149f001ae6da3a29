import type { DatabaseSync } from "node:sqlite";

/**
 * The step of the schema after which plans of pods hold decisions alone (plan version 2). Like
 * every step it is never edited once it is released, and so it shares no code with what works with
 * plans.
 */

interface Route {
  readonly destination?: string;
  readonly gateway?: string;
  readonly interface?: string;
  readonly metric?: number;
}

interface Taken {
  readonly routes: readonly Route[];
  readonly dns?: unknown;
  readonly dnsBefore?: unknown;
}

interface Interface {
  readonly network?: string;
  readonly bridge?: string;
  readonly guestName: string;
  readonly gateways?: readonly { readonly gateway: string; readonly metric?: number }[];
  /** Of the first podnetds: one at most. */
  readonly gateway?: string;
  readonly nic?: { readonly tap: string };
  readonly cni?: { readonly taken?: Taken };
  readonly leaving?: true;
}

/** The parts of a plan of version 1 that are read here. */
interface Plan1 {
  readonly version: unknown;
  readonly vm: object;
  readonly interfaces: readonly Interface[];
  readonly ports: {
    readonly ports: readonly { readonly tap: string; readonly mtu: number }[];
    readonly published?: readonly unknown[];
    readonly withdrawn?: readonly unknown[];
    readonly sources?: readonly unknown[];
  };
  readonly published?: readonly unknown[];
  readonly guest: {
    readonly dns?: unknown;
    readonly loopback?: readonly unknown[];
    readonly routes: readonly Route[];
  };
}

interface Spec1 {
  readonly interfaces: readonly { readonly guestName?: string; readonly port?: unknown }[];
}

/**
 * Converts the plans of all pods to version 2. An invalid plan stays unchanged: only its pod is
 * refused, as before.
 */
export function plansOfDecisions(db: DatabaseSync): void {
  const write = db.prepare("UPDATE pods SET plan = ?, before = ? WHERE id = ?");
  for (const { id, plan, spec, before } of db
    .prepare("SELECT id, plan, spec, before FROM pods")
    .all())
    write.run(
      rewritten(plan, (text) => decisionsOf(JSON.parse(text), JSON.parse(String(spec)))),
      rewritten(before, (text) => {
        const contents = JSON.parse(text) as { readonly plan: unknown; readonly spec: unknown };
        return { ...contents, plan: decisionsOf(contents.plan, contents.spec) };
      }),
      id as string,
    );
}

function rewritten(stored: unknown, become: (text: string) => unknown): string | null {
  if (typeof stored !== "string") return null;
  try {
    return JSON.stringify(become(stored));
  } catch {
    return stored;
  }
}

/**
 * Converts a plan of version 1 to version 2; returns any other unchanged. Throws JavaScript's own
 * errors for an invalid plan.
 */
export function decisionsOf(stored: unknown, spec: unknown): unknown {
  const plan = stored as Plan1;
  if (plan.version !== 1) return stored;
  const { argv: _argv, ports: _ports, guest, ...rest } = plan as Plan1 & { readonly argv: unknown };
  const { seed: _seed, ...vm } = plan.vm as { readonly seed?: unknown };
  const there = plan.interfaces.filter(({ leaving }) => leaving !== true);
  const dns = dnsOf(guest, there);
  return {
    ...rest,
    version: 2,
    vm,
    interfaces: plan.interfaces.map((each, i) => interfaceOf(each, i, plan, spec as Spec1)),
    routes: askedRoutes(guest.routes, there),
    ...(dns === undefined ? {} : { dns }),
    ...withdrawnOf(plan),
    ...(hadLoopback(plan, there) ? { hadLoopback: true } : {}),
  };
}

function interfaceOf(each: Interface, i: number, plan: Plan1, spec: Spec1): object {
  const { gateway, ...rest } = each;
  const gateways = each.gateways ?? (gateway === undefined ? [] : [{ gateway }]);
  const asked = spec.interfaces.length === plan.interfaces.length ? spec.interfaces[i] : undefined;
  const { port } = asked ?? spec.interfaces.find((one) => one.guestName === each.guestName) ?? {};
  const found = plan.ports.ports.find(({ tap }) => tap === each.nic?.tap);
  const isForeign = each.network === undefined && each.bridge !== undefined;
  return {
    ...rest,
    gateways,
    ...(port === undefined || each.bridge === undefined ? {} : { port }),
    ...(isForeign && found !== undefined ? { bridgeMtu: found.mtu } : {}),
    ...(each.cni === undefined ? {} : { cni: cniOf(each.cni) }),
  };
}

function cniOf(cni: Interface["cni"] & object): object {
  if (cni.taken === undefined) return cni;
  const { dnsBefore: _before, ...taken } = cni.taken;
  return { ...cni, taken };
}

/** Routes that neither an interface's gateway nor a link of CNI plugins brings. */
function askedRoutes(routes: readonly Route[], there: readonly Interface[]): readonly Route[] {
  const textOf = ({ destination, gateway, interface: by, metric }: Route): string =>
    [destination, gateway, by, metric].join(" ");
  const brought = there.flatMap(({ guestName, gateways, gateway, cni }): readonly Route[] => [
    ...(gateways ?? (gateway === undefined ? [] : [{ gateway }])).map((each) => ({
      ...each,
      destination: each.gateway.includes(":") ? "::/0" : "0.0.0.0/0",
      interface: guestName,
    })),
    ...(cni?.taken?.routes ?? []),
  ]);
  const known = new Set(brought.map(textOf));
  return routes.filter((route) => !known.has(textOf(route)));
}

/**
 * A guest that uses DNS servers of CNI plugins: its original servers were kept in the plugins'
 * record.
 */
function dnsOf({ dns }: Plan1["guest"], there: readonly Interface[]): unknown {
  const byPlugins =
    there.every(({ network }) => network === undefined) &&
    there.some(({ cni }) => cni?.taken?.dns !== undefined);
  return byPlugins ? there.find(({ cni }) => cni?.taken !== undefined)?.cni?.taken?.dnsBefore : dns;
}

/**
 * A pod with a list of published ports has rules of the host, even if both are empty; addresses of
 * `lo` bring such a list, too.
 */
function withdrawnOf({ ports }: Plan1): object {
  if (ports.withdrawn !== undefined) return { withdrawn: ports.withdrawn };
  const none = ports.published?.length === 0 && ports.sources === undefined;
  return none ? { withdrawn: [] } : {};
}

const hadLoopback = ({ ports, guest }: Plan1, there: readonly Interface[]): boolean =>
  (ports.sources !== undefined || guest.loopback !== undefined) &&
  there.every(({ nic }) => nic !== undefined);
