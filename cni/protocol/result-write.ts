import { familyOf } from "../../core/address.ts";
import { cniError, refusal } from "./refusal.ts";
import type { CniAddress, CniDns, CniInterface, CniResult, CniRoute } from "./result.ts";
import { atLeast, type CniVersion } from "./version.ts";

/**
 * A result as JSON of the version, which loses what that version has no place for. Throws with
 * CNI's error 1 when that is all.
 */
export const renderResult = (result: CniResult, version: CniVersion): string =>
  JSON.stringify(resultValue(result, version));

/** A result as an object, for `prevResult` in a configuration. */
export function resultValue(result: CniResult, version: CniVersion): object {
  const body = atLeast(version, "0.3.0") ? lists(result, version) : families(result);
  return { cniVersion: version, ...body, dns: dnsValue(result.dns) };
}

function lists({ interfaces, ips, routes }: CniResult, version: CniVersion): object {
  const newest = atLeast(version, "1.1.0");
  return {
    ...some(
      "interfaces",
      interfaces.map((one) => interfaceValue(one, newest)),
    ),
    ...some(
      "ips",
      ips.map((one) => addressValue(one, !atLeast(version, "1.0.0"))),
    ),
    ...some(
      "routes",
      routes.map((one) => routeValue(one, newest)),
    ),
  };
}

/** Empty lists are left out, as Go's `omitempty` does. */
const some = (name: string, values: readonly object[]): object =>
  values.length === 0 ? {} : { [name]: values };

/** Until 0.2.0: the first address of each family, and the routes of the families that have one. */
function families({ ips, routes }: CniResult): object {
  const body: Record<string, object> = {};
  for (const family of [4, 6] as const) {
    const ip = ips.find(({ address }) => familyOf(address) === family);
    if (ip === undefined) continue;
    const own = routes.filter(({ dst }) => familyOf(dst) === family);
    body[`ip${family}`] = {
      ip: ip.address,
      ...(ip.gateway === undefined ? {} : { gateway: ip.gateway }),
      ...some(
        "routes",
        own.map((one) => routeValue(one, false)),
      ),
    };
  }
  if (Object.keys(body).length === 0)
    throw refusal("cannot convert: no valid IP addresses", {
      cni: cniError.version,
      code: "UNSUPPORTED",
      field: "cniVersion",
      hint: "Results before 0.3.0 are addresses: ask for 0.3.0 or newer",
    });
  return body;
}

function interfaceValue(one: CniInterface, newest: boolean): object {
  const { name, mac, mtu, sandbox, socketPath, pciId } = one;
  return {
    name,
    ...(mac === undefined ? {} : { mac }),
    ...(newest && mtu !== undefined ? { mtu } : {}),
    ...(sandbox === undefined ? {} : { sandbox }),
    ...(newest && socketPath !== undefined ? { socketPath } : {}),
    ...(newest && pciId !== undefined ? { pciID: pciId } : {}),
  };
}

function addressValue(one: CniAddress, withFamily: boolean): object {
  return {
    ...(withFamily ? { version: String(familyOf(one.address)) } : {}),
    ...(one.interface === undefined ? {} : { interface: one.interface }),
    address: one.address,
    ...(one.gateway === undefined ? {} : { gateway: one.gateway }),
  };
}

function routeValue({ dst, gw, ...attributes }: CniRoute, newest: boolean): object {
  return { dst, ...(gw === undefined ? {} : { gw }), ...(newest ? attributes : {}) };
}

function dnsValue({ nameservers, domain, search, options }: CniDns): object {
  return {
    ...(nameservers.length === 0 ? {} : { nameservers }),
    ...(domain === undefined ? {} : { domain }),
    ...(search.length === 0 ? {} : { search }),
    ...(options.length === 0 ? {} : { options }),
  };
}
