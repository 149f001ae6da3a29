import {
  parseCidr,
  parseIp,
  parseIpPrefix,
  parseMac,
  parseUnicastMac,
  familyOf,
} from "../../core/address.ts";
import { parseHostname, parseIfName } from "../../core/names.ts";
import {
  Fields,
  type ParseValue,
  asBoolean,
  asInteger,
  asKeys,
  asString,
  asText,
  decodeJson,
  encodeJson,
  given,
  list,
  listOf,
  malformed,
  maybe,
  needed,
  parseObject,
} from "./fields.ts";
import type {
  Awakening,
  GuestConfig,
  GuestDns,
  GuestInterface,
  GuestNeighbour,
  GuestRoute,
  HelloReply,
  HelloRequest,
  ObservedGuest,
  ObservedInterface,
} from "./configure.ts";

// HELLO comes before anything is agreed: both ends ignore keys they do not know, so that later
// versions can add some. Everything after it is strict.

const asVersion = asInteger({ min: 1, max: 0xffff });

export const encodeHelloRequest = (hello: HelloRequest): Uint8Array => encodeJson(hello);
export function parseHelloRequest(payload: Uint8Array): HelloRequest {
  const fields = new Fields(decodeJson(payload));
  return {
    versions: fields.required("versions", listOf(asVersion)),
    nonce: fields.required("nonce", asWord),
  };
}

export const encodeHelloReply = (hello: HelloReply): Uint8Array => encodeJson(hello);
export function parseHelloReply(payload: Uint8Array): HelloReply {
  const fields = new Fields(decodeJson(payload));
  return {
    version: fields.required("version", asVersion),
    agent: fields.required("agent", asWord),
    epoch: fields.required("epoch", asWord),
    nonce: fields.required("nonce", asWord),
    ...given("features", fields.optional("features", listOf(asWord))),
  };
}

/** Text that is safe as one word in resolv.conf or a log. */
const asWord: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (!/^[\x21-\x7e]{1,255}$/.test(text)) throw malformed(`"${path}" is not one word`, path);
  return text;
};
const asInterfaceName = asText(parseIfName);
const asMtu = asInteger({ min: 68, max: 65535 });
const asCount = asInteger({ max: 0xffffffff });
const asBytes = asInteger({ min: 1, max: 65535 });
/** False is expressed by absence. */
const asTrue: ParseValue<true> = (value, path) => {
  if (!asBoolean(value, path)) throw malformed(`"${path}" is not true`, path);
  return true;
};
const asAddresses = listOf(asText(parseIpPrefix));

const asDns = asKeys<GuestDns>({
  servers: list(asText(parseIp)),
  search: list(asWord),
  options: list(asWord),
});

const asGuestInterface = asKeys<GuestInterface>({
  mac: needed(asText(parseUnicastMac)),
  pluggedAs: maybe(asText(parseUnicastMac)),
  parked: maybe(asTrue),
  name: needed(asInterfaceName),
  mtu: maybe(asMtu),
  noArp: maybe(asTrue),
  addresses: needed(asAddresses),
});

const asGuestRoute = asKeys<GuestRoute>(
  {
    destination: needed(asText(parseCidr)),
    gateway: maybe(asText(parseIp)),
    interface: needed(asInterfaceName),
    metric: maybe(asCount),
    source: maybe(asText(parseIp)),
    mtu: maybe(asBytes),
    advmss: maybe(asBytes),
  },
  (route, path) => {
    for (const key of ["gateway", "source"] as const) {
      const ip = route[key];
      if (ip !== undefined && familyOf(ip) !== familyOf(route.destination))
        throw malformed(`"${path}.${key}" is of the other family`, `${path}.${key}`);
    }
  },
);

const asNeighbour = asKeys<GuestNeighbour>({
  interface: needed(asInterfaceName),
  address: needed(asText(parseIp)),
  mac: needed(asText(parseUnicastMac)),
});

const asEntropy: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (!/^(?:[0-9a-f]{2}){1,512}$/.test(text))
    throw malformed(`"${path}" is not 1 to 512 bytes in hexadecimal`, path);
  return text;
};

export const encodeAwakening = (awakening: Awakening): Uint8Array => encodeJson(awakening);
/** Payload of AWAKE. Throws `AGENT_PROTOCOL` with the key at fault. */
export const parseAwakening = (payload: Uint8Array): Awakening =>
  parseObject<Awakening>(payload, (fields) => ({
    entropy: fields.required("entropy", asEntropy),
    clockMs: fields.required("clockMs", asInteger()),
  }));

function unique(values: readonly string[], key: string): void {
  const seen = new Set<string>();
  values.forEach((value, i) => {
    if (seen.has(value))
      throw malformed(`"${key}" occurs twice: ${value}`, `interfaces[${i}].${key}`);
    seen.add(value);
  });
}

/** Longest wait for an interface, milliseconds. */
const configureWaitMax = 60_000;

const asGuestConfig = asKeys<GuestConfig>({
  requestId: needed(asWord),
  hostname: maybe(asText(parseHostname)),
  dns: maybe(asDns),
  interfaces: list(asGuestInterface),
  loopback: maybe(asAddresses),
  routes: list(asGuestRoute),
  neighbours: list(asNeighbour),
  waitMs: needed(asInteger({ max: configureWaitMax })),
  clockMs: maybe(asInteger()),
  entropy: maybe(asEntropy),
});

export const encodeGuestConfig = (config: GuestConfig): Uint8Array => encodeJson(config);
/** Payload of CONFIGURE. Throws `AGENT_PROTOCOL` with the key at fault. */
export function parseGuestConfig(payload: Uint8Array): GuestConfig {
  const config = asGuestConfig(decodeJson(payload), "");
  unique(
    config.interfaces.map((i) => i.mac),
    "mac",
  );
  unique(
    config.interfaces.map((i) => i.name),
    "name",
  );
  return config;
}

const asObservedInterface = asKeys<ObservedInterface>({
  name: needed(asInterfaceName),
  mac: needed(asText(parseMac)),
  index: needed(asInteger({ min: 1, max: 0x7fffffff })),
  // A guest's lo has 65536.
  mtu: needed(asCount),
  up: needed(asBoolean),
  noArp: maybe(asTrue),
  addresses: needed(asAddresses),
});

/** Any text a guest's own files may hold, bounded. */
const asShortText: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (text.length > 255) throw malformed(`"${path}" is longer than 255 characters`, path);
  return text;
};

export const encodeObservedGuest = (observed: ObservedGuest): Uint8Array => encodeJson(observed);
/** ACK of CONFIGURE, strict: it comes from a guest. Throws `AGENT_PROTOCOL`. */
export const parseObservedGuest = (payload: Uint8Array): ObservedGuest =>
  asObservedGuest(decodeJson(payload), "");
const asObservedGuest = asKeys<ObservedGuest>({
  requestId: needed(asWord),
  hostname: needed(asShortText),
  dns: needed(asDns),
  resolverKept: maybe(asWord),
  interfaces: list(asObservedInterface),
  loopback: maybe(asAddresses),
  routes: list(asGuestRoute),
  clockMs: needed(asInteger()),
  agentRssKib: needed(asInteger()),
});
