import { readFileSync } from "node:fs";
import { isPodnetError, type PodnetError, toPodnetError } from "../core/errors.ts";
import type { IfName } from "../core/names.ts";
import { Rtnetlink } from "../linux/rtnetlink-socket.ts";
import { readSysctl } from "../linux/sysctl.ts";
import { applyAll, type Kernel, throwFailures } from "./apply.ts";
import { type Change, changesText } from "./change.ts";
import { describeFragment } from "./describe.ts";
import type { Fragment, FragmentKey, NetworkFragment, PodFragment } from "./desired.ts";
import {
  diffFirewallRemoval,
  diffNetworkFirewall,
  type FirewallContext,
  variantInUse,
} from "./diff-firewall.ts";
import { diffNetwork, ipForwardKey } from "./diff-network.ts";
import { detachLinks, diffPod, endLinks, forgetNeighbours } from "./diff-pod.ts";
import { observeFirewall } from "./iptables/firewall.ts";
import type { Variant } from "./iptables/variant.ts";
import { hostIdentity, Memory, type Remembered } from "./memory.ts";
import {
  readOptional,
  observeLink,
  observeLinks,
  observeNetwork,
  observePod,
  observePorts,
} from "./observe.ts";
import type { ObservedLink } from "./observed.ts";
import { networkMark, ownedBy, type Owner } from "./ownership.ts";
import { SerialQueue } from "./queue.ts";
import { isOrphan, type Known, nothingKnown, sweepLinks } from "./sweep.ts";

export interface HostNetworkOptions {
  /** `iptables_variant`; `off` (`disable_iptables`) runs no firewall command at all. */
  readonly iptables: "auto" | Variant | "off";
  /** `iptables_chain`, already parsed with `parseChainName`. */
  readonly chain: string;
  /** What an earlier run gave to `remember`. Void if it is of another boot. */
  readonly remembered?: Remembered | undefined;
  /** Stores what is to be remembered, before the change is made; synchronous, and may throw to prevent it. */
  readonly remember?: (value: Remembered) => void;
  /** What bridges' MACs are derived from; the machine's id unless given. */
  readonly hostSeed?: string;
}

/** The host's network as podnet sees it: the one way the kernel is changed. Changes are made one call at a time. */
export interface HostNetwork extends AsyncDisposable {
  /**
   * Observes the fragment's part of the host and makes it what it should be. Gives the changes made; none when it was
   * so already. Stops at the first failure: what is done stays, and `remove` or another `ensure` deals with it.
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
  /** Takes a pod's ports, or one of them, off their bridges: no traffic from here on. Absent is success. */
  detach(
    target: { readonly pod: string; readonly tap?: IfName },
    signal: AbortSignal,
  ): Promise<readonly Change[]>;
  /** The changes `ensure` would make now: the drift. Throws as it would. */
  diff(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]>;
  /** The same as text. */
  plan(fragment: Fragment, signal: AbortSignal): Promise<readonly string[]>;
  /** What the fragment is to look like, as text, without looking at the host. */
  describe(fragment: Fragment): readonly string[];
  /** Takes away what bears our mark and has no row. What bears no mark is never touched. */
  sweep(known: Known, signal: AbortSignal): Promise<readonly Change[]>;
  /** Takes away all that is ours and puts back what we changed of others'. */
  down(signal: AbortSignal): Promise<readonly Change[]>;
  /** Ports the bridge has now, for `checkPortRoom`; 0 when there is no such link. */
  observePortCount(bridge: IfName): Promise<number>;
  /** What matters about the host beside our own, for `podnet info` and error reports. Throws `FIREWALL_FAILED`. */
  observeFacts(signal: AbortSignal): Promise<HostFacts>;
  /** What has to be remembered to undo our changes; the same that `remember` was last given. */
  readonly remembered: Remembered;
}

export interface HostFacts {
  /** The variant of iptables that would be written now. */
  readonly firewall: Variant | "off" | "ambiguous";
  readonly ipForward: boolean;
  /** Whether frames between pods pass the FORWARD chain; undefined without br_netfilter. Never written by podnet. */
  readonly bridgeNfCallIptables: boolean | undefined;
}

/** Opens the network of the calling thread's namespace. Changes nothing by itself. */
export function openHostNetwork(options: HostNetworkOptions): HostNetwork {
  return new OpenHostNetwork(options);
}

type Compare = () => Promise<Change[]>;

class OpenHostNetwork implements HostNetwork {
  readonly #options: HostNetworkOptions;
  readonly #kernel: Kernel;
  readonly #queue = new SerialQueue();
  readonly #hostSeed: string;

  constructor(options: HostNetworkOptions) {
    this.#options = options;
    this.#hostSeed = options.hostSeed ?? machineId();
    const memory = new Memory(hostIdentity(), options.remembered, options.remember);
    this.#kernel = { netlink: Rtnetlink.open(), memory };
  }

  get remembered(): Remembered {
    return this.#kernel.memory.value;
  }

