import { sameAddress } from "../../api/validate/ports.ts";
import { PodnetError } from "../../core/errors.ts";
import type { HostPorts } from "./store.ts";
import type { PublishedPlan } from "./published-plan.ts";
import type { PortsSnapshot } from "./ports-snapshot.ts";

/**
 * The first host port of a free run, free of pods and of other programs. `mine` are the ports of
 * the pod itself. Throws `PORTS_EXHAUSTED`.
 */
export function choosePort(
  { protocol, count, at }: PublishedPlan,
  { range, start, taken, bound }: PortsSnapshot,
  mine: readonly HostPorts[],
  field: string,
): number {
  const concerns = (one: Pick<HostPorts, "protocol" | "hostIp">): boolean =>
    one.protocol === protocol && at.some(({ hostIp }) => sameAddress(hostIp, one.hostIp));
  const busy = new Set<number>();
  for (const each of [...taken, ...mine].filter(concerns))
    for (let i = 0; i < each.count; i++) busy.add(each.hostPort + i);
  for (const each of bound.filter(concerns)) busy.add(each.hostPort);
  const size = range.last - range.first + 1;
  for (let tried = 0; tried < size; tried++) {
    const first = range.first + ((start + tried) % size);
    if (first + count - 1 > range.last) continue;
    let free = 0;
    while (free < count && !busy.has(first + free)) free++;
    if (free === count) return first;
  }
  throw new PodnetError(
    "PORTS_EXHAUSTED",
    `Of ports ${range.first} to ${range.last} ${count === 1 ? "none is" : `no ${count} in a row are`} free`,
    {
      field: `${field}.host_port`,
      hint: "Name the host port, unpublish others, or set publish_ports to a larger range",
      details: { first: range.first, last: range.last, count },
    },
  );
}
