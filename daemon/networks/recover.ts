import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Config } from "../config/config.ts";
import type { Database } from "../store/database.ts";
import { deleteQuarantinedOutside } from "../ipam/store.ts";
import * as rows from "./store.ts";
import { type NetworkDefinition, unusedFamilies } from "../config/network-definition.ts";
import { networkFragment } from "./network-fragment.ts";
import { goneSubnets, heldIn, usersOnNetwork } from "./refuse-update.ts";

/** Longest the host may take for a network, milliseconds. */
const hostMs = 60_000;

export interface RecoverParts {
  readonly db: Database;
  readonly config: Config;
  readonly host: HostNetwork;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Brings host and rows of networks into agreement after a start, and returns the networks. The
 * configured network is changed to its configuration, or podnetd does not start. For the other
 * networks, an interrupted creation or deletion leaves no network, and an interrupted update is
 * reverted. A network that the host refuses stays, is reported, and is retried by drift repair. Its
 * row keeps the interrupted change, because the host may still have part of it.
 */
export async function recoverNetworks(parts: RecoverParts): Promise<NetworkDefinition[]> {
  const { db, config } = parts;
  const stored = rows.listNetworks(db);
  refuseClash(config.network, stored);
  for (const { definition, configured } of stored)
    if (configured) await retireConfigured(definition, parts);
  await ensureConfigured(parts);
  for (const row of stored) if (!row.configured) await recoverOne(row, parts);
  const recovered = rows
    .listNetworks(db)
    .flatMap(({ definition, before, state }) =>
      state === "ready" || state === "updating" ? [before ?? definition] : [],
    );
  // An earlier configuration, or a network that has gone, may have needed more.
  await parts.host
    .remove(
      { kind: "forwarding", families: unusedFamilies(recovered) },
      AbortSignal.timeout(hostMs),
    )
    .catch((err: unknown) => {
      parts.log.error({ err }, "Failed to reset forwarding that no network needs");
    });
  return recovered;
}

/** Throws `CONFIG_INVALID` when the configured name or bridge is that of a network made by API. */
function refuseClash(network: NetworkDefinition, stored: readonly rows.NetworkRow[]): void {
  for (const { definition, configured } of stored) {
    if (configured) continue;
    const key =
      definition.name === network.name
        ? "name"
        : definition.bridge === network.bridge
          ? "bridge"
          : undefined;
    if (key !== undefined)
      throw new PodnetError(
        "CONFIG_INVALID",
        `Setting "network.${key}" is that of network "${definition.name}", which was made by API`,
        {
          field: `network.${key}`,
          hint: `Choose another, or put back what it was and delete that network: podnet network delete ${definition.name}`,
        },
      );
  }
}

/**
 * Removes networks of an earlier configuration that this one does not name, host before row, but
 * not while pods use them.
 */
async function retireConfigured(
  old: NetworkDefinition,
  { db, config: { network }, host }: RecoverParts,
): Promise<void> {
  const stays = old.name === network.name && old.bridge === network.bridge;
  const gone = stays ? goneSubnets(old, network) : old.subnets;
  const inUse = stays
    ? gone.some((subnet) => heldIn(db, old, subnet) !== undefined)
    : usersOnNetwork(db, old.name).length > 0;
  if (inUse) {
    const was = old.subnets.map(({ gateway }) => gateway).join(", ");
    throw new PodnetError(
      "CONFIG_INVALID",
      `Pods or containers hold addresses of network "${old.name}" on ${old.bridge} (${was})`,
      {
        field: "network",
        hint: `Delete them first, or put back bridge "${old.bridge}" and cidr "${was}"`,
      },
    );
  }
  if (stays) return;
  await host.remove({ kind: "network", key: old.name }, AbortSignal.timeout(hostMs));
  rows.deleteNetwork(db, old.name);
}

/**
 * Writes the row first, as always. A changed row keeps the earlier definition until the host has
 * followed.
 */
async function ensureConfigured({ db, config, host, clock }: RecoverParts): Promise<void> {
  const { network } = config;
  const ready = { state: "ready", configured: true, createdMs: clock.now() } as const;
  const stored = rows.getNetwork(db, network.name);
  const before = [stored?.definition, stored?.before].filter((each) => each !== undefined);
  const retired = before.flatMap((each) => goneSubnets(each, network));
  if (stored === undefined) rows.putNetwork(db, network, ready);
  else if (retired.length > 0) rows.beginNetworkUpdate(db, network);
  await host.apply(
    {
      ...networkFragment(network, config),
      ...(retired.length === 0 ? {} : { retired: retired.map(({ gateway }) => gateway) }),
    },
    AbortSignal.timeout(hostMs),
  );
  if (stored === undefined) return;
  const cidrs = network.subnets.map(({ cidr }) => cidr);
  const write = (): void =>
    db.transaction(() => {
      deleteQuarantinedOutside(db, network.name, cidrs);
      rows.putNetwork(db, network, ready);
    });
  if (isDeepStrictEqual(stored.definition, network)) db.whenRoom(write);
  else write();
}

async function recoverOne(row: rows.NetworkRow, parts: RecoverParts): Promise<void> {
  const { db, config, host, log } = parts;
  const { name } = row.definition;
  const limit = AbortSignal.timeout(hostMs);
  try {
    if (row.state === "creating" || row.state === "deleting") {
      await host.remove(networkFragment(row.definition, config), limit);
      rows.deleteNetwork(db, name);
      return;
    }
    const definition = row.before ?? row.definition;
    const retired = goneSubnets(row.definition, definition).map(({ gateway }) => gateway);
    const fragment = networkFragment(definition, config);
    await host.apply({ ...fragment, ...(retired.length === 0 ? {} : { retired }) }, limit);
    // Only now: after an interrupted or refused start, the next one has to know what may be on the
    // host.
    if (row.before !== undefined) rows.revertNetwork(db, name);
  } catch (err) {
    log.error({ network: name, err }, "Failed to repair the network; drift repair retries");
  }
}
