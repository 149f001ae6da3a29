import type { HostObservations } from "../../network/bridge/observations.ts";

/** A port of a pod or container. */
interface GuardedPort {
  /** The interface's name inside. */
  readonly interface: string;
  readonly link: string;
}

/** What the host dropped and refused at these ports, by kind. Throws `FIREWALL_FAILED`. */
export async function guardCounts(
  ports: readonly GuardedPort[],
  observe: Pick<HostObservations, "drops" | "refusals">,
  signal: AbortSignal,
) {
  const counted = [...(await observe.drops(signal)), ...(await observe.refusals(signal))];
  return ports.flatMap(({ interface: name, link }) =>
    counted
      .filter((each) => each.link === link && each.packets > 0)
      .map(({ kind, packets, bytes }) => ({
        interface: name,
        kind,
        packets: BigInt(packets),
        bytes: BigInt(bytes),
      })),
  );
}
