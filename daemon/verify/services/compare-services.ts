import { familyOf } from "../../../core/address.ts";
import type { ServiceDesired } from "../../../network/model/service.ts";
import { type Check, checker } from "../check.ts";
import type { ServicesReport } from "../source-reports.ts";

/** Backends that are named one by one. */
const mostNamed = 8;

/** Where services of a pod's networks are to lead, next to what a source has read. Pure. */
export function compareServices(
  services: readonly ServiceDesired[],
  { asked, doors }: ServicesReport,
): Check[] {
  const check = checker("nft");
  return services.flatMap(({ name, bridge, addresses, ports, sticky = false }) =>
    addresses.flatMap((address) => {
      const family = familyOf(address);
      return ports.flatMap(({ protocol, port, backends }): Check[] => {
        const some = backends.filter(
          (each) => each.weight > 0 && familyOf(each.address) === family,
        );
        const door = doors.find(
          (each) =>
            each.bridge === bridge &&
            each.protocol === protocol &&
            each.address === address &&
            each.port === port,
        );
        const subject = `service ${name} ${port}/${protocol} at ${address} on ${bridge} leads to`;
        const wanted = shares(some.map((each) => ({ ...each, part: each.weight })));
        const there = asked.includes(family) ? (door?.backends ?? []) : [];
        const found = shares(there.map((each) => ({ ...each, part: each.slots })));
        // (Of slots that keep clients with their backends the parts are nearly as asked for.)
        return [check(subject, ...texts(wanted, found, sticky))];
      });
    }),
  );
}

interface Part {
  readonly address: string;
  readonly port: number;
  readonly part: number;
}

/** Each backend's part of all, in percent. */
function shares(parts: readonly Part[]): ReadonlyMap<string, string> {
  const total = parts.reduce((sum, { part }) => sum + part, 0);
  return new Map(
    parts
      .map(({ address, port, part }): [string, string] => [
        `${address} port ${port}`,
        `${((100 * part) / total).toFixed(1)} %`,
      ])
      .toSorted(([a], [b]) => (a < b ? -1 : 1)),
  );
}

function texts(
  wanted: ReadonlyMap<string, string>,
  found: ReadonlyMap<string, string>,
  sticky: boolean,
): [wanted: string, found: string] {
  const named = wanted.size <= mostNamed && found.size <= mostNamed;
  const all = (parts: ReadonlyMap<string, string>): string =>
    [...parts].map(([who, share]) => (sticky ? who : `${who} ${share}`)).join(", ") || "nothing";
  if (named) return [all(wanted), all(found)];
  const missing = [...wanted].filter(([who, share]) =>
    sticky ? !found.has(who) : found.get(who) !== share,
  );
  const more = [...found.keys()].filter((who) => !wanted.has(who));
  const some = (what: string, who: readonly string[]): string[] =>
    who.length === 0 ? [] : [`${who.length} ${what}: ${who.slice(0, mostNamed).join(", ")}`];
  return [
    `${wanted.size} backends`,
    [
      `${found.size} backends`,
      ...some(
        "not as planned",
        missing.map(([who]) => who),
      ),
      ...some("beyond the plan", more),
    ].join("; "),
  ];
}
