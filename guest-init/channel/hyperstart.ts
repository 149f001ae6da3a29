import { setTimeout as delay } from "node:timers/promises";
import { PodnetError, isPodnetError } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import { noBytes } from "../protocol/bytes.ts";
import { command } from "../protocol/codes.ts";
import type {
  GuestConfig,
  GuestRoute,
  ObservedGuest,
  ObservedInterface,
} from "../protocol/configure.ts";
import { encodeInterfaceSetup, encodeRouteSetup } from "../protocol/network-messages.ts";
import { encodeStartPod } from "../protocol/pod-messages.ts";
import { parseResolver } from "../protocol/resolver.ts";
import { hyperstartInput } from "../protocol/tty-frame.ts";
import { abortError } from "../../core/aborting.ts";
import type { Dialect, DialectContext } from "./dialect.ts";
import { runForText } from "./exec.ts";
import {
  checkForHyperstart,
  interfaceStep,
  missingRoutes,
  podOf,
  routeRemoval,
  routeSteps,
  routesInTheWay,
  shortfalls,
} from "./hyperstart-plan.ts";
import { parseIpAddr, parseIpRoute } from "./iproute-text.ts";

/** Between two looks for an interface: hyperstart tells of none. */
const lookMs = 100;
const input = { frame: hyperstartInput.frame, pingEvery: hyperstartInput.buffer / 2 };

/** Only STARTPOD brings it up. */
const isLoopbackUp = (links: string): boolean => /^\d+: lo: <[^>]*\bUP\b/m.test(links);

/** Whether STARTPOD was sent to this hyperstart: a second one would end it. */
type PodState = "new" | "unknown" | "started";

/**
 * A plain hyperstart. One configuration becomes STARTPOD (once), SETUPINTERFACE for what differs and
 * SETUPROUTE for what is missing then, since the former flushes routes. Its ACK proves nothing about the kernel,
 * whose replies it never reads, so `ip addr` and `ip route` are read back and compared.
 * Not done here: clock and entropy, for which it has no command. Refused: IPv6, neighbours, metrics.
 */
export class HyperstartDialect implements Dialect {
  readonly input = input;
  readonly #context: DialectContext;
  #pod: PodState;
  /** Routes it may have been told to have by this podnetd. */
  #told: readonly GuestRoute[] = [];

  constructor(context: DialectContext, pod: "new" | "unknown") {
    this.#context = context;
    this.#pod = pod;
  }

  async configure(config: GuestConfig, caller: AbortSignal): Promise<ObservedGuest> {
    checkForHyperstart(config);
    const signal = AbortSignal.any([caller, this.#context.life]);
    // Until it is done, what was told before may be there as well as what is told now.
    const before = this.#told;
    this.#told = [...before, ...missingRoutes(config.routes, before)];
    await this.#startPod(config, signal);
    await this.#setUpInterfaces(config, signal);
    await this.#setRoutes(config, before, signal);
    const { observed, loopbackUp } = await this.#observe(config.requestId, signal);
    const faults = shortfalls(config, before, { ...observed, loopbackUp });
    if (faults.length > 0)
      throw new PodnetError(
        "AGENT_REFUSED",
        `The guest said yes and did not do it: ${faults.slice(0, 5).join("; ")}`,
        { details: { faults: faults.length } },
      );
    this.#told = config.routes;
    return observed;
  }

  async #startPod(config: GuestConfig, signal: AbortSignal): Promise<void> {
    // STARTPOD alone brings lo up.
    if (this.#pod === "unknown")
      this.#pod = isLoopbackUp(await this.#text(["ip", "addr"], signal)) ? "started" : "new";
    if (this.#pod === "started") return;
    this.#pod = "unknown";
    await this.#call(command.startPod, encodeStartPod(podOf(config)), "the pod", signal);
    this.#pod = "started";
  }

  async #setUpInterfaces(config: GuestConfig, signal: AbortSignal): Promise<void> {
    // Twice at most: an address taken away takes with it others of its subnet, which were to stay.
    for (let pass = 0; pass < 2; pass++) {
      const found = await this.#awaitInterfaces(config, signal);
      const steps = config.interfaces.flatMap((wanted) => {
        const there = found.find((other) => other.mac === wanted.mac);
        return (there === undefined ? undefined : interfaceStep(wanted, there)) ?? [];
      });
      if (steps.length === 0) return;
      for (const step of steps)
        await this.#call(
          command.setupInterface,
          encodeInterfaceSetup(step),
          `interface ${step.newName ?? step.device}`,
          signal,
        );
    }
  }

  async #setRoutes(
    config: GuestConfig,
    before: readonly GuestRoute[],
    signal: AbortSignal,
  ): Promise<void> {
    const found = await this.#routes(signal);
    const inTheWay = routesInTheWay(config, before, found);
    // Whether it worked is read back with all else.
    for (const route of inTheWay) await this.#textIfAny(routeRemoval(route), signal);
    const missing = missingRoutes(
      config.routes,
      inTheWay.length === 0 ? found : await this.#routes(signal),
    );
    if (missing.length > 0)
      await this.#call(command.setupRoute, encodeRouteSetup(routeSteps(missing)), "routes", signal);
  }