  ensure(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#queue.run(
      () => this.#converge(() => this.#compare(fragment, signal), signal),
      signal,
    );
  }

  remove(target: Fragment | FragmentKey, signal: AbortSignal): Promise<readonly Change[]> {
    if (target.kind === "pod") return this.#takeAway(signal, () => this.#comparePodRemoval(target));
    const { key } = target;
    const doomed = (owner: Owner): boolean => owner.kind === "network" && owner.key === key;
    return this.#takeAway(
      signal,
      async () => endLinks((await this.#links()).filter((link) => link.alias === networkMark(key))),
      () => this.#compareFirewallRemoval(doomed, signal),
    );
  }

  detach(
    target: { readonly pod: string; readonly tap?: IfName },
    signal: AbortSignal,
  ): Promise<readonly Change[]> {
    const names = target.tap === undefined ? [] : [target.tap];
    return this.#takeAway(signal, async () => detachLinks(await this.#podLinks(target.pod, names)));
  }

  diff(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#queue.run(() => this.#compare(fragment, signal), signal);
  }

  async plan(fragment: Fragment, signal: AbortSignal): Promise<readonly string[]> {
    return changesText(await this.diff(fragment, signal));
  }

  describe(fragment: Fragment): readonly string[] {
    return describeFragment(this.#configured(fragment), this.#hostSeed);
  }

  sweep(known: Known, signal: AbortSignal): Promise<readonly Change[]> {
    return this.#takeAway(signal, ...this.#sweepParts(known, signal));
  }

  down(signal: AbortSignal): Promise<readonly Change[]> {
    const parts = this.#sweepParts(nothingKnown, signal);
    return this.#takeAway(signal, ...parts, () => this.#restorations());
  }

  async observePortCount(bridge: IfName): Promise<number> {
    const link = await observeLink(this.#kernel.netlink, bridge);
    return link === undefined ? 0 : observePorts(this.#kernel.netlink, link.index);
  }

  async observeFacts(signal: AbortSignal): Promise<HostFacts> {
    const context = this.#firewall();
    const bridgeNf = readOptional("net.bridge.bridge-nf-call-iptables");
    return {
      firewall:
        context === undefined ? "off" : variantInUse(await observeFirewall(signal), context),
      ipForward: readSysctl(ipForwardKey) === "1",
      bridgeNfCallIptables: bridgeNf === undefined ? undefined : bridgeNf === "1",
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue.idle();
    this.#kernel.netlink.close();
  }

  /** Takes away part by part; what cannot be seen or removed does not save the rest. */
  #takeAway(signal: AbortSignal, ...parts: readonly Compare[]): Promise<readonly Change[]> {
    return this.#queue.run(async () => {
      const done: Change[] = [];
      const failures: PodnetError[] = [];
      for (const part of parts) {
        try {
          done.push(...(await this.#converge(part, signal, true)));
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
   * position or a rule is no longer there and the commit is refused whole: then compares once more.
   */
  async #converge(
    compare: Compare,
    signal: AbortSignal,
    keepGoing = false,
  ): Promise<readonly Change[]> {
    const done: Change[] = [];
    const apply = async (): Promise<void> =>
      applyAll(await compare(), this.#kernel, signal, { keepGoing, done });
    try {
      await apply();
    } catch (error) {
      if (!isPodnetError(error, "FIREWALL_FAILED")) throw error;
      await apply();
    }
    return done;
  }

  async #compare(given: Fragment, signal: AbortSignal): Promise<Change[]> {
    const fragment = this.#configured(given);
    return fragment.kind === "network"
      ? this.#compareNetwork(fragment, signal)
      : diffPod(fragment, await observePod(this.#kernel.netlink, fragment));
  }

  async #compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    const observed = await observeNetwork(this.#kernel.netlink, fragment);
    const changes = diffNetwork(fragment, observed, this.#hostSeed);
    const context = this.#firewall();
    if (!fragment.firewall || context === undefined) return changes;
    const firewall = await observeFirewall(signal);
    // Rules before links: no packet is forwarded to a pod before the rules that judge it are there.
    return [...diffNetworkFirewall(fragment, firewall, context), ...changes];
  }

  async #comparePodRemoval(target: PodFragment | FragmentKey): Promise<Change[]> {
    const ports = "ports" in target ? target.ports : [];
    const links = await this.#podLinks(
      target.key,
      ports.map((port) => port.tap),
    );
    return [...endLinks(links), ...forgetNeighbours(ports)];
  }

  #sweepParts(known: Known, signal: AbortSignal): Compare[] {
    const orphan = (owner: Owner): boolean => isOrphan(owner, known);
    return [
      async () => sweepLinks(await this.#links(), known),
      () => this.#compareFirewallRemoval(orphan, signal),
    ];
  }

  async #compareFirewallRemoval(
    doomed: (owner: Owner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]> {
    const context = this.#firewall();
    if (context === undefined) return [];
    return diffFirewallRemoval(this.#options.chain, await observeFirewall(signal), context, doomed);
  }

  async #restorations(): Promise<Change[]> {
    const { ipForward, raised } = this.remembered;
    const lowered = raised.map((name): Change => ({ kind: "set-adopted", name, up: false }));
    if (ipForward === undefined) return lowered;
    return [...lowered, { kind: "set-sysctl", key: ipForwardKey, from: "1", to: ipForward }];
  }

  /** A pod's links that bear its mark: the named ones, or all, which takes a look at every link of the host. */
  async #podLinks(pod: string, names: readonly IfName[]): Promise<ObservedLink[]> {
    const { netlink } = this.#kernel;
    const links =
      names.length === 0
        ? await this.#links()
        : await Promise.all(names.map((name) => observeLink(netlink, name)));
    return links
      .filter((link) => link !== undefined)
      .filter((link) => ownedBy(link.alias, "pod", pod));
  }

  #links(): Promise<ObservedLink[]> {
    return observeLinks(this.#kernel.netlink);
  }

  /** A fragment as this host's configuration has it. */
  #configured(fragment: Fragment): Fragment {
    return fragment.kind === "network" && this.#options.iptables === "off"
      ? { ...fragment, firewall: false }
      : fragment;
  }

  #firewall(): FirewallContext | undefined {
    const { iptables } = this.#options;
    return iptables === "off" ? undefined : { configured: iptables, memory: this.#kernel.memory };
  }
}

/** systemd's machine id: stable over reboots and, unlike a MAC, there before any link. */
function machineId(): string {
  try {
    return readFileSync("/etc/machine-id", "latin1").trim();
  } catch {
    return "";
  }
}
