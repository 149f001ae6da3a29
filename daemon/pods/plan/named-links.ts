import { bridgeAsked } from "../interfaces/kinds/bridge.ts";
import type { PodSpec } from "../../../api/pod-spec.ts";
import type { World } from "./gather.ts";
import type { Host } from "../lifecycle/host.ts";

/** The links of the host that a spec names, bridges and taps, as they are now. Absent ones are not in it. */
export async function namedLinks(
  { interfaces }: Pick<PodSpec, "interfaces">,
  { network }: Pick<Host, "network">,
): Promise<World["links"]> {
  const names = interfaces
    .flatMap((each) => [bridgeAsked(each), each.tap])
    .filter((name) => name !== undefined);
  if (names.length === 0) return {};
  const links = await network.observe.links(names);
  return Object.fromEntries(links.map((link) => [link.name, link]));
}
