import { limited } from "../../../core/aborting.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Guest, GuestIdentity, OpenGuestOptions } from "../../../guest-init/channel/guest.ts";
import { aloneParkedNicOf, type ParkedNic } from "../../../guest-init/channel/parked.ts";
import { agentFeatures } from "../../../guest-init/protocol/configure.ts";
import { templateNicMac } from "../../../hypervisor/driver.ts";
import type { AwaitGuest } from "../../../hypervisor/factory/template.ts";
import { parseIfName } from "../../../core/names.ts";
import { nicWaitMs } from "./guest-config.ts";
import { reportOfEnd } from "../lifecycle/deadlines.ts";
import { consoleTailText } from "./console-tail.ts";

/** What is known of a template's guest: its clones need not be asked for it. */
export class KnownGuest {
  readonly identity: GuestIdentity;
  /** The NIC that it has parked, when it shows no other. */
  nic: ParkedNic | undefined;

  constructor(identity: GuestIdentity) {
    this.identity = identity;
  }
}

/**
 * Waits for a template's agent to send READY with its identity, and stays connected: the clone's
 * agent would look only now and then at a port without a host at the time of the cloning. Throws
 * `UNSUPPORTED` for a guest whose clones podnetd could not distinguish: a plain hyperstart, an
 * agent of an earlier podnet, or another init than podnet's agent.
 */
export function awaitTemplateGuest(
  openGuest: (options: OpenGuestOptions) => Guest,
  readyMs: number,
): AwaitGuest {
  return async (vm, signal) => {
    const [channelPath, ttyPath] = [vm.socketPath("channel"), vm.socketPath("tty")];
    const guest = openGuest({ channelPath, ttyPath, reattach: false });
    try {
      const identity = await guest.ready(limited(readyMs, signal));
      refuseUnlessItWakes(identity);
      const parks = identity.features?.includes(agentFeatures.parking) === true;
      const known = new KnownGuest(identity);
      const park = async (): Promise<void> => {
        known.nic = await parkNic(guest, limited(readyMs, signal));
      };
      return {
        known,
        ...(parks ? { parkNic: park } : {}),
        preload: (program) => guest.preload(program, limited(readyMs, signal)),
        [Symbol.asyncDispose]: () => guest.close(),
      };
    } catch (thrown) {
      await guest.close();
      if (isPodnetError(thrown, "AGENT_DISCONNECTED")) await reportOfEnd(signal);
      const error = toPodnetError(signal.aborted ? signal.reason : thrown);
      const console = consoleTailText(vm.consoleTail());
      throw error.with({ details: { console } });
    }
  };
}

async function parkNic(guest: Guest, signal: AbortSignal): Promise<ParkedNic | undefined> {
  const nic = { mac: templateNicMac, parked: true as const, name: parseIfName("eth0") };
  const interfaces = [{ ...nic, addresses: [] }];
  const config = {
    requestId: "template",
    interfaces,
    routes: [],
    neighbours: [],
    waitMs: nicWaitMs,
  };
  const observed = await guest.configure(config, signal);
  // The agent sees the NIC before its kernel has looked at the carrier: that is done when the agent
  // waits for more.
  await guest.ping(signal);
  return aloneParkedNicOf(observed);
}

function refuseUnlessItWakes({ extension, features = [] }: GuestIdentity): void {
  if (features.includes(agentFeatures.awake)) return;
  const who =
    extension === undefined
      ? "a plain hyperstart"
      : "an agent that is not the guest's init, or older than templates";
  throw new PodnetError("UNSUPPORTED", `The guest runs ${who}: its clones would share randomness`, {
    field: "boot.factory",
    hint: "Create the pod with --factory cold, or use an image with podnet's own agent as /init",
  });
}
