import { entriesOf, objectOf, textOf } from "./listing.ts";
import { portIdentity } from "./port-identity.ts";

/** What was refused: on the way to the host, or for one connection too many. */
export type RefusalKind = "host" | "connections";

/** Packets of one kind that were refused of a port, since the port was made. */
export interface Refusal {
  readonly link: string;
  readonly kind: RefusalKind;
  readonly packets: number;
  readonly bytes: number;
}

/** As the kernel counts: by the identity of a port, as a number and as nft writes it. */
interface ListedRefusal extends Pick<Refusal, "packets" | "bytes"> {
  readonly identity: number;
  readonly key: string;
}

/**
 * Parses the JSON that libnftables prints for a set of counters: by the identity of a port, which
 * nft writes as it writes classes of traffic control. Throws `FIREWALL_FAILED`.
 */
export const parseRefusals = (text: string): ListedRefusal[] =>
  entriesOf(text).flatMap((entry) => {
    const { elem } = objectOf(entry["set"]) ?? {};
    return (Array.isArray(elem) ? elem : []).flatMap((each): ListedRefusal[] => {
      const element = objectOf(objectOf(each)?.["elem"]);
      const counter = objectOf(element?.["counter"]);
      const key = textOf(element?.["val"]);
      const [, major = "", minor = ""] = /^([0-9a-f]{1,4}):([0-9a-f]{0,4})$/.exec(key) ?? [];
      if (counter === undefined || major === "") return [];
      const identity = Number.parseInt(major, 16) * 0x1_0000 + Number.parseInt(minor || "0", 16);
      const [packets, bytes] = [Number(counter["packets"]), Number(counter["bytes"])];
      return [{ identity, key, packets, bytes }];
    });
  });

/** The refusals of links that are there, by name, and the keys of others. Pure. */
export function placeRefusals(
  kind: RefusalKind,
  listed: readonly ListedRefusal[],
  links: ReadonlyMap<number, string>,
): { readonly refusals: readonly Refusal[]; readonly stale: readonly string[] } {
  const names = new Map([...links].map(([index, name]) => [portIdentity(index), name]));
  const refusals: Refusal[] = [];
  const stale: string[] = [];
  for (const { identity, key, ...counts } of listed) {
    const link = names.get(identity);
    if (link === undefined) stale.push(key);
    else refusals.push({ link, kind, ...counts });
  }
  return { refusals, stale };
}
