import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { noBytes } from "../protocol/bytes.ts";
import { command } from "../protocol/codes.ts";
import { agentFeatures } from "../protocol/configure.ts";
import {
  type ContainerFile,
  type ContainerVolume,
  type ContainerLimits,
  type ContainerUsage,
  type CreateContainer,
  type ListedContainer,
  type StartContainer,
  encodeContainerFile,
  encodeContainerId,
  encodeContainerVolume,
  encodeCreateContainer,
  encodeFollowContainer,
  encodeLimitContainer,
  encodeResizeContainer,
  encodeSignalContainer,
  encodeStartContainer,
  parseContainerList,
  parseContainerUsage,
} from "../protocol/container-messages.ts";
import type { MainEnded } from "../protocol/main-process.ts";
import type { Control } from "./control.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import {
  MainProcess,
  type MainProcessAccess,
  type MainProcessListener,
  type ProcessCommands,
} from "./main-process.ts";
import type { Tty } from "./tty.ts";

/**
 * The containers of a guest. Every failure is a `PodnetError`; what the guest refuses is
 * `AGENT_REFUSED`, with the field at fault and the guest's `errno` where it has one.
 */
export interface GuestContainers {
  /** Makes one of a disk that is plugged in; the same request again finds it. */
  create(request: CreateContainer, signal: AbortSignal): Promise<void>;
  /** Lays a file over that of the image, before the start. */
  placeFile(file: ContainerFile, signal: AbortSignal): Promise<void>;
  /** Lays a directory over that of the image that other containers share, before the start. */
  share(volume: ContainerVolume, signal: AbortSignal): Promise<void>;
  /** Starts its first process; one that runs already is fine. */
  start(request: StartContainer, signal: AbortSignal): Promise<void>;
  /** Has its output from a position on, and its end. */
  follow(
    id: string,
    from: number,
    listener: MainProcessListener,
    signal: AbortSignal,
  ): Promise<MainProcessAccess>;
  signal(id: string, number: number, signal: AbortSignal): Promise<void>;
  /** Kills what runs in it and removes it; an absent one is removed. Then its disk is free. */
  remove(id: string, signal: AbortSignal): Promise<void>;
  list(signal: AbortSignal): Promise<readonly ListedContainer[]>;
  /** Changes what one that runs may use. `UNSUPPORTED` for an agent that limits none. */
  limit(id: string, limits: ContainerLimits, signal: AbortSignal): Promise<void>;
  /** What those that were started use. `UNSUPPORTED` for an agent that does not count. */
  usage(signal: AbortSignal): Promise<readonly ContainerUsage[]>;
}

/** The host's side of them. */
export class Containers implements GuestContainers {
  readonly #control: Control;
  readonly #tty: Tty;
  readonly #options: { readonly limits: ChannelLimits; readonly time: GuestTime };
  readonly #followed = new Map<string, MainProcess>();
  /** The agent's, once it is known. */
  features: readonly string[] = [];

  constructor(
    control: Control,
    tty: Tty,
    options: { readonly limits: ChannelLimits; readonly time: GuestTime },
  ) {
    this.#control = control;
    this.#tty = tty;
    this.#options = options;
  }

  async create(request: CreateContainer, signal: AbortSignal): Promise<void> {
    const payload = encodeCreateContainer(request);
    const what = `container "${request.id}"`;
    await this.#call(command.createContainer, payload, what, signal, request.waitMs);
  }

  async placeFile(file: ContainerFile, signal: AbortSignal): Promise<void> {
    const what = `file "${printable(file.path)}" of a container`;
    await this.#call(command.containerFile, encodeContainerFile(file), what, signal);
  }

  async share(volume: ContainerVolume, signal: AbortSignal): Promise<void> {
    const what = `directory "${printable(volume.path)}" of a container`;
    if (volume.share !== undefined && !this.features.includes(agentFeatures.writableShares))
      throw new PodnetError("UNSUPPORTED", "The guest's agent gives containers no shares", {
        field: "mounts",
        hint: "Use an image with this podnet's agent",
      });
    await this.#call(command.containerVolume, encodeContainerVolume(volume), what, signal);
  }

