import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { JoinDesired } from "../../../network/tc-redirect/redirect.ts";
import type { SandboxPlan } from "./cni-plan.ts";
import type { Host } from "../lifecycle/host.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { withoutTaken, withSandbox, withTaken } from "./plan-taken.ts";
import { type CniInterface, type PodPlan, withCni } from "../store/pod-plan.ts";
import { dnsOf } from "./sandboxes.ts";

/**
 * Makes the namespaces of a pod and has CNI plugins set them up, one after the other. The row says
 * that a namespace is begun before its plugins run, and their result after: a DEL needs it.
 */
export async function addSandboxes(
  live: LivePod,
  host: Host,
  signal: AbortSignal,
): Promise<string> {
  const names: string[] = [];
  for (const { position, cni } of withCni(live.plan.interfaces)) {
    const { sandbox } = cni;
    if (sandbox === undefined) continue;
    const begun = notReleased(sandbox);
    if (sandbox.released === true)
      host.learn(live, "CNI plugins are asked again", (pod) => withSandbox(pod, position, begun));
    const result = await host.sandboxes.add({ ...cni, sandbox: begun }, signal);
    host.learn(live, "CNI plugins have answered", (pod) =>
      withSandbox(pod, position, { ...begun, result }),
    );
    names.push(cni.netns);
  }
  return names.join(" ");
}

/**
 * Redirects links in namespaces to the machine's taps, and adopts their MACs, addresses and routes.
 */
export async function joinSandboxes(
  live: LivePod,
  host: Host,
  signal: AbortSignal,
): Promise<string> {
  const addresses: string[] = [];
  for (const each of withCni(live.plan.interfaces)) {
    const { tap, taken } = await host.sandboxes.join(joinOf(each), signal);
    live.taps.set(each.position, tap);
    const { sandbox } = each.cni;
    const dns = sandbox === undefined ? undefined : dnsOf(sandbox);
    host.learn(live, `in the place of ${each.cni.link} of ${each.cni.netns}`, (pod) =>
      withTaken(pod, each.position, taken, dns),
    );
    addresses.push(...taken.addresses);
  }
  return addresses.join(" ");
}

/** Gives links back to their namespaces. Absent is success. */
export async function leaveSandboxes(live: LivePod, host: Host): Promise<void> {
  await all(withCni(live.plan.interfaces), (each) => host.sandboxes.leave(joinOf(each)));
}

/**
 * Has CNI plugins undo what they did, and removes podnet's own namespaces. The pod no longer has
 * what its guest took from the links. When a plugin fails, its namespace stays and the plugin is
 * asked again.
 */
export async function releaseSandboxes(live: LivePod, host: Host): Promise<void> {
  await all(withCni(live.plan.interfaces), async ({ position, cni }) => {
    const { sandbox } = cni;
    if (sandbox === undefined || sandbox.released === true) return;
    await host.sandboxes.release({ ...cni, sandbox });
    const released: SandboxPlan = { ...notReleased(sandbox), released: true };
    host.learn(live, "CNI plugins have taken back what they did", (pod) =>
      withSandbox({ plan: withoutTaken(pod.plan, position) }, position, released),
    );
  });
}

/** Removes the namespaces with their contents. Only for pods whose plugins are not asked again. */
export function dropSandboxes({ interfaces }: PodPlan, host: Host): void {
  for (const { cni } of withCni(interfaces))
    if (cni.sandbox !== undefined) host.sandboxes.remove(cni.netns);
}

/** The sandbox as it was before any ADD. */
const notReleased = ({
  released: _released,
  result: _result,
  ...sandbox
}: SandboxPlan): SandboxPlan => sandbox;

/** The redirect of an interface: its tap, and the link with its namespace. */
export const joinOf = ({ cni: { netns, link }, nic: { tap } }: CniInterface): JoinDesired => ({
  netns,
  link,
  tap,
});

/** Acts on all interfaces, also after a failure, and throws the first failure. */
async function all(
  interfaces: readonly CniInterface[],
  act: (each: CniInterface) => Promise<void>,
): Promise<void> {
  const errors: PodnetError[] = [];
  for (const each of interfaces)
    await act(each).catch((thrown: unknown) => errors.push(toPodnetError(thrown)));
  const [first] = errors;
  if (first !== undefined) throw first;
}
