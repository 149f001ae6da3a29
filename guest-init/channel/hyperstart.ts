import { setTimeout as delay } from "node:timers/promises";
import { PodnetError } from "../../core/errors.ts";
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
import { hyperstartInput } from "../protocol/tty-frame.ts";
import { abortError } from "../../core/aborting.ts";
import type { Dialect, DialectContext } from "./dialect.ts";
import { GuestPrograms } from "./guest-programs.ts";
import {
  checkForHyperstart,
  interfaceStep,
  misnamed,
  missingRoutes,
  podOf,
  routeRemoval,
  routeSteps,
  routesInTheWay,
  shortfalls,
} from "./hyperstart-plan.ts";
import { HyperstartView } from "./hyperstart-view.ts";

/** Interval of polls for an interface: hyperstart does not report new ones. */
const lookMs = 100;
/**
 * Further off, a guest's clock is set: `date` counts seconds, and the guest takes its time to
 * answer.
 */
const clockToleranceMs = 3000;
const input = {
  frame: hyperstartInput.frame,
  pingEvery: hyperstartInput.buffer / 2,
  most: hyperstartInput.most,
};

/**
 * Whether this hyperstart has acknowledged a STARTPOD: a second one fails, and a failure powers the
 * guest off.
 */
export type PodState = "new" | "unknown" | "started";

/**
 * A plain hyperstart. One configuration becomes STARTPOD (once), SETUPINTERFACE for what differs
 * and SETUPROUTE for what is missing then, since the former flushes routes. Its ACK proves nothing
 * about the kernel, whose replies it never reads, so `ip addr` and `ip route` are read back and
 * compared. For entropy it has no command; the clock is set with the guest's `date`. Refused: IPv6,
 * neighbours, metrics.
 */
export class HyperstartDialect implements Dialect {
  readonly input = input;
  readonly #context: DialectContext;
  readonly #view: HyperstartView;
  #pod: PodState;
  /** Routes with which this podnetd may have configured it. */
  #reported: readonly GuestRoute[] = [];

  /** `pod`: `started` when an earlier configuration of this guest is on record. */
  constructor(context: DialectContext, pod: PodState) {
    this.#context = context;
    this.#view = new HyperstartView(new GuestPrograms(context.processes, input));
    this.#pod = pod;
  }