  async start(asked: StartContainer, signal: AbortSignal): Promise<void> {
    const what = `to run "${printable(asked.args[0] ?? "")}" in a container`;
    const { limits = {}, ...others } = asked;
    // A part of busy processors is no limit: each runs as well as it can.
    const { cpuWeight: _weight, killedAsOne: _killed, ...hard } = limits;
    if (Object.values(hard).some((each) => each > 0)) this.#requireLimits();
    if (asked.processes !== undefined || asked.filter !== undefined) this.#requireProcesses();
    const request = this.#canLimit ? asked : others;
    await this.#call(command.startContainer, encodeStartContainer(request), what, signal);
  }

  async limit(id: string, limits: ContainerLimits, signal: AbortSignal): Promise<void> {
    this.#requireLimits();
    const payload = encodeLimitContainer({ id, limits });
    await this.#call(command.limitContainer, payload, "limits of a container", signal);
  }

  async usage(signal: AbortSignal): Promise<readonly ContainerUsage[]> {
    this.#requireLimits();
    const what = "what its containers use";
    return parseContainerUsage(await this.#call(command.containerUsage, noBytes, what, signal));
  }

  follow(
    id: string,
    from: number,
    listener: MainProcessListener,
    signal: AbortSignal,
  ): Promise<MainProcessAccess> {
    this.#followed.get(id)?.forget();
    const followed = new MainProcess(this.#control, this.#tty, this.#options, commandsOf(id));
    this.#followed.set(id, followed);
    return followed.follow(id, from, listener, signal);
  }

  async signal(id: string, number: number, signal: AbortSignal): Promise<void> {
    const payload = encodeSignalContainer({ id, signal: number });
    await this.#call(command.signalContainer, payload, `signal ${number}`, signal);
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    const what = `to remove container "${id}"`;
    await this.#call(command.endContainer, encodeContainerId(id), what, signal);
    this.#followed.get(id)?.forget();
    this.#followed.delete(id);
  }

  async list(signal: AbortSignal): Promise<readonly ListedContainer[]> {
    const answer = await this.#call(command.listContainers, noBytes, "its containers", signal);
    return parseContainerList(answer);
  }

  /** The guest reports an end. Answers whether it concerns one that is followed. */
  ended(end: MainEnded): boolean {
    return this.#followed.get(end.id)?.ended(end) ?? false;
  }

  /** Follows none of them any more. */
  forget(): void {
    for (const followed of this.#followed.values()) followed.forget();
    this.#followed.clear();
  }

  get #canLimit(): boolean {
    return this.features.includes(agentFeatures.containerLimits);
  }

  #requireProcesses(): void {
    if (this.features.includes(agentFeatures.containerProcesses)) return;
    throw new PodnetError(
      "UNSUPPORTED",
      "The guest's agent neither lets containers share processes nor filters system calls",
      {
        field: "containers",
        hint: "Use podnet's own kernel and initramfs, and the agent of this podnet",
      },
    );
  }

  #requireLimits(): void {
    if (this.#canLimit) return;
    throw new PodnetError("UNSUPPORTED", "The guest does not limit single containers", {
      field: "containers",
      hint: "Use podnet's own kernel and initramfs, and the agent of this podnet",
    });
  }

  #call(
    code: number,
    payload: Uint8Array,
    what: string,
    signal: AbortSignal,
    waitMs = 0,
  ): Promise<Uint8Array> {
    const deadlineMs = this.#options.limits.commandMs + waitMs;
    return this.#control.call(code, payload, { deadlineMs, signal, what });
  }
}

const commandsOf = (id: string): ProcessCommands => ({
  follow: (streams) => [command.followContainer, encodeFollowContainer({ id, ...streams })],
  signal: (signal) => [command.signalContainer, encodeSignalContainer({ id, signal })],
  resize: (rows, columns) => [
    command.resizeContainer,
    encodeResizeContainer({ id, rows, columns }),
  ],
});

/** Throws `UNSUPPORTED` unless the agent runs containers. */
export function requireContainers(features: readonly string[] | undefined): void {
  if (features?.includes(agentFeatures.containers) === true) return;
  throw new PodnetError("UNSUPPORTED", "The guest's agent runs no containers", {
    field: "containers",
    hint: "Use podnet's own kernel and initramfs, and the agent of this podnet",
  });
}
