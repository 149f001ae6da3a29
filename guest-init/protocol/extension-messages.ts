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
  asObject,
  asString,
  asText,
  decodeJson,
  encodeJson,
  given,
  listOf,
  malformed,
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

const asDns = asObject<GuestDns>((fields) => ({
  servers: fields.list("servers", asText(parseIp)),
  search: fields.list("search", asWord),
  options: fields.list("options", asWord),
}));

const asGuestInterface = asObject<GuestInterface>((fields) => ({
  mac: fields.required("mac", asText(parseUnicastMac)),
  ...given("pluggedAs", fields.optional("pluggedAs", asText(parseUnicastMac))),
  ...given("parked", fields.optional("parked", asTrue)),
  name: fields.required("name", asInterfaceName),
  ...given("mtu", fields.optional("mtu", asMtu)),
  ...given("noArp", fields.optional("noArp", asTrue)),
  addresses: fields.required("addresses", asAddresses),
}));

const asGuestRoute = asObject<GuestRoute>((fields) => {
  const destination = fields.required("destination", asText(parseCidr));
  const gateway = fields.optional("gateway", asText(parseIp));
  if (gateway !== undefined && familyOf(gateway) !== familyOf(destination))
    throw malformed(`"${fields.at("gateway")}" is of the other family`, fields.at("gateway"));
  const source = fields.optional("source", asText(parseIp));
  if (source !== undefined && familyOf(source) !== familyOf(destination))
    throw malformed(`"${fields.at("source")}" is of the other family`, fields.at("source"));
  return {
    destination,
    ...given("gateway", gateway),
    interface: fields.required("interface", asInterfaceName),
    ...given("metric", fields.optional("metric", asCount)),
    ...given("source", source),
    ...given("mtu", fields.optional("mtu", asBytes)),
    ...given("advmss", fields.optional("advmss", asBytes)),
  };
});

const asNeighbour = asObject<GuestNeighbour>((fields) => ({
  interface: fields.required("interface", asInterfaceName),
  address: fields.required("address", asText(parseIp)),
  mac: fields.required("mac", asText(parseUnicastMac)),
}));

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

export const encodeGuestConfig = (config: GuestConfig): Uint8Array => encodeJson(config);
/** Payload of CONFIGURE. Throws `AGENT_PROTOCOL` with the key at fault. */
export function parseGuestConfig(payload: Uint8Array): GuestConfig {
  const config = parseObject<GuestConfig>(payload, (fields) => ({
    requestId: fields.required("requestId", asWord),
    ...given("hostname", fields.optional("hostname", asText(parseHostname))),
    ...given("dns", fields.optional("dns", asDns)),
    interfaces: fields.list("interfaces", asGuestInterface),
    ...given("loopback", fields.optional("loopback", asAddresses)),
    routes: fields.list("routes", asGuestRoute),
    neighbours: fields.list("neighbours", asNeighbour),
    waitMs: fields.required("waitMs", asInteger({ max: configureWaitMax })),
    ...given("clockMs", fields.optional("clockMs", asInteger())),
    ...given("entropy", fields.optional("entropy", asEntropy)),
  }));
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

const asObservedInterface = asObject<ObservedInterface>((fields) => ({
  name: fields.required("name", asInterfaceName),
  mac: fields.required("mac", asText(parseMac)),
  index: fields.required("index", asInteger({ min: 1, max: 0x7fffffff })),
  // A guest's lo has 65536.
  mtu: fields.required("mtu", asCount),
  up: fields.required("up", asBoolean),
  ...given("noArp", fields.optional("noArp", asTrue)),
  addresses: fields.required("addresses", asAddresses),
}));

/** Any text a guest's own files may hold, bounded. */
const asShortText: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (text.length > 255) throw malformed(`"${path}" is longer than 255 characters`, path);
  return text;
};

export const encodeObservedGuest = (observed: ObservedGuest): Uint8Array => encodeJson(observed);
/** ACK of CONFIGURE, strict: it comes from a guest. Throws `AGENT_PROTOCOL`. */
export const parseObservedGuest = (payload: Uint8Array): ObservedGuest =>
  parseObject<ObservedGuest>(payload, (fields) => ({
    requestId: fields.required("requestId", asWord),
    hostname: fields.required("hostname", asShortText),
    dns: fields.required("dns", asDns),
    ...given("resolverKept", fields.optional("resolverKept", asWord)),
    interfaces: fields.list("interfaces", asObservedInterface),
    ...given("loopback", fields.optional("loopback", asAddresses)),
    routes: fields.list("routes", asGuestRoute),
    clockMs: fields.required("clockMs", asInteger()),
    agentRssKib: fields.required("agentRssKib", asInteger()),
  }));
