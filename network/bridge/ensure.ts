import { readFileSync } from "node:fs";
import type { Family } from "../../core/address.ts";
import { isPodnetError, type PodnetError, toPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { applyAll, throwFailures } from "./apply.ts";
import type { Change } from "../model/change.ts";
import { changesText } from "./change-text.ts";
import {
  compareDetached,
  compareDown,
  compareFragment,
  compareKnown,
  compareRemoval,
  compareUnforwarded,
  compareUnpublished,
  type Comparison,
  fingerprint,
  type HostFacts,
  observeFacts,
  type View,
} from "./compare.ts";
import { describeFragment } from "./describe.ts";
import { forgetNeighbours } from "./diff-pod.ts";
import type {
  Fragment,
  FragmentKey,
  NetworkFragment,
  PluggedFragment,
  PortDesired,
} from "../model/desired.ts";
import { endFlows, endWithdrawn } from "./flows.ts";
import { type Inspection, inspect, type InspectOptions, nothingFound } from "./inspect.ts";
import { type HealRules, inspectRules } from "./inspect-rules.ts";
import { type FirewallName, openFirewall } from "../firewall/open.ts";
import type { Variant } from "../model/rules.ts";
import { type HostKernel, openHostKernel } from "../kernel/kernel.ts";
import { Memory, type Remembered } from "../kernel/memory.ts";
import { observeLink, observeNamed, observePorts, observeRouter } from "./observe.ts";
import type { Obstacle } from "../model/obstacle.ts";
import { observeObstacles } from "../firewall/obstacles.ts";
import { observeOverlaps, type Overlap } from "./overlap.ts";
import type { NamedLink, ObservedRouter } from "../model/observed.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import type { OverlayRules } from "./overlay-rules.ts";
import { SerialQueue } from "../kernel/queue.ts";
import type { Known } from "./sweep.ts";

export interface HostNetworkOptions {
  /** `iptables_variant`; `off` (`disable_iptables`) runs no firewall command at all. */
  readonly iptables: "auto" | Variant | "off";
  /** What writes the rules, when anything does; `iptables` unless given. */
  readonly firewall?: FirewallName;
  /** `iptables_chain`, already parsed with `parseChainName`. */
  readonly chain: string;
  /** What an earlier run gave to `remember`. Void if it is of another boot. */
  readonly remembered?: Remembered | undefined;
  /** Stores what is to be remembered, before the change is made; synchronous, and may throw to prevent it. */
  readonly remember?: (value: Remembered) => void;
  /** What bridges' MACs are derived from; the machine's id unless given. */
  readonly hostSeed?: string;
  /** What is looked at and changed; the real one unless given. */
  readonly kernel?: HostKernel;
  /** Told why rules are compared and written once more; what fails then, too, is thrown. */
  readonly repeated?: (failure: PodnetError) => void;
}

/** The host's network as podnet sees it: the one way the kernel is changed. Changes are made one call at a time. */
export interface HostNetwork extends AsyncDisposable {
  /**
   * Observes the fragment's part of the host and makes it what it should be. Gives the changes made; none when it was
   * so already. Stops at the first failure: what is done stays, and `remove` or another `ensure` deals with it. Only
   * where a bridge of somebody else is missing, all but the ports on it is done first.
   *
   * Throws `BRIDGE_CONFLICT`, `BRIDGE_FULL`, `CHAIN_CONFLICT`, `FIREWALL_AMBIGUOUS`, `FIREWALL_FAILED`,
   * `NAME_IN_USE`, `NETLINK_FAILED`, `SYSCALL_FAILED`, `CANCELLED`.
   */
  ensure(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]>;
  /**
   * Takes away everything the fragment may have made; absent is success. An adopted bridge stays. Goes on past
   * failures and throws the first of them, with the others as its cause.
   */
  remove(target: Fragment | FragmentKey, signal: AbortSignal): Promise<readonly Change[]>;
  /**
   * Ends what still passes by what the pod has published and does not any more, its rules being gone: a flow that has
   * begun is asked about no rule. Absent is success.
   */
  withdraw(pod: PluggedFragment): Promise<void>;
  /** Ends what passes by the pods' addresses, their links and rules being gone. Absent is success. */
  endFlows(pods: readonly PluggedFragment[]): Promise<void>;
  /**
   * Takes away the rules for what is published of who is going, and the host's memory of where its addresses were; looks at
   * no link. Absent is success.
   */
  unpublish(fragment: PluggedFragment, signal: AbortSignal): Promise<readonly Change[]>;
  /** Takes away the host's memory of where the ports' addresses were: their guests have them no more. Absent is success. */
  forget(ports: readonly PortDesired[], signal: AbortSignal): Promise<readonly Change[]>;
  /** Puts back forwarding of families that no network has any more. */
  unforward(families: readonly Family[], signal: AbortSignal): Promise<readonly Change[]>;
  /** Takes a pod's ports, or one of them, off their bridges: no traffic from here on. Absent is success. */
  detach(
    target: { readonly pod: string; readonly tap?: IfName },
    signal: AbortSignal,
  ): Promise<readonly Change[]>;
  /** The changes `ensure` would make now: the drift. Throws as it would. */
  diff(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]>;
  /**
   * Looks for drift and heals it if asked to. `now` is called when it is this look's turn, so that what was asked for
   * before is done: it answers undefined when there is nothing to look at any more.
   */
  inspect(
    now: () => Fragment | undefined,
    options: InspectOptions,
    signal: AbortSignal,
  ): Promise<Inspection>;
  /**
   * Looks for drift of the rules of all pods that `now` answers when it is this look's turn, and heals what it is asked to. Answers
   * what came of those that were not as planned. Throws `FIREWALL_FAILED`, `CANCELLED`.
   */
  inspectRules(
    now: () => readonly PluggedFragment[],
    heal: HealRules,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<PluggedFragment, Inspection>>;
  /** Text that is another one whenever something may have changed that rtnetlink does not tell of; cheap. */
  fingerprint(fragments: readonly NetworkFragment[], signal: AbortSignal): Promise<string>;
  /** The changes `diff` gives, as text. */
  plan(fragment: Fragment, signal: AbortSignal): Promise<readonly string[]>;
  /** What the fragment is to look like, as text, without looking at the host. */
  describe(fragment: Fragment): readonly string[];
  /** What rules of a pod go and come with a change of what it has published, as text, without looking at the host. */
  describeRules(before: PluggedFragment, after: PluggedFragment): readonly string[];
  /**
   * After the firewall's driver was changed, before anything else: gives the new one's rules to what pods have
   * published, so that no network lets it in no more for a moment. What cannot be done is left to `ensure`, which says
   * why. The other driver's rules stay until `sweep`.
   */
  publishFirst(pods: readonly PluggedFragment[], signal: AbortSignal): Promise<void>;
  /** Takes away what bears our mark and has no row. What bears no mark is never touched. */
  sweep(known: Known, signal: AbortSignal): Promise<readonly Change[]>;
  /** Takes away all that is ours and puts back what we changed of others'. */
  down(signal: AbortSignal): Promise<readonly Change[]>;
  /** What of the host shares addresses with a network that is to be made. */
  overlaps(fragment: NetworkFragment): Promise<readonly Overlap[]>;
  /** The links of these names, as far as they are there. */
  observeNamed(names: readonly IfName[]): Promise<readonly NamedLink[]>;
  /** The host's end of a bridge, from which guests there are answered; undefined when there is no such link. */
  observeRouter(bridge: IfName): Promise<ObservedRouter | undefined>;
  /** Ports the bridge has now, for `checkPortRoom`; 0 when there is no such link. */
  observePortCount(bridge: IfName): Promise<number>;
  /** What matters about the host beside our own, for `podnet info` and error reports. Throws `FIREWALL_FAILED`. */
  observeFacts(signal: AbortSignal): Promise<HostFacts>;
  /** Chains of others that drop what is forwarded to these networks; none are looked for but by nftables' driver. */
  observeObstacles(
    networks: readonly NetworkFragment[],
    signal: AbortSignal,
  ): Promise<readonly Obstacle[]>;
  /** Why parts of the guard are not in force on this host, a line each. Known once a network has been made. */
  readonly guardLacking: readonly string[];
  /** Rules of overlays, in turn with all others; for `Overlays`. */
  readonly overlayRules: OverlayRules;
  /** What has to be remembered to undo our changes; the same that `remember` was last given. */
  readonly remembered: Remembered;
}

/** Opens the network of the calling thread's namespace. Changes nothing by itself. */
export function openHostNetwork(options: HostNetworkOptions): HostNetwork {
  return new OpenHostNetwork(options);
}

class OpenHostNetwork implements HostNetwork {
  readonly #view: View;
  readonly #kernel: HostKernel;
  readonly #queue = new SerialQueue();
  readonly #repeated: HostNetworkOptions["repeated"];

  constructor(options: HostNetworkOptions) {
    this.#repeated = options.repeated;
    const { iptables, chain, hostSeed = machineId(), kernel = openHostKernel() } = options;
    this.#kernel = kernel;
    const memory = new Memory(kernel.identity, options.remembered, options.remember);
    const { firewall = "iptables" } = options;
    const opened = openFirewall({ kernel, memory, firewall, iptables, chain });
    this.#view = { ...kernel, ...opened, hostSeed, memory };
  }

  get overlayRules(): OverlayRules {
    const { firewall } = this.#view;
    const compare = (overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]> =>
      firewall.compareOverlay(overlay, signal);
    return {
      ensure: (overlay, signal) =>
        this.#queue.run(async () => {
          const done: Change[] = [];
          await this.#converge(() => compare(overlay, signal), done, false, signal);
          return done;
        }, signal),
      follow: (change, signal) =>
        this.#queue.run(async () => {
          const done: Change[] = [];
          const news = (): Promise<Change[]> => firewall.compareSenders(change, signal);
          await this.#converge(news, done, false, signal);
          return done;
        }, signal),
      diff: (overlay, signal) => this.#queue.run(() => compare(overlay, signal), signal),
      remove: (doomed, signal) =>
        this.#takeAway(
          [
            () =>
              firewall.compareRemoval(({ kind, key }) => kind === "overlay" && doomed(key), signal),
          ],
          signal,
        ),
      describe: (overlay) => firewall.describeOverlay(overlay),
    };
  }

  get guardLacking(): readonly string[] {
    return this.#view.guardLacking();
  }

  get remembered(): Remembered {
    return this.#view.memory.value;
  }

  ensure(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#queue.run(async () => {
      const done: Change[] = [];
      const failures: unknown[] = [];
      for (let left: Fragment | undefined = fragment; left !== undefined; ) {
        const part: Fragment = left;
        left = undefined;
        try {
          await this.#converge(compareFragment(this.#view, part), done, false, signal);
        } catch (error) {
          failures.push(error);
          left = withoutMissing(part, error);
        }
      }
      if (failures.length > 0) throw failures[0];
      return done;
    }, signal);
  }

  remove(target: Fragment | FragmentKey, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway(compareRemoval(this.#view, target), signal);
  }

  // (Beside the queue: it changes nothing that is compared, and the kernel takes its time.)
  withdraw(pod: PluggedFragment): Promise<void> {
    return endWithdrawn(pod, this.#view.conntrack);
  }

  endFlows(pods: readonly PluggedFragment[]): Promise<void> {
    return endFlows(pods, this.#view.conntrack);
  }

  unpublish(fragment: PluggedFragment, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway(compareUnpublished(this.#view, fragment), signal);
  }

  forget(ports: readonly PortDesired[], signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway([() => Promise.resolve(forgetNeighbours(ports))], signal);
  }

  unforward(families: readonly Family[], signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway([compareUnforwarded(this.#view, families)], signal);
  }

  detach(
    target: { readonly pod: string; readonly tap?: IfName },
    signal: AbortSignal,
  ): Promise<readonly Change[]> {
    return this.#takeAway([compareDetached(this.#view, target)], signal);
  }

  diff(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#queue.run(() => compareFragment(this.#view, fragment)(signal), signal);
  }

  inspect(
    now: () => Fragment | undefined,
    options: InspectOptions,
    signal: AbortSignal,
  ): Promise<Inspection> {
    return this.#queue.run(async () => {
      const fragment = now();
      if (fragment === undefined) return nothingFound;
      return inspect(this.#view, fragment, options, signal);
    }, signal);
  }

  inspectRules(
    now: () => readonly PluggedFragment[],
    heal: HealRules,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<PluggedFragment, Inspection>> {
    return this.#queue.run(() => inspectRules(this.#view, now(), heal, signal), signal);
  }

  fingerprint(fragments: readonly NetworkFragment[], signal: AbortSignal): Promise<string> {
    return this.#queue.run(() => fingerprint(this.#view, fragments, signal), signal);
  }

  async plan(fragment: Fragment, signal: AbortSignal): Promise<readonly string[]> {
    return changesText(await this.diff(fragment, signal));
  }

  describe(fragment: Fragment): readonly string[] {
    const { hostSeed, firewall } = this.#view;
    return [...describeFragment(fragment, hostSeed), ...firewall.describe(fragment)];
  }

  describeRules(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    return this.#view.firewall.describeChange(before, after);
  }

  publishFirst(pods: readonly PluggedFragment[], signal: AbortSignal): Promise<void> {
    return this.#queue.run(async () => {
      if (!this.#view.switching()) return;
      for (const pod of pods) {
        if (pod.published === undefined) continue;
        const rules: Comparison = () => this.#view.firewall.comparePod(pod, signal);
        try {
          await this.#converge(rules, [], false, signal);
        } catch (error) {
          if (!isPodnetError(error) || isPodnetError(error, "CANCELLED")) throw error;
        }
      }
    }, signal);
  }

  sweep(known: Known, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway(compareKnown(this.#view, known), signal);
  }

  down(signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway(compareDown(this.#view), signal);
  }

  overlaps(fragment: NetworkFragment): Promise<readonly Overlap[]> {
    return observeOverlaps(this.#view.netlink, fragment);
  }

  observeRouter(bridge: IfName): Promise<ObservedRouter | undefined> {
    return observeRouter(this.#view.netlink, bridge);
  }

  async observeNamed(names: readonly IfName[]): Promise<readonly NamedLink[]> {
    const { netlink } = this.#view;
    const found = await Promise.all(names.map((name) => observeNamed(netlink, name)));
    return found.filter((link) => link !== undefined);
  }

  async observePortCount(bridge: IfName): Promise<number> {
    const { netlink } = this.#view;
    const link = await observeLink(netlink, bridge);
    return link === undefined ? 0 : observePorts(netlink, link.index);
  }

  observeFacts(signal: AbortSignal): Promise<HostFacts> {
    return observeFacts(this.#view, signal);
  }

  async observeObstacles(
    networks: readonly NetworkFragment[],
    signal: AbortSignal,
  ): Promise<readonly Obstacle[]> {
    if ((await this.#view.firewall.facts(signal)) !== "nftables") return [];
    return observeObstacles(this.#kernel, networks, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue.idle();
    this.#view.netlink.close();
    this.#view.ruleTable.close();
    await this.#view.conntrack.close();
  }

  /** Takes away part by part; what cannot be seen or removed does not save the rest. */
  #takeAway(parts: readonly Comparison[], signal: AbortSignal): Promise<readonly Change[]> {
    return this.#queue.run(async () => {
      const done: Change[] = [];
      const failures: PodnetError[] = [];
      for (const part of parts) {
        try {
          await this.#converge(part, done, true, signal);
        } catch (error) {
          failures.push(toPodnetError(error));
        }
      }
      throwFailures(failures);
      return done;
    }, signal);
  }

  /**
   * Compares and applies. Between reading the firewall and writing it another program may have written it, so that a
   * position or a rule is no longer there and the commit is refused whole: then tells of it and compares once more.
   */
  async #converge(
    compare: Comparison,
    done: Change[],
    keepGoing: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const apply = async (): Promise<void> =>
      applyAll(await compare(signal), this.#view, signal, { keepGoing, done });
    try {
      await apply();
    } catch (error) {
      if (!isPodnetError(error, "FIREWALL_FAILED")) throw error;
      this.#repeated?.(error);
      await apply();
    }
  }
}

/** What of a pod can be had without the bridge of somebody else whose absence this failure tells of, if it does. */
function withoutMissing(fragment: Fragment, failure: unknown): PluggedFragment | undefined {
  if (fragment.kind === "network" || !isPodnetError(failure, "BRIDGE_CONFLICT")) return undefined;
  const { bridge } = failure.details;
  const ports = fragment.ports.filter((port) => port.foreign !== true || port.bridge !== bridge);
  const some = ports.length > 0 || fragment.published !== undefined;
  return some && ports.length < fragment.ports.length ? { ...fragment, ports } : undefined;
}

/** systemd's machine id: stable over reboots and, unlike a MAC, there before any link. */
function machineId(): string {
  try {
    return readFileSync("/etc/machine-id", "latin1").trim();
  } catch {
    return "";
  }
}
