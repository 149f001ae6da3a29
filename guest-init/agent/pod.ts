import { PodnetError } from "../../core/errors.ts";
import { type StartPod, parseStartPod } from "../protocol/pod-messages.ts";
import type { Interfaces } from "./network/interfaces.ts";
import { setHostname } from "./machine.ts";
import { type Reply, done } from "./reply.ts";
import { setResolver } from "./network/resolver-file.ts";

/**
 * STARTPOD. The share that carries containers' root file systems is not mounted: this agent runs no
 * containers, and Debian's cloud kernel has no 9p. (A hyperstart powers off when it cannot mount
 * it.)
 */
export async function startPod(payload: Uint8Array, interfaces: Interfaces): Promise<Reply> {
  const pod = parseStartPod(payload);
  refuseUnsupported(pod);
  for (const setup of pod.interfaces) await interfaces.apply(setup);
  interfaces.loopbackUp();
  await interfaces.applyRoutes(pod.routes);
  if (pod.hostname !== undefined) setHostname(pod.hostname);
  if (pod.dns.length + pod.dnsSearch.length + pod.dnsOptions.length > 0)
    setResolver({ servers: pod.dns, search: pod.dnsSearch, options: pod.dnsOptions });
  return done;
}

/** To say ACK to what is not done would be a lie. */
function refuseUnsupported(pod: StartPod): void {
  const refuse = (what: string, field: string): never => {
    throw new PodnetError("UNSUPPORTED", `${what} are not supported by this agent`, { field });
  };
  if (pod.containers.length > 0) refuse("Containers", "containers");
  const { internalNetworks, externalNetworks } = pod.portmappingWhiteLists;
  if (internalNetworks.length + externalNetworks.length > 0)
    refuse("Firewall rules in the guest", "portmappingWhiteLists");
}