  async #awaitInterfaces(config: GuestConfig, signal: AbortSignal): Promise<ObservedInterface[]> {
    const until = performance.now() + config.waitMs;
    for (let asked = false; ; asked = true) {
      const found = parseIpAddr(await this.#text(["ip", "addr"], signal));
      const absent = config.interfaces.find((wanted) => found.every((f) => f.mac !== wanted.mac));
      if (absent === undefined) return found;
      // A first look that took all of the time is no reason to give up unasked.
      if (asked && performance.now() >= until)
        throw new PodnetError("AGENT_TIMEOUT", `The guest has no interface ${absent.mac}`, {
          details: { waited_ms: config.waitMs },
        });
      // READY from the host makes it look at its PCI buses again.
      if (!asked) await this.#call(command.ready, noBytes, "to rescan PCI", signal);
      await delay(lookMs, undefined, { signal }).catch(() => {
        throw abortError(signal, "Waiting for an interface");
      });
    }
  }

  async #routes(signal: AbortSignal): Promise<GuestRoute[]> {
    return parseIpRoute(await this.#text(["ip", "route"], signal));
  }

  async #observe(
    requestId: string,
    signal: AbortSignal,
  ): Promise<{ readonly observed: ObservedGuest; readonly loopbackUp: boolean }> {
    const read = (...args: string[]): Promise<string> => this.#textIfAny(args, signal);
    const links = await this.#text(["ip", "addr"], signal);
    const routes = await this.#routes(signal);
    const [hostname, resolv, status, seconds] = await Promise.all([
      read("cat", "/tmp/hyper/hostname"),
      read("cat", "/tmp/hyper/resolv.conf"),
      read("cat", "/proc/1/status"),
      read("date", "+%s"),
    ]);
    const observed = {
      requestId,
      hostname: hostname.trim().slice(0, 255),
      dns: parseResolver(resolv),
      interfaces: parseIpAddr(links),
      routes,
      clockMs: Number(/^\d{1,12}$/.exec(seconds.trim())?.[0] ?? 0) * 1000,
      agentRssKib: Number(/^VmRSS:\s+(\d{1,12}) kB$/m.exec(status)?.[1] ?? 0),
    };
    return { observed, loopbackUp: isLoopbackUp(links) };
  }

  /** What a command prints in the guest. Throws `AGENT_REFUSED` when it fails. */
  async #text(args: readonly string[], signal: AbortSignal): Promise<string> {
    const { code, stdout } = await runForText(this.#context.processes, input, args, signal);
    if (code !== 0)
      throw new PodnetError(
        "AGENT_REFUSED",
        `"${args.join(" ")}" exited with ${code} in the guest`,
        {
          hint: "Reading back what a hyperstart did needs busybox's ip in its image",
        },
      );
    return decodeUtf8(stdout);
  }

  /** The same, empty for a command or file that is not there. */
  async #textIfAny(args: readonly string[], signal: AbortSignal): Promise<string> {
    try {
      return await this.#text(args, signal);
    } catch (error) {
      if (isPodnetError(error, "AGENT_REFUSED")) return "";
      throw error;
    }
  }

  async #call(code: number, payload: Uint8Array, what: string, signal: AbortSignal): Promise<void> {
    const deadlineMs = this.#context.limits.commandMs;
    await this.#context.control.call(code, payload, { deadlineMs, signal, what });
  }
}
