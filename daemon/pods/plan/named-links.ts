import { bridgeAsked } from "../interfaces/kinds/bridge.ts";
import type { PodSpec } from "../../../api/pod-spec.ts";
import type { World } from "./gather.ts";
import type { Host } from "../lifecycle/host.ts";

/** The host's bridges and taps that a spec names, as they are now, without absent ones. */
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
