import { toPodnetError } from "../../../core/errors.ts";
import type { IpPrefix } from "../../../core/address.ts";
import type { ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import type { PortLease } from "../../dhcp/lease.ts";
import type { Host } from "../lifecycle/host.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { guestOf } from "../guest/guest-of.ts";
import { type NicInterface, staying, withNic } from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";
import type { Supervision } from "../lifecycle/supervision.ts";

/**
 * Answers a guest's DHCP requests on one of its ports until the pod is let go of, and notes the
 * addresses that the guest uses. Throws `SYSCALL_FAILED`. Returns the addresses, for people.
 */
export function answerPort(live: LivePod, each: NicInterface, host: Host): string {
  const lease = leaseNow(live, each, host);
  const { bridge, position } = each;
  if (lease === undefined || bridge === undefined || live.answers.has(position)) return "";
  live.answers.set(
    position,
    host.openAnswers({
      link: each.nic.tap,
      lease,
      router: () => host.network.observe.router(bridge),
      taken: (addresses) => noteTaken(live, each, addresses, host),
      ignored: (why) => host.dropped(why),
      note: (text) => host.noteGuest(live, text),
      failed: (error) =>
        host.noteGuest(live, `not answered, trying again: ${toPodnetError(error).message}`),
    }),
  );
  return each.addresses.join(" ");
}

/** A port's lease, with its network as it is now; undefined where podnetd does not answer. */
const leaseNow = (
  pod: PodContents,
  each: NicInterface,
  { networks }: Pick<Host, "networks">,
): PortLease | undefined => guestOf(pod.plan).lease(guestConfigOf(pod), each, networks.list());

/**
 * Answers every port of a running pod that is not answered yet; a failure makes the pod degraded.
 */
export function answerAgain(live: LivePod, { host, records, log }: Supervision): void {
  for (const each of withNic(staying(live.plan.interfaces))) {
    if (!live.plugged.has(each.position)) continue;
    try {
      answerPort(live, each, host);
    } catch (thrown) {
      log.error({ pod_id: live.plan.podId, err: thrown }, "Cannot answer the guest");
      records.degraded(live.plan, `${each.guestName} is not answered`, thrown);
    }
  }
}

/**
 * After a change of a pod: replaces the answers of ports whose lease differs from the earlier
 * plan's. The guest gets the new lease when it next asks.
 */
export function answerOtherwise(live: LivePod, before: PodContents, watch: Supervision): void {
  for (const each of withNic(staying(live.plan.interfaces))) {
    const lease = (pod: PodContents): string => JSON.stringify(leaseNow(pod, each, watch.host));
    if (lease(before) !== lease(live)) answerNoMore(live, each.position);
  }
  answerAgain(live, watch);
}

/** Ends the answers of an interface, or of all. */
export function answerNoMore(live: LivePod, position?: number): void {
  for (const [at, answers] of live.answers) {
    if (position !== undefined && at !== position) continue;
    answers[Symbol.dispose]();
    live.answers.delete(at);
  }
}

/** Reports the addresses that a guest is seen to use, once. */
function noteTaken(
  live: LivePod,
  { nic: { mac }, guestName }: NicInterface,
  addresses: readonly IpPrefix[],
  host: Host,
): void {
  const had = live.observed?.interfaces.find((each) => each.mac === mac)?.addresses ?? [];
  const more = addresses.filter((address) => !had.includes(address));
  if (more.length === 0) return;
  const others = live.observed?.interfaces.filter((each) => each.mac !== mac) ?? [];
  const shown = { name: guestName, mac, index: 0, mtu: 0, up: true, addresses: [...had, ...more] };
  live.observed = { ...nothing(live), interfaces: [...others, shown] };
  host.noteGuest(live, `${guestName} has taken ${more.join(" ")}`);
}

/** For a guest without reports of its own. */
const nothing = ({ plan }: LivePod): ObservedGuest => ({
  requestId: plan.podId,
  hostname: "",
  dns: { servers: [], search: [], options: [] },
  interfaces: [],
  routes: [],
  clockMs: 0,
  agentRssKib: 0,
});
