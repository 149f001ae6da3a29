import { PodnetError, isPodnetError, toPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { errnoName } from "../../linux/rtnetlink/errno.ts";
import type { UnixConnection } from "../../linux/sockets/unix-socket.ts";
import { noBytes } from "../protocol/bytes.ts";
import { command } from "../protocol/codes.ts";
import { encodeAwakening } from "../protocol/extension-messages.ts";
import { malformed } from "../protocol/fields.ts";
import { encodePlaceFile, type PlacedFile } from "../protocol/file-messages.ts";
import { encodeMountShare, type MountedShare } from "../protocol/share-messages.ts";
import { encodeSteps, parseStepResults, type Step } from "../protocol/steps.ts";
import {
  agentFeatures,
  type GuestConfig,
  type ObservedGuest,
  extensionVersion,
} from "../protocol/configure.ts";
import {
  encodePreload,
  type MainProcessSpec,
  type SoughtProgram,
} from "../protocol/main-process.ts";
import { abortable } from "../../core/aborting.ts";
import { Containers, type GuestContainers, requireContainers } from "./containers.ts";
import { Control, type ControlCounters, noCounters } from "./control.ts";
import type { Dialect } from "./dialect.ts";
import { Processes } from "./exec.ts";
import type {
  ExecRequest,
  ExecSession,
  Guest,
  GuestIdentity,
  OpenGuestOptions,
  Wake,
} from "./guest.ts";
import { HyperstartDialect, type PodState } from "./hyperstart.ts";
import { GuestTime } from "./guest-time.ts";
import { identify } from "./identify.ts";
import { refusal } from "../protocol/replies.ts";
import { type ChannelLimits, defaultLimits } from "./limits.ts";
import { connectWhenThere } from "./link.ts";
import {
  MainProcess,
  type MainProcessAccess,
  type MainProcessListener,
  requireMain,
} from "./main-process.ts";
import { ourDialect } from "./ours.ts";
import { type ParkedNic, stepsOfTwin } from "./parked.ts";
import { Tty } from "./tty.ts";

/** The two channels, once connected. */
interface Wires {
  readonly control: Control;
  readonly tty: Tty;
  readonly processes: Processes;
  readonly main: MainProcess;
  readonly containers: Containers;
}

/**
 * Where the session is. Every READY starts `identifying` anew; `closed` is the end.
 * connecting → waiting → identifying ⇄ up → closed; reattaching skips `waiting`.
 */
type State =
  | { readonly kind: "connecting"; readonly stop: AbortController }
  | { readonly kind: "waiting"; readonly wires: Wires }
  | { readonly kind: "identifying"; readonly wires: Wires; readonly stop: AbortController }
  | {
      readonly kind: "up";
      readonly wires: Wires;
      readonly identity: GuestIdentity;
      readonly dialect: Dialect;
      readonly life: AbortController;
    }
  | { readonly kind: "closed"; readonly reason: PodnetError };

type Up = Extract<State, { kind: "up" }>;

const readyHint = "Look at the guest's console: it may not have booted, or have no agent";

const noTty = (): PodnetError =>
  new PodnetError(
    "UNSUPPORTED",
    "Nothing can be run in this guest: it was attached without a tty",
    {
      hint: "Detach it, and attach it with --tty",
    },
  );

/** Connects to a guest's channels and follows it through restarts; see `Guest`. Returns at once. */
export function openGuest(options: OpenGuestOptions): GuestSession {
  return new GuestSession(options);
}

export class GuestSession implements Guest {
  readonly #options: OpenGuestOptions;
  readonly #limits: ChannelLimits;
  readonly #time: GuestTime;
  readonly #readyListeners = new Set<(identity: GuestIdentity) => void>();
  readonly #slowedListeners = new Set<(is: boolean) => void>();
  readonly #closeListeners = new Set<(reason: Error) => void>();
  #state: State;
  /** Resolved at the next `up`, rejected at the end; made anew on leaving `up`. */
  #up = Promise.withResolvers<Up>();
  #readyTimer: Disposable | undefined;
  /** READYs since the guest was last up. */
  #restarts = 0;

  constructor(options: OpenGuestOptions) {
    this.#options = options;
    this.#limits = { ...defaultLimits, ...options.limits };
    this.#time = options.time ?? new GuestTime();
    const stop = new AbortController();
    this.#state = { kind: "connecting", stop };
    this.#up.promise.catch(() => {});
    this.#connect(stop.signal).catch((error: unknown) => this.#end(toPodnetError(error)));
  }

  async ready(signal: AbortSignal): Promise<GuestIdentity> {
    try {
      return (await this.#whenUp(signal)).identity;
    } catch (error) {
      if (!isPodnetError(error, "DEADLINE_EXCEEDED")) throw error;
      throw new PodnetError("AGENT_TIMEOUT", "The guest's agent was not ready in time", {
        cause: error,
        hint: readyHint,
      });
    }
  }

  async configure(config: GuestConfig, signal: AbortSignal): Promise<ObservedGuest> {
    return (await this.#whenUp(signal)).dialect.configure(config, signal);
  }

  async placeFile(file: PlacedFile, signal: AbortSignal): Promise<void> {
    const { wires, identity } = await this.#whenUp(signal);
    if (identity.features?.includes(agentFeatures.files) !== true)
      throw new PodnetError(
        "UNSUPPORTED",
        "The guest's agent writes no files with owner and mode",
        {
          field: "files",
          hint: "Use an image with this podnet's agent, or podnet cp",
        },
      );
    const deadlineMs = this.#limits.commandMs;
    const what = `file "${printable(file.path)}"`;
    const payload = encodePlaceFile(file);
    await wires.control.call(command.placeFile, payload, { deadlineMs, signal, what });
  }

  async preload(program: SoughtProgram, signal: AbortSignal): Promise<void> {
    const { wires, identity } = await this.#whenUp(signal);
    if (identity.features?.includes(agentFeatures.preload) !== true) return;
    const deadlineMs = this.#limits.commandMs;
    await wires.control.call(command.preload, encodePreload(program), { deadlineMs, signal });
  }

  async mountShare(share: MountedShare, signal: AbortSignal): Promise<void> {
    const { wires, identity } = await this.#whenUp(signal);
    if (identity.features?.includes(agentFeatures.shares) !== true)
      throw new PodnetError("UNSUPPORTED", "The guest's agent mounts no directories of the host", {
        field: "shares",
        hint: "Use an image with this podnet's agent",
      });
    if (share.writable === true && !identity.features.includes(agentFeatures.writableShares))
      throw new PodnetError("UNSUPPORTED", "The guest's agent mounts directories read-only", {
        field: "shares",
        hint: "Use an image with this podnet's agent, or leave writable out",
      });
    const what = `the share at "${printable(share.path)}"`;
    const deadlineMs = this.#limits.commandMs;
    const payload = encodeMountShare(share);
    await wires.control.call(command.mountShare, payload, { deadlineMs, signal, what });
  }

  async ping(signal: AbortSignal): Promise<void> {
    const { wires } = await this.#whenUp(signal);
    await wires.control.call(command.ping, noBytes, { deadlineMs: this.#limits.commandMs, signal });
  }

  async online(signal: AbortSignal): Promise<void> {
    const { wires } = await this.#whenUp(signal);
    const deadlineMs = this.#limits.commandMs;
    await wires.control.call(command.onlineCpuMem, noBytes, { deadlineMs, signal });
  }

  async exec(request: ExecRequest, signal: AbortSignal): Promise<ExecSession> {
    const { wires, dialect } = await this.#whenUp(signal);
    if (this.#options.ttyPath === undefined) throw noTty();
    return wires.processes.start(request, dialect.input, signal);
  }

  async startMain(spec: MainProcessSpec, signal: AbortSignal): Promise<void> {
    await (await this.#main(signal)).start(spec, signal);
  }

  async followMain(
    id: string,
    from: number,
    listener: MainProcessListener,
    signal: AbortSignal,
  ): Promise<MainProcessAccess> {
    return (await this.#main(signal)).follow(id, from, listener, signal);
  }

  async containers(signal: AbortSignal): Promise<GuestContainers> {
    const { wires, identity } = await this.#whenUp(signal);
    requireContainers(identity.features);
    wires.containers.features = identity.features ?? [];
    return wires.containers;
  }

  async #main(signal: AbortSignal): Promise<MainProcess> {
    const { wires, identity } = await this.#whenUp(signal);
    requireMain(identity.features, agentFeatures.main);
    return wires.main;
  }

  async powerOff(signal: AbortSignal): Promise<void> {
    const { wires } = await this.#whenUp(signal);
    try {
      const deadlineMs = this.#limits.powerOffMs;
      await wires.control.call(command.destroyPod, noBytes, { deadlineMs, signal });
    } catch (error) {
      // A guest that is gone before its answer came is as off as can be.
      if (!isPodnetError(error, "AGENT_DISCONNECTED")) throw error;
    }
  }

  onReady(listener: (identity: GuestIdentity) => void): () => void {
    this.#readyListeners.add(listener);
    return () => this.#readyListeners.delete(listener);
  }

  onSlowed(listener: (is: boolean) => void): () => void {
    this.#slowedListeners.add(listener);
    return () => this.#slowedListeners.delete(listener);
  }

  onClose(listener: (reason: Error) => void): () => void {
    if (this.#state.kind === "closed") listener(this.#state.reason);
    else this.#closeListeners.add(listener);
    return () => this.#closeListeners.delete(listener);
  }

  close(): Promise<void> {
    this.#end(new PodnetError("CANCELLED", "The channel was closed"));
    return Promise.resolve();
  }

  /** Counts the guest's violations of the protocol; zero before the channel is connected. */
  counters(): ControlCounters & { readonly strayTtyFrames: number } {
    const { control, tty } = this.#wires() ?? {};
    const strayTtyFrames = (tty?.strayFrames ?? 0) + (tty?.senselessFrames ?? 0);
    return { ...(control?.counters ?? noCounters), strayTtyFrames };
  }

  #wires(): Wires | undefined {
    return "wires" in this.#state ? this.#state.wires : undefined;
  }

  async #whenUp(signal: AbortSignal): Promise<Up> {
    if (this.#state.kind === "up" && !signal.aborted) return this.#state;
    return abortable(this.#up.promise, signal, "Waiting for the guest");
  }

  async #connect(signal: AbortSignal): Promise<void> {
    const { channelPath, ttyPath, reattach, wake } = this.#options;
    const { connectMs, readyMs } = this.#limits;
    this.#readyTimer = this.#time.after(readyMs, () =>
      this.#end(
        new PodnetError("AGENT_TIMEOUT", `The guest's agent was not ready in ${readyMs} ms`, {
          hint: readyHint,
        }),
      ),
    );
    // The tty first: once the control channel is connected, READY may come and sessions begin.
    const tty =
      ttyPath === undefined ? undefined : await connectWhenThere(ttyPath, connectMs, signal);
    const control = await connectWhenThere(channelPath, connectMs, signal).catch(
      (error: unknown) => {
        tty?.close();
        throw error;
      },
    );
    if (this.#state.kind === "closed") {
      tty?.close();
      control.close();
      return;
    }
    const wires = this.#wire(control, tty);
    this.#state = { kind: "waiting", wires };
    if (reattach) this.#identify(wires, { fresh: false });
    if (wake !== undefined) this.#wake(wires, wake, signal);
  }

  /**
   * A clone is notified that it is one before it runs; right behind that it is asked to identify
   * itself.
   */
  #wake(wires: Wires, wake: Wake, signal: AbortSignal): void {
    const { twin } = wake;
    // Its template has said who it is: what else it is asked for follows its names at once.
    if (twin !== undefined) this.#rise(wires, twin.identity, false, twin.nic);
    const reported =
      twin === undefined
        ? this.#sendAwake(wires, encodeAwakening(wake.awakening()), signal)
        : this.#sendNames(
            wires,
            stepsOfTwin(wake.awakening(), {
              epoch: twin.identity.epoch,
              machineId: twin.machineId,
            }),
            signal,
          );
    if (twin === undefined) this.#identify(wires, { fresh: true });
    Promise.all([reported, wake.resume()]).catch((error: unknown) =>
      this.#end(toPodnetError(error)),
    );
  }

  async #sendAwake({ control }: Wires, payload: Uint8Array, signal: AbortSignal): Promise<void> {
    const { identifyMs: deadlineMs } = this.#limits;
    const options = { deadlineMs, signal, accepts: () => true };
    const reply = await control.request(command.awake, payload, options);
    if (reply.kind === "error") throw refusal("that it is a clone", reply.payload);
  }

  async #sendNames({ control }: Wires, steps: readonly Step[], signal: AbortSignal): Promise<void> {
    const { identifyMs: deadlineMs } = this.#limits;
    const options = { deadlineMs, signal, accepts: () => true };
    const reply = await control.request(command.steps, encodeSteps(steps), options);
    if (reply.kind === "error") throw refusal("that it is a clone", reply.payload);
    const { errno } = parseStepResults(reply.payload);
    if (errno === 0) return;
    throw new PodnetError("AGENT_REFUSED", "The guest cannot be made a clone of its template", {
      details: { errno: errnoName(errno) },
    });
  }

  #wire(controlSocket: UnixConnection, ttySocket: UnixConnection | undefined): Wires {
    const limits = this.#limits;
    const time = this.#time;
    const tty = new Tty(ttySocket, {
      limits,
      time,
      // An earlier daemon's processes may still use its numbers.
      firstStream: this.#options.reattach ? BigInt(Date.now()) * 1024n : 1n,
      inherits: this.#options.reattach,
      onClose: (reason) => this.#end(reason),
      onSlowed: (is) => {
        for (const listener of this.#slowedListeners) listener(is);
      },
    });
    const control = new Control(
      controlSocket,
      { limits, time },
      {
        ready: () => this.#onReadyFrame(),
        processEvent: (event) => processes.finished(event),
        mainEnded: (end) => main.ended(end),
        containerEnded: (end) => containers.ended(end),
        closed: (reason) => this.#end(reason),
      },
    );
    const processes = new Processes(control, tty, { limits, time });
    const main = new MainProcess(control, tty, { limits, time });
    const containers = new Containers(control, tty, { limits, time });
    return { control, tty, processes, main, containers };
  }

  #onReadyFrame(): void {
    const state = this.#state;
    switch (state.kind) {
      case "connecting":
      case "closed":
        return;
      case "waiting":
        return this.#identify(state.wires, { fresh: true });
      case "identifying":
        state.stop.abort();
        if (++this.#restarts > this.#limits.restarts)
          throw malformed("The guest's agent starts again and again");
        return this.#restart(state.wires);
      case "up":
        this.#up = Promise.withResolvers<Up>();
        this.#up.promise.catch(() => {});
        return this.#restart(state.wires, state.life);
    }
  }

  /**
   * READY came again: the guest rebooted or its agent restarted, and knows nothing of what was
   * asked.
   */
  #restart(wires: Wires, life?: AbortController): void {
    const reason = new PodnetError("AGENT_DISCONNECTED", "The guest's agent has started anew");
    life?.abort(reason);
    wires.tty.restart();
    wires.control.restart(reason);
    wires.processes.failAll(reason);
    wires.main.forget();
    wires.containers.forget();
    this.#identify(wires, { fresh: false });
  }

  #identify(wires: Wires, { fresh }: { readonly fresh: boolean }): void {
    const stop = new AbortController();
    this.#state = { kind: "identifying", wires, stop };
    const booted = wires.control.counters.readies > 0;
    const deadlineMs = this.#limits.identifyMs;
    const current = (): boolean => this.#state.kind === "identifying" && this.#state.stop === stop;
    const versions = this.#options.extension === false ? [] : [extensionVersion];
    identify(wires.control, { fresh, versions, deadlineMs, signal: stop.signal }).then(
      (identity) => {
        if (current()) this.#rise(wires, identity, booted);
      },
      (error: unknown) => {
        if (current()) this.#end(toPodnetError(error));
      },
    );
  }

  #rise(wires: Wires, identity: GuestIdentity, booted: boolean, nic?: ParkedNic): void {
    this.#readyTimer?.[Symbol.dispose]();
    this.#restarts = 0;
    const ours = identity.extension !== undefined;
    wires.control.setFlow(ours ? "free" : "next");
    const life = new AbortController();
    const context = { ...wires, limits: this.#limits, life: life.signal };
    const dialect = ours
      ? ourDialect(context, identity.features, nic)
      : new HyperstartDialect(context, this.#podState(booted));
    const up: Up = { kind: "up", wires, identity, dialect, life };
    this.#state = up;
    this.#up.resolve(up);
    // The first READY is what `ready` waits for. Found again, a guest said its first to an earlier
    // daemon.
    const expected = this.#options.reattach || this.#options.wake !== undefined ? 0 : 1;
    if (wires.control.counters.readies <= expected) return;
    try {
      for (const listener of this.#readyListeners) listener(identity);
    } catch (error) {
      this.#end(toPodnetError(error));
    }
  }

  /** The known state of a plain hyperstart's pod. A guest that has just booted has no pod. */
  #podState(booted: boolean): PodState {
    if (booted) return "new";
    return this.#options.configuredBefore === true ? "started" : "unknown";
  }

  #end(reason: PodnetError): void {
    const state = this.#state;
    if (state.kind === "closed") return;
    const wires = this.#wires();
    this.#state = { kind: "closed", reason };
    this.#readyTimer?.[Symbol.dispose]();
    if (state.kind === "connecting" || state.kind === "identifying") state.stop.abort(reason);
    if (state.kind === "up") state.life.abort(reason);
    wires?.control.abandon(reason);
    wires?.tty.close(reason);
    wires?.main.forget();
    wires?.containers.forget();
    wires?.processes.failAll(reason);
    if (state.kind === "up") this.#up = Promise.withResolvers<Up>();
    this.#up.promise.catch(() => {});
    this.#up.reject(reason);
    const listeners = [...this.#closeListeners];
    this.#closeListeners.clear();
    for (const listener of listeners) listener(reason);
  }
}
