import { readFileSync } from "node:fs";
import { isPodnetError, type PodnetError, toPodnetError } from "../../core/errors.ts";
import { openFirewall } from "../firewall/open.ts";
import { type PolicyOf, usualRelayPort } from "../firewall/policed.ts";
import { openHostKernel } from "../kernel/kernel.ts";
import { Memory, type Remembered } from "../kernel/memory.ts";
import { SerialQueue } from "../kernel/queue.ts";
import type { Change } from "../model/change.ts";
import type { Fragment, PluggedFragment } from "../model/desired.ts";
import { type ServiceDesired, servedAddresses } from "../model/service.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import { applyAll, throwFailures } from "./apply.ts";
import {
  compareFilters,
  compareFragment,
  compareHairpins,
  comparePublished,
  type Comparison,
  type View,
} from "./compare.ts";
import { describeFragment } from "./describe.ts";
import { ipv6ForwardKey } from "./diff-network.ts";
import { type Served, servedOtherwise } from "./hairpin.ts";
import { endBypassing, endDenied, endFlows, endWithdrawn } from "./flows.ts";
import type { Desired, HostNetwork, HostNetworkOptions, ServiceChange } from "./host-network.ts";
import {
  type Inspection,
  inspect,
  inspectBy,
  type InspectOptions,
  nothingFound,
} from "./inspect.ts";
import { type HealRules, inspectRules } from "./inspect-rules.ts";
import { type HostObservations, hostObservations } from "./observations.ts";
import { readOptional } from "./observe.ts";
import type { OverlayRules } from "./overlay-rules.ts";
import { compareRemoval, type Removal } from "./removal.ts";

/** Opens the network of the calling thread's namespace. Changes nothing by itself. */
export function openHostNetwork(options: HostNetworkOptions): HostNetwork {
  return new OpenHostNetwork(options);
}

class OpenHostNetwork implements HostNetwork {
  readonly #policyOf: PolicyOf;
  readonly #relayPort: number;
  readonly #view: View;
  readonly observe: HostObservations;
  readonly #queue = new SerialQueue();
  readonly #repeated: HostNetworkOptions["repeated"];
  /**
   * The marks of ports whose rules of policies have changed since their links were last looked at
   * for it; undefined before the first look, which is at all of them.
   */
  #changedPorts: Set<string> | undefined;
  #served: Served;