  async configure(config: GuestConfig, caller: AbortSignal): Promise<ObservedGuest> {
    checkForHyperstart(config);
    const signal = AbortSignal.any([caller, this.#context.life]);
    // Until the update is done, the guest may have the old routes as well as the new ones.
    const before = this.#reported;
    this.#reported = [...before, ...missingRoutes(config.routes, before)];
    const begun = performance.now();
    await this.#startPod(config, signal);
    await this.#setUpInterfaces(config, signal);
    await this.#setRoutes(config, before, signal);
    const { observed, loopbackUp } = await this.#view.observe(config.requestId, signal);
    const faults = shortfalls(config, before, { ...observed, loopbackUp });
    if (faults.length > 0) throw notDone(faults);
    this.#reported = config.routes;
    if (config.clockMs === undefined) return observed;
    return this.#setClock(observed, config.clockMs - begun, signal);
  }

  async #startPod(config: GuestConfig, signal: AbortSignal): Promise<void> {
    if (this.#pod === "unknown") this.#pod = (await this.#hasPod(signal)) ? "started" : "new";
    if (this.#pod === "started") return this.#raiseLoopback(signal);
    this.#pod = "unknown";
    await this.#call(command.startPod, encodeStartPod(podOf(config)), "the pod", signal);
    this.#pod = "started";
  }

  /**
   * Whether a guest of which nothing is on record shows that it has had a STARTPOD. Each sign may
   * be missing by itself.
   */
  async #hasPod(signal: AbortSignal): Promise<boolean> {
    return (await this.#view.links(signal)).loopbackUp || (await this.#view.hasPodFiles(signal));
  }

  /**
   * STARTPOD brings `lo` up once; a guest that has lost it since gets it back. Whether it worked is
   * read back with all else.
   */
  async #raiseLoopback(signal: AbortSignal): Promise<void> {
    if ((await this.#view.links(signal)).loopbackUp) return;
    await this.#view.textIfAny(["ip", "link", "set", "dev", "lo", "up"], signal);
  }

  /**
   * A name that the kernel refused is noticed here: routes to a device of that name would block the
   * guest for 2 s each, and the change has flushed those that were there. They are put back before
   * the failure is reported.
   */
  async #requireNames(
    config: GuestConfig,
    had: readonly GuestRoute[],
    signal: AbortSignal,
  ): Promise<void> {
    const { interfaces: found } = await this.#view.links(signal);
    const names = misnamed(config, found);
    if (names.length === 0) return;
    const lost = missingRoutes(had, await this.#view.routes(signal)).filter((route) =>
      found.some(({ name }) => name === route.interface),
    );
    if (lost.length > 0)
      await this.#call(command.setupRoute, encodeRouteSetup(routeSteps(lost)), "routes", signal);
    throw notDone(names);
  }

  /**
   * Sets the clock of a guest that is behind, as after a pause. `offset`: wall time less
   * `performance.now()`, milliseconds.
   */
  async #setClock(
    observed: ObservedGuest,
    offset: number,
    signal: AbortSignal,
  ): Promise<ObservedGuest> {
    const nowMs = (): number => Math.round((offset + performance.now()) / 1000) * 1000;
    // Without a `date` it is not known.
    if (observed.clockMs === 0 || Math.abs(observed.clockMs - nowMs()) < clockToleranceMs)
      return observed;
    const clockMs = nowMs();
    const text = await this.#view.textIfAny(["date", "-s", `@${clockMs / 1000}`], signal);
    return text === "" ? observed : { ...observed, clockMs };
  }

  async #setUpInterfaces(config: GuestConfig, signal: AbortSignal): Promise<void> {
    // Twice at most: an address taken away takes with it others of its subnet, which were to stay.
    let had: readonly GuestRoute[] | undefined;
    for (let pass = 0; pass < 2; pass++) {
      const found = await this.#awaitInterfaces(config, signal);
      const steps = config.interfaces.flatMap((wanted) => {
        const there = found.find((other) => other.mac === wanted.mac);
        return (there === undefined ? undefined : interfaceStep(wanted, there)) ?? [];
      });
      if (steps.length === 0) return;
      if (steps.some(({ newName }) => newName !== undefined))
        had ??= await this.#view.routes(signal);
      for (const step of steps)
        await this.#call(
          command.setupInterface,
          encodeInterfaceSetup(step),
          `interface ${step.newName ?? step.device}`,
          signal,
        );
    }
    if (had !== undefined) await this.#requireNames(config, had, signal);
  }

  async #setRoutes(
    config: GuestConfig,
    before: readonly GuestRoute[],
    signal: AbortSignal,
  ): Promise<void> {
    const found = await this.#view.routes(signal);
    const inTheWay = routesInTheWay(config, before, found);
    // Whether it worked is read back with all else.
    for (const route of inTheWay) await this.#view.textIfAny(routeRemoval(route), signal);
    const missing = missingRoutes(
      config.routes,
      inTheWay.length === 0 ? found : await this.#view.routes(signal),
    );
    if (missing.length > 0)
      await this.#call(command.setupRoute, encodeRouteSetup(routeSteps(missing)), "routes", signal);
  }

  async #awaitInterfaces(config: GuestConfig, signal: AbortSignal): Promise<ObservedInterface[]> {
    const until = performance.now() + config.waitMs;
    for (let asked = false; ; asked = true) {
      const { interfaces: found } = await this.#view.links(signal);
      const absent = config.interfaces.find((wanted) => found.every((f) => f.mac !== wanted.mac));
      if (absent === undefined) return found;
      // Looks at least twice, even when the first look took all of the time.
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

  async #call(code: number, payload: Uint8Array, what: string, signal: AbortSignal): Promise<void> {
    const deadlineMs = this.#context.limits.commandMs;
    await this.#context.control.call(code, payload, { deadlineMs, signal, what });
  }
}

const notDone = (faults: readonly string[]): PodnetError =>
  new PodnetError(
    "AGENT_REFUSED",
    `The guest acknowledged a command and did not carry it out: ${faults.slice(0, 5).join("; ")}`,
    { details: { faults: faults.length } },
  );
