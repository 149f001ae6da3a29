import { randomBytes } from "node:crypto";
import { PodnetError, isPodnetError, toPodnetError } from "../../core/errors.ts";
import { noBytes } from "../protocol/bytes.ts";
import { agentContainer, command } from "../protocol/codes.ts";
import {
  type ProcessEvent,
  encodeExecCmd,
  encodeSignalProcess,
  encodeWinSize,
} from "../protocol/process-messages.ts";
import { abortError, abortable } from "../../core/aborting.ts";
import type { CallOptions, Control } from "./control.ts";
import { type InputStyle, ProcessSession } from "./exec-session.ts";
import type { ExecRequest, ExecSession } from "./guest.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import type { Tty } from "./tty.ts";

/** The processes running in one guest on behalf of this host. */
export class Processes {
  readonly #control: Control;
  readonly #tty: Tty;
  readonly #limits: ChannelLimits;
  readonly #time: GuestTime;
  readonly #sessions = new Map<string, ProcessSession>();
  readonly #never = new AbortController().signal;

  constructor(
    control: Control,
    tty: Tty,
    { limits, time }: { readonly limits: ChannelLimits; readonly time: GuestTime },
  ) {
    this.#control = control;
    this.#tty = tty;
    this.#limits = limits;
    this.#time = time;
  }

  get size(): number {
    return this.#sessions.size;
  }

  /**
   * EXECCMD in a container or in the agent's own namespaces. Throws `AGENT_REFUSED`, and what
   * `Control.call` throws.
   */
  async start(request: ExecRequest, input: InputStyle, signal: AbortSignal): Promise<ExecSession> {
    if (signal.aborted) throw abortError(signal, "Starting a process");
    if (this.#sessions.size >= this.#limits.execSessions)
      throw new PodnetError(
        "WRONG_STATE",
        `The guest runs ${this.#sessions.size} processes already`,
        {
          hint: "Wait for some of them to end",
        },
      );
    const session = this.#open(request, input, signal);
    try {
      const payload = encodeExecCmd({
        container: request.container ?? agentContainer,
        process: {
          id: session.process,
          ...request.user,
          additionalGroups: [],
          terminal: request.terminal,
          stdio: session.stdio,
          stderr: session.stderr,
          args: request.args,
          envs: Object.entries(request.env).map(([env, value]) => ({ env, value })),
          // In a container it is then that of the container's own process.
          workdir:
            request.workdir === "" && request.container === undefined ? "/" : request.workdir,
        },
      });
      await this.#call(command.execCmd, payload, signal, `to run "${request.args[0] ?? ""}"`);
      if (request.terminal && request.rows !== undefined && request.columns !== undefined)
        await session.resize(request.rows, request.columns).catch((error: unknown) => {
          // A process that has ended already has no terminal to resize.
          if (!isPodnetError(error, "AGENT_REFUSED")) throw error;
        });
      return session;
    } catch (error) {
      session.abandon(toPodnetError(error), { kill: !isPodnetError(error, "AGENT_REFUSED") });
      throw error;
    }
  }

  /** A process ended. False: it is not known, being an earlier daemon's or given up. */
  finished(event: ProcessEvent): boolean {
    const session = this.#sessions.get(event.process);
    session?.finished(event.status);
    return session !== undefined;
  }

  /** The guest is gone, or its agent has started anew. */
  failAll(reason: PodnetError): void {
    for (const session of this.#sessions.values()) session.abandon(reason, { kill: false });
  }

  #open(request: ExecRequest, input: InputStyle, signal: AbortSignal): ProcessSession {
    const id = randomBytes(8).toString("hex");
    const process = `podnet-exec-${id}`;
    const target = { container: request.container ?? agentContainer, process };
    const session = new ProcessSession({
      id,
      process,
      stdio: this.#tty.newStream(),
      stderr: request.terminal ? 0n : this.#tty.newStream(),
      input,
      tty: this.#tty,
      limits: this.#limits,
      time: this.#time,
      signal,
      othersLive: () => this.#sessions.size > 1,
      resize: (row, column) =>
        this.#call(
          command.winSize,
          encodeWinSize({ target: { kind: "process", ...target }, row, column }),
          signal,
          "to resize a terminal",
        ),
      kill: (number) =>
        this.#call(
          command.signalProcess,
          encodeSignalProcess({ ...target, signal: number }),
          // Not the session's signal: its abort is a reason to kill.
          this.#never,
          `signal ${number}`,
        ),
      ping: () => this.#call(command.ping, noBytes, signal, "PING"),
      gone: () => this.#sessions.delete(process),
    });
    this.#sessions.set(process, session);
    return session;
  }

  async #call(code: number, payload: Uint8Array, signal: AbortSignal, what: string): Promise<void> {
    const options: CallOptions = { deadlineMs: this.#limits.commandMs, signal, what };
    await this.#control.call(code, payload, options);
  }
}

/** Most output kept of a command run for its text. */
const textLimit = 256 * 1024;

/** Runs a command to its end and returns what it printed, at most 256 KiB. */
export async function runForText(
  processes: Processes,
  input: InputStyle,
  args: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly code: number; readonly stdout: Uint8Array }> {
  const request = { args, env: {}, workdir: "/", terminal: false };
  const session = await processes.start(request, input, signal);
  const stdout = new Uint8Array(textLimit);
  let length = 0;
  const read = async (): Promise<number> => {
    for await (const event of session.events) {
      if (event.kind === "exit") return event.code;
      if (event.kind !== "stdout") continue;
      const part = event.data.subarray(0, textLimit - length);
      stdout.set(part, length);
      length += part.length;
    }
    return -1;
  };
  const code = await abortable(read(), signal, `Running "${args[0] ?? ""}" in the guest`);
  return { code, stdout: stdout.subarray(0, length) };
}