  constructor(options: HostNetworkOptions) {
    this.#repeated = options.repeated;
    const { hostSeed = machineId(), kernel = openHostKernel() } = options;
    const memory = new Memory(kernel.identity, options.remembered, options.remember);
    const { firewall = "iptables" } = options;
    const { policyOf = () => undefined, relayPort = usualRelayPort } = options;
    [this.#policyOf, this.#relayPort] = [policyOf, relayPort];
    const forwards6 = (): boolean => readOptional(kernel.sysctl, ipv6ForwardKey) === "1";
    const ruled = { policyOf, relayPort, forwards6 };
    const opened = openFirewall({ ...options, kernel, memory, firewall, hostSeed, ...ruled });
    const served = (): Served => this.#served;
    this.#view = { ...kernel, ...opened, policyOf, served, hostSeed, memory };
    this.observe = hostObservations(this.#view, kernel, (look, signal) =>
      this.#queue.run(look, signal),
    );
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
          const compareChange = (): Promise<Change[]> => firewall.compareSenders(change, signal);
          await this.#converge(compareChange, done, false, signal);
          return done;
        }, signal),
      diff: (overlay, signal) => this.#queue.run(() => compare(overlay, signal), signal),
      remove: (isOwned, signal) =>
        this.#takeAway(
          [
            () =>
              firewall.compareRemoval(
                ({ kind, key }) => kind === "overlay" && isOwned(key),
                signal,
              ),
          ],
          signal,
        ),
      describe: (overlay) => firewall.describeOverlay(overlay),
    };
  }

  get remembered(): Remembered {
    return this.#view.memory.value;
  }

  async apply(desired: Desired, signal: AbortSignal): Promise<readonly Change[]> {
    const done = await this.#queue.run<readonly Change[]>(
      () =>
        desired.kind === "running-pods"
          ? this.#prepare(desired.pods, signal)
          : desired.kind === "policies"
            ? this.#police(desired.now(), signal)
            : desired.kind === "learning"
              ? this.#learn(desired.pod, signal)
              : desired.kind === "services"
                ? this.#serve(desired, signal)
                : desired.kind === "published"
                  ? this.#converged(comparePublished(this.#view, desired.pod, desired.had), signal)
                  : this.#apply(desired, signal),
      signal,
    );
    // Not in the queue, as all that ends flows.
    if (desired.kind === "services") await endBypassing(done, this.#view.conntrack);
    return done;
  }

  async remove(target: Removal, signal: AbortSignal): Promise<readonly Change[]> {
    // Not in the queue: it changes nothing that is compared, and takes the kernel long.
    if (target.kind === "connections")
      await endFlows(target.of, this.#view.conntrack, this.#view.firewall.serves());
    else if (target.kind === "withdrawn-connections")
      await endWithdrawn(target.of, this.#view.conntrack);
    else if (target.kind === "denied-connections")
      await endDenied(target.of, this.#policyOf, this.#relayPort, this.#view.conntrack);
    else return this.#takeAway(compareRemoval(this.#view, target), signal);
    return [];
  }

  describe(fragment: Fragment, before?: PluggedFragment): readonly string[] {
    const { hostSeed, firewall } = this.#view;
    if (before !== undefined && fragment.kind !== "network")
      return firewall.describeChange(before, fragment);
    return [...describeFragment(fragment, hostSeed), ...firewall.describe(fragment)];
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

  inspectServices(
    now: () => readonly ServiceDesired[],
    heal: InspectOptions["heal"],
    signal: AbortSignal,
  ): Promise<Inspection> {
    return this.#queue.run(() => {
      const services = now();
      const compare: Comparison = () => this.#view.firewall.compareServices(services, signal);
      return inspectBy(compare, this.#view, [], heal, signal);
    }, signal);
  }

  describeService(service: ServiceDesired): readonly string[] {
    return this.#view.firewall.describeService(service);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue.idle();
    this.#view.netlink.close();
    this.#view.ruleTable.close();
    await this.#view.conntrack.close();
  }

  async #apply(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]> {
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
  }

  async #prepare(
    pods: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly Change[]> {
    const done: Change[] = [];
    const { firewall, switching } = this.#view;
    const parts: Comparison[] = [() => firewall.comparePorts(pods, signal)];
    if (switching())
      for (const pod of pods)
        if (pod.published !== undefined) parts.push(() => firewall.comparePod(pod, signal));
    for (const part of parts) {
      try {
        await this.#converge(part, done, false, signal);
      } catch (error) {
        if (!isPodnetError(error) || isPodnetError(error, "CANCELLED")) throw error;
      }
    }
    return done;
  }

  async #police(pods: readonly PluggedFragment[], signal: AbortSignal): Promise<readonly Change[]> {
    const done: Change[] = [];
    const policies: Comparison = () => this.#view.firewall.comparePolicies(pods, signal);
    try {
      await this.#converge(policies, done, false, signal);
    } finally {
      for (const mark of elementOwners(done)) this.#changedPorts?.add(mark);
    }
    // Links cost much to look at: those of the pods whose rules have changed are.
    const changed = this.#changedPorts;
    const some = pods.filter(({ ports }) =>
      ports.some(({ alias }) => changed?.has(alias) !== false),
    );
    // Not before the rules: the kernel would take whoever sends next for the one that has opened a
    // connection, and the rules would take the other for one that answers.
    await this.#converge(() => compareFilters(this.#view, some), done, false, signal);
    await this.#converge(() => this.#compareHairpins(some), done, false, signal);
    this.#changedPorts = new Set();
    return done;
  }

  async #learn(pod: PluggedFragment | undefined, signal: AbortSignal): Promise<readonly Change[]> {
    const { firewall } = this.#view;
    return this.#converged(() => firewall.compareLearning(pod, signal), signal);
  }

  /** The changes that one comparison led to. */
  async #converged(compare: Comparison, signal: AbortSignal): Promise<readonly Change[]> {
    const done: Change[] = [];
    await this.#converge(compare, done, false, signal);
    return done;
  }

  async #serve({ now, pods }: ServiceChange, signal: AbortSignal): Promise<readonly Change[]> {
    const [services, before] = [now(), this.#served];
    const done = await this.#converged(
      () => this.#view.firewall.compareServices(services, signal),
      signal,
    );
    const after = servedAddresses(services);
    const some = pods().filter((pod) => servedOtherwise(pod, before, after));
    this.#served = after;
    try {
      const hairpins = await this.#converged(() => this.#compareHairpins(some), signal);
      return [...done, ...hairpins];
    } catch (thrown) {
      // All ports are looked at by the next change.
      this.#served = undefined;
      throw thrown;
    }
  }

  async #compareHairpins(pods: readonly PluggedFragment[]): Promise<Change[]> {
    return [...(await compareHairpins(this.#view, pods)).values()].flat();
  }

  /** Removes part by part; what cannot be seen or removed does not save the rest. */
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
   * Compares and applies. Another program may write rules between our read and our write: then a
   * position or a rule is missing and the commit is refused as a whole. That is reported, and
   * compared once more.
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

/** The marks of all elements that changes have added or removed. */
const elementOwners = (changes: readonly Change[]): readonly string[] =>
  changes.flatMap((change) =>
    change.kind === "nftables"
      ? [...change.remove, ...change.add].flatMap(({ owner }) => owner ?? [])
      : [],
  );

/** The part of a pod that does not need the foreign bridge whose absence failed it, if any. */
function withoutMissing(fragment: Fragment, failure: unknown): PluggedFragment | undefined {
  if (fragment.kind === "network" || !isPodnetError(failure, "BRIDGE_CONFLICT")) return undefined;
  const { bridge } = failure.details;
  const ports = fragment.ports.filter((port) => port.foreign !== true || port.bridge !== bridge);
  const some = ports.length > 0 || fragment.published !== undefined;
  return some && ports.length < fragment.ports.length ? { ...fragment, ports } : undefined;
}

/** systemd's machine id: stable over reboots and, unlike a MAC, there before any link. */
export function machineId(): string {
  try {
    return readFileSync("/etc/machine-id", "latin1").trim();
  } catch {
    return "";
  }
}
