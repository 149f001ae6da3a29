import { isPodnetError } from "../../core/errors.ts";
import { type NetworkName, parseNetworkName } from "../../core/names.ts";
import { guard } from "../../core/guard.ts";
import { configKey, networkPrefix, type Prefix } from "../../overlay/flannel/prefix.ts";
import type { LeaseStore, StoreUpdate } from "../../overlay/store.ts";

/**
 * Reports, until the signal aborts, which overlays have a configuration below a prefix: first all
 * of them, then each changed set; and the errors that keep podnetd from reading them.
 */
export async function followOverlayNames(
  store: Pick<LeaseStore, "follow">,
  prefix: Prefix,
  signal: AbortSignal,
  onNames: (names: ReadonlySet<NetworkName>) => void,
  onUnread: (reasons: readonly unknown[]) => void,
): Promise<void> {
  let names: ReadonlySet<NetworkName> | undefined;
  for await (const update of store.follow(`${prefix}/`, signal)) {
    guard("etcd", () => {
      onUnread(update.kind === "stale" ? [update.error] : []);
      const now = namesAfter(names ?? new Set(), update, prefix);
      if (now === undefined || (names !== undefined && sameNames(names, now))) return;
      names = now;
      onNames(now);
    });
  }
}

function namesAfter(
  before: ReadonlySet<NetworkName>,
  update: StoreUpdate,
  prefix: Prefix,
): ReadonlySet<NetworkName> | undefined {
  if (update.kind === "snapshot")
    return new Set(update.keys.flatMap(({ key }) => overlayOf(key, prefix) ?? []));
  if (update.kind !== "changes") return undefined;
  const now = new Set(before);
  for (const event of update.events) {
    const name = overlayOf(event.kind === "put" ? event.at.key : event.key, prefix);
    if (name === undefined) continue;
    if (event.kind === "put") now.add(name);
    else now.delete(name);
  }
  return now;
}

/** The overlay whose configuration a key is; undefined for every other key. Pure. */
export function overlayOf(key: string, prefix: Prefix): NetworkName | undefined {
  const [, text] = /\/([^/]+)\/config$/.exec(key) ?? [];
  if (text === undefined) return undefined;
  try {
    const name = parseNetworkName(text);
    return configKey(networkPrefix(prefix, name)) === key ? name : undefined;
  } catch (error) {
    // A foreign key: no network can have this name.
    if (!isPodnetError(error)) throw error;
    return undefined;
  }
}

const sameNames = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean =>
  a.size === b.size && [...a].every((name) => b.has(name));
