import { networkOf, parseIp, parseIpPrefix } from "../../core/address.ts";
import { printable } from "../../core/names.ts";
import {
  asObject,
  countAt,
  type JsonObject,
  listAt,
  member,
  objectAt,
  readAt,
  textAt,
  textsAt,
} from "./json.ts";
import { cniError, refusal } from "./refusal.ts";
import type { CniAddress, CniDns, CniInterface, CniResult, CniRoute } from "./result.ts";
import { atLeast, type CniVersion, isCniVersion } from "./version.ts";

/**
 * Reads a parsed result. `version` applies where the result does not name one. Throws with CNI's
 * error 1, 6 or 7.
 */
export function parseResult(value: unknown, version: CniVersion, field = "result"): CniResult {
  const object = asObject(value, field);
  const own = textAt(object, "cniVersion", `${field}.cniVersion`) ?? version;
  if (!isCniVersion(own))
    throw refusal(`${field} is of CNI version "${printable(own)}"`, {
      cni: cniError.version,
      code: "UNSUPPORTED",
      field: `${field}.cniVersion`,
      hint: "Have the plugin before this one answer in the version of the configuration",
    });
  const dns = parseDns(objectAt(object, "dns", `${field}.dns`), `${field}.dns`);
  return atLeast(own, "0.3.0")
    ? { ...parseLists(object, field), dns }
    : { ...parseFamilies(object, field), dns };
}

/** 0.3.0 and newer. */
function parseLists(object: JsonObject, field: string): Omit<CniResult, "dns"> {
  const each = <T>(name: string, parse: (value: JsonObject, field: string) => T): T[] =>
    listAt(object, name, `${field}.${name}`).map((value, i) => {
      const at = `${field}.${name}[${i}]`;
      return parse(asObject(value, at), at);
    });
  return {
    interfaces: each("interfaces", parseInterface),
    ips: each("ips", parseAddress),
    routes: each("routes", parseRoute),
  };
}

/** 0.1.0 and 0.2.0: at most one address of each family, each with routes of its own. */
function parseFamilies(object: JsonObject, field: string): Omit<CniResult, "dns"> {
  const ips: CniAddress[] = [];
  const routes: CniRoute[] = [];
  for (const name of ["ip4", "ip6"]) {
    const at = `${field}.${name}`;
    if (member(object, name) === undefined) continue;
    const family = objectAt(object, name, at);
    ips.push(addressOf(family, "ip", at));
    listAt(family, "routes", `${at}.routes`).forEach((route, i) => {
      const routeAt = `${at}.routes[${i}]`;
      routes.push(parseRoute(asObject(route, routeAt), routeAt));
    });
  }
  return { interfaces: [], ips, routes };
}

function parseInterface(object: JsonObject, field: string): CniInterface {
  const texts = (["mac", "sandbox", "socketPath"] as const).map((name) => [
    name,
    textAt(object, name, `${field}.${name}`),
  ]);
  return present<CniInterface>({
    name: textAt(object, "name", `${field}.name`) ?? "",
    ...Object.fromEntries(texts),
    mtu: numberAt(object, "mtu", field),
    pciId: textAt(object, "pciID", `${field}.pciID`),
  });
}

function parseAddress(object: JsonObject, field: string): CniAddress {
  // A negative index such as -1 means that there is no interface.
  const index = countAt(object, "interface", `${field}.interface`, -0x80000000, 0x7fffffff) ?? -1;
  return { ...addressOf(object, "address", field), ...(index < 0 ? {} : { interface: index }) };
}

function addressOf(object: JsonObject, name: string, field: string): CniAddress {
  const address = readAt(object, name, `${field}.${name}`, parseIpPrefix);
  if (address === undefined)
    throw refusal(`${field} has no ${name}`, {
      cni: cniError.config,
      field: `${field}.${name}`,
      hint: "Write an address and a length, such as 10.0.0.2/24",
    });
  return present<CniAddress>({
    address,
    gateway: readAt(object, "gateway", `${field}.gateway`, parseIp),
  });
}

function parseRoute(object: JsonObject, field: string): CniRoute {
  const dst = readAt(object, "dst", `${field}.dst`, parseIpPrefix);
  if (dst === undefined)
    throw refusal(`${field} has no destination`, {
      cni: cniError.config,
      field: `${field}.dst`,
      hint: "Write a network, such as 0.0.0.0/0",
    });
  return present<CniRoute>({
    dst: networkOf(dst),
    gw: readAt(object, "gw", `${field}.gw`, parseIp),
    ...Object.fromEntries(
      (["mtu", "advmss", "priority"] as const).map((name) => [name, numberAt(object, name, field)]),
    ),
    table: countAt(object, "table", `${field}.table`, 0, 0xffffffff),
    scope: countAt(object, "scope", `${field}.scope`, 0, 255),
  });
}

/** A positive number; Go writes 0 for an absent one. */
function numberAt(object: JsonObject, name: string, field: string): number | undefined {
  const value = countAt(object, name, `${field}.${name}`, 0, 0xffffffff);
  return value === 0 ? undefined : value;
}

/** Name service, under the names of results and configurations. */
export function parseDns(object: JsonObject, field: string): CniDns {
  return present<CniDns>({
    nameservers: textsAt(object, "nameservers", `${field}.nameservers`),
    domain: textAt(object, "domain", `${field}.domain`),
    search: textsAt(object, "search", `${field}.search`),
    options: textsAt(object, "options", `${field}.options`),
  });
}

/** Without the members that are undefined. */
function present<T extends object>(object: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}
