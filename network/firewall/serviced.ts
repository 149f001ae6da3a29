import type { Memory } from "../kernel/memory.ts";
import type { Change } from "../model/change.ts";
import { elementText } from "../model/nftables-sets.ts";
import type { ServiceDesired } from "../model/service.ts";
import type { PolicedDriver } from "./policed.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import type { RuleTable } from "./nftables/rule-table.ts";
import { KnownSlots, serviceChains, serviceElements } from "./nftables/service-table.ts";

/** A driver of services. */
export interface ServicedDriver extends PolicedDriver {
  /**
   * The changes that give the host the rules of these services, and of no others, in one
   * transaction. Throws as `compareNetwork`.
   */
  compareServices(services: readonly ServiceDesired[], signal: AbortSignal): Promise<Change[]>;
  /** Whether there are services, as far as was looked. */
  serves(): boolean;
  /** The desired rules of a service, as text, a line each. Observes nothing. */
  describeService(service: ServiceDesired): readonly string[];
}

interface Serving {
  readonly driver: PolicedDriver;
  readonly table: RuleTable;
  readonly memory: Memory;
}

/**
 * A driver whose host has services as well: their table is there from the first service on,
 * whichever driver writes the other rules. A host without services pays nothing for them.
 */
export function serviced({ driver, table, memory }: Serving): ServicedDriver {
  const none = { ofNetwork: () => [], ofPod: () => [], ofOverlay: () => [] };
  const part = new NftablesDriver({ table, memory, configured: false, ...none });
  const slots = new KnownSlots();
  const isMade = (): boolean => table.exists || memory.madeTable(table.model.name);
  return {
    ...driver,
    compareServices: async (services, signal) => {
      if (services.length === 0 && !isMade()) return [];
      return part.compareWhole(slots.ofAll(services), services.flatMap(serviceChains), signal);
    },
    compareRemoval: async (removed, signal) => {
      const changes = await driver.compareRemoval(removed, signal);
      // A podnetd that lost its state has left a table without a record: a sweep looks for it.
      if (isMade() || removed({ kind: "service", key: "" }))
        changes.push(...(await part.compareRemoval(removed, signal)));
      return changes;
    },
    serves: isMade,
    describeService: (service) => [
      ...serviceChains(service).flatMap(({ name, rules }) =>
        rules.map((rule) => `nftables ${name} ${rule}`),
      ),
      ...serviceElements(service).map((each) => `nftables ${each.set} ${elementText(each)}`),
    ],
  };
}
