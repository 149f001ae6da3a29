import { metricOf } from "../../../api/validate/unique-interfaces.ts";
import { familyOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { hasAttributes } from "../../../guest-init/protocol/attributes.ts";
import type { GuestConfig, ObservedGuest } from "../../../guest-init/protocol/configure.ts";

/**
 * Compares the guest's reported configuration with the one that it was sent. An agent's ACK alone
 * proves nothing. Throws `AGENT_REFUSED` naming the first difference.
 */
export function compareGuest(wanted: GuestConfig, observed: ObservedGuest): void {
  for (const each of wanted.interfaces) {
    const found = observed.interfaces.find(({ mac }) => mac === each.mac);
    if (found === undefined)
      throw differs(`interface ${each.name}`, each.mac, "none with this MAC");
    if (found.name !== each.name)
      throw differs(`name of interface ${each.mac}`, each.name, found.name);
    if (!found.up) throw differs(`state of interface ${each.name}`, "up", "down");
    if (each.mtu !== undefined && found.mtu !== each.mtu) {
      throw differs(`MTU of interface ${each.name}`, each.mtu, found.mtu);
    }
    if (each.noArp === true && found.noArp !== true)
      throw differs(`flags of interface ${each.name}`, "noarp", "without");
    const missing = each.addresses.find((address) => !found.addresses.includes(address));
    if (missing !== undefined) {
      throw differs(
        `addresses of interface ${each.name}`,
        missing,
        found.addresses.join(" ") || "none",
      );
    }
  }
  const lacking = wanted.loopback?.find((address) => observed.loopback?.includes(address) !== true);
  if (lacking !== undefined)
    throw differs("addresses of lo", lacking, observed.loopback?.join(" ") || "none");
  for (const route of wanted.routes) {
    const there = observed.routes.some(
      ({ destination, gateway, interface: through, metric, ...more }) =>
        destination === route.destination &&
        gateway === route.gateway &&
        through === route.interface &&
        hasAttributes(more, route) &&
        // Metrics that the kernel chooses are not compared.
        (route.metric === undefined || metricOf(metric, familyOf(destination)) === route.metric),
    );
    if (!there)
      throw differs(`route to ${route.destination}`, route.gateway ?? route.interface, "none such");
  }
}

function differs(what: string, wanted: string | number, found: string | number): PodnetError {
  return new PodnetError(
    "AGENT_REFUSED",
    `The guest's ${what} is "${found}" instead of "${wanted}"`,
    {
      hint: "See the guest's console: podnet console POD",
      details: { wanted, found },
    },
  );
}
