import {
  type ParseValue,
  asObject,
  asString,
  encodeJson,
  given,
  listOf,
  parseObject,
} from "./fields.ts";
import {
  type InterfaceSetup,
  type RouteSetup,
  asInterface,
  asRoute,
  interfaceJson,
  routeJson,
} from "./network-messages.ts";

/** STARTPOD. */
export interface StartPod {
  readonly hostname?: string;
  readonly dns: readonly string[];
  readonly dnsSearch: readonly string[];
  readonly dnsOptions: readonly string[];
  /** Tag of a 9p share. */
  readonly shareDir?: string;
  readonly portmappingWhiteLists: WhiteLists;
  /** Deprecated by hyperstart, still obeyed. */
  readonly interfaces: readonly InterfaceSetup[];
  readonly routes: readonly RouteSetup[];
  /** Deprecated; not looked into. */
  readonly containers: readonly unknown[];
}

export interface WhiteLists {
  readonly internalNetworks: readonly string[];
  readonly externalNetworks: readonly string[];
}

const asWhiteLists = asObject<WhiteLists>((fields) => ({
  internalNetworks: fields.list("internalNetworks", asString),
  externalNetworks: fields.list("externalNetworks", asString),
}));

const asAnything: ParseValue<unknown> = (value) => value;

/** Payload of STARTPOD. Throws `AGENT_PROTOCOL`. */
export const parseStartPod = (payload: Uint8Array): StartPod =>
  parseObject(payload, (fields) => ({
    ...given("hostname", fields.optional("hostname", asString) || undefined),
    dns: fields.list("dns", asString),
    dnsSearch: fields.list("dnsSearch", asString),
    dnsOptions: fields.list("dnsOptions", asString),
    ...given("shareDir", fields.optional("shareDir", asString) || undefined),
    portmappingWhiteLists: fields.optional("portmappingWhiteLists", asWhiteLists) ?? {
      internalNetworks: [],
      externalNetworks: [],
    },
    interfaces: fields.list("interfaces", asInterface),
    routes: fields.list("routes", asRoute),
    containers: fields.optional("containers", listOf(asAnything)) ?? [],
  }));

/** Drops empty lists, as runv's encoder does. */
const filled = (key: string, list: readonly unknown[]): object =>
  list.length === 0 ? {} : { [key]: list };

/**
 * STARTPOD in runv's order of keys, empty ones left out but for the white lists, which it always
 * sends.
 */
export const encodeStartPod = (pod: StartPod): Uint8Array =>
  encodeJson({
    ...given("hostname", pod.hostname),
    ...filled("dns", pod.dns),
    ...filled("dnsSearch", pod.dnsSearch),
    ...filled("dnsOptions", pod.dnsOptions),
    ...given("shareDir", pod.shareDir),
    portmappingWhiteLists: {
      ...filled("internalNetworks", pod.portmappingWhiteLists.internalNetworks),
      ...filled("externalNetworks", pod.portmappingWhiteLists.externalNetworks),
    },
    ...filled("interfaces", pod.interfaces.map(interfaceJson)),
    ...filled("routes", pod.routes.map(routeJson)),
    ...filled("containers", pod.containers),
  });

/** A pod with nothing in it, to build on. */
export const emptyStartPod: StartPod = {
  dns: [],
  dnsSearch: [],
  dnsOptions: [],
  portmappingWhiteLists: { internalNetworks: [], externalNetworks: [] },
  interfaces: [],
  routes: [],
  containers: [],
};
