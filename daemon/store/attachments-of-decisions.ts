import type { DatabaseSync } from "node:sqlite";

/**
 * The step of the schema after which plans of containers hold decisions alone (plan version 2).
 * Like every step it is never edited once it is released, and so it shares no code with what works
 * with plans.
 */

/** The parts of a plan of version 1 that are read here. */
interface Plan1 {
  readonly version: unknown;
  readonly fragment: {
    readonly hostLink: string;
    readonly madeByCaller?: true;
    readonly bridge: string;
    readonly macvlan?: { readonly serviceCidr?: string };
    readonly namespace?: string;
    readonly bandwidth?: unknown;
    readonly loopback?: unknown;
    readonly settling?: true;
    readonly later?: unknown;
  };
}

/**
 * Converts the plans of all containers to version 2. An invalid plan stays unchanged: only its
 * container is refused, as before.
 */
export function attachmentsOfDecisions(db: DatabaseSync): void {
  const write = db.prepare("UPDATE attachments SET plan = ? WHERE id = ?");
  for (const { id, plan } of db.prepare("SELECT id, plan FROM attachments").all()) {
    try {
      write.run(JSON.stringify(attachmentDecisions(JSON.parse(String(plan)))), id as string);
    } catch (thrown) {
      if (!(thrown instanceof SyntaxError || thrown instanceof TypeError)) throw thrown;
    }
  }
}

/**
 * Converts a plan of version 1 to version 2; returns any other unchanged. Throws JavaScript's own
 * errors for an invalid plan.
 */
export function attachmentDecisions(stored: unknown): unknown {
  if ((stored as Plan1).version !== 1) return stored;
  const { fragment, ...plan } = stored as Plan1;
  const { hostLink, bridge, macvlan } = fragment;
  const { namespace, bandwidth, loopback, settling, later } = fragment;
  return {
    ...plan,
    version: 2,
    ...(namespace === undefined ? {} : { namespace }),
    ...(fragment.madeByCaller === true ? { hostVeth: hostLink } : {}),
    bridge,
    ...(bandwidth === undefined ? {} : { bandwidth }),
    ...(macvlan?.serviceCidr === undefined ? {} : { serviceCidr: macvlan.serviceCidr }),
    ...(loopback === undefined ? {} : { loopback }),
    ...(settling === undefined ? {} : { awaitsPlugins: settling }),
    ...(later === undefined ? {} : { later }),
  };
}
