import { PodnetError } from "../../core/errors.ts";
import { noBytes } from "../protocol/bytes.ts";
import { command } from "../protocol/codes.ts";
import { malformed } from "../protocol/fields.ts";
import {
  type FollowMain,
  type MainEnded,
  type MainProcessSpec,
  type ProcessEnd,
  encodeFollowMain,
  encodeResizeMain,
  encodeSignalMain,
  encodeStartMain,
  parseFollowedMain,
} from "../protocol/main-process.ts";
import { ttyHeaderSize, ttyLimit } from "../protocol/tty-frame.ts";
import type { CallOptions, Control } from "./control.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import type { Tty } from "./tty.ts";

/** What becomes of the main process's output and end, called in the order of its writes. */
export interface MainProcessListener {
  /** `at`: position of the first byte in all output. Answers what this costs, in bytes. */
  output(stderr: boolean, data: Uint8Array, at: number): number;
  /** The last call. */
  ended(end: ProcessEnd): void;
}

/** The host's way to the main process. */
export interface MainProcessAccess {
  /** The first byte of output that comes: later than asked for where the guest kept no more. */
  readonly at: number;
  /** Writes to standard input; resolves when the bytes are handed to the channel. */
  write(data: Uint8Array): Promise<void>;
  closeInput(): Promise<void>;
  signal(signal: number): Promise<void>;
  resize(rows: number, columns: number): Promise<void>;
}

interface Following {
  readonly id: string;
  readonly stdout: bigint;
  readonly stderr: bigint;
  readonly listener: MainProcessListener;
  /** Undefined until the guest has said where the output begins. */
  at: number | undefined;
  /** What came before that, while the channel is held. */
  early: { readonly stderr: boolean; readonly data: Uint8Array }[];
  /** It has ended, and has written so much. */
  end: { readonly at: number; readonly end: ProcessEnd } | undefined;
}

/** How the guest is asked about one process: each command's code and payload. */
export interface ProcessCommands {
  readonly follow: (streams: FollowMain) => Asked;
  readonly signal: (signal: number) => Asked;
  readonly resize: (rows: number, columns: number) => Asked;
}
type Asked = readonly [code: number, payload: Uint8Array];

const mainCommands: ProcessCommands = {
  follow: (streams) => [command.followMain, encodeFollowMain(streams)],
  signal: (signal) => [command.signalMain, encodeSignalMain(signal)],
  resize: (rows, columns) => [command.resizeMain, encodeResizeMain(rows, columns)],
};

const inputFrame = ttyLimit.extension - ttyHeaderSize;

/** The main process of a guest or of a container in it, as one host follows it. */
export class MainProcess {
  readonly #control: Control;
  readonly #tty: Tty;
  readonly #limits: ChannelLimits;
  readonly #time: GuestTime;
  readonly #commands: ProcessCommands;
  #following: Following | undefined;
  #window = { since: 0, bytes: 0 };
  #endTimer: Disposable | undefined;

  constructor(
    control: Control,
    tty: Tty,
    { limits, time }: { readonly limits: ChannelLimits; readonly time: GuestTime },
    commands: ProcessCommands = mainCommands,
  ) {
    this.#commands = commands;
    this.#control = control;
    this.#tty = tty;
    this.#limits = limits;
    this.#time = time;
  }

  /** Throws `AGENT_REFUSED` with the field at fault, and what `Control.call` throws. */
  async start(spec: MainProcessSpec, signal: AbortSignal): Promise<void> {
    const what = `to run "${spec.args[0] ?? ""}"`;
    await this.#call([command.startMain, encodeStartMain(spec)], what, signal);
  }

  /** Follows the output from a position on; who followed it before is not called any more. */
  async follow(
    id: string,
    from: number,
    listener: MainProcessListener,
    signal: AbortSignal,
  ): Promise<MainProcessAccess> {
    this.forget();
    const [stdout, stderr] = [this.#tty.newStream(), this.#tty.newStream()];
    const following: Following = {
      id,
      stdout,
      stderr,
      listener,
      at: undefined,
      early: [],
      end: undefined,
    };
    this.#following = following;
    this.#tty.listen(stdout, (data) => this.#output(following, false, data));
    this.#tty.listen(stderr, (data) => this.#output(following, true, data));
    try {
      const request = this.#commands.follow({ stdout, stderr, from });
      const answer = await this.#call(request, "to follow its output", signal);
      const followed = parseFollowedMain(answer);
      if (followed.id !== id || followed.at < from)
        throw malformed("The guest follows another process than the one asked for");
      this.#begin(following, followed.at);
      return this.#access(following, followed.at);
    } catch (thrown) {
      if (this.#following === following) this.forget();
      throw thrown;
    }
  }

  /** The guest reports an end. Answers whether it concerns the process that is followed. */
  ended({ id, at, end }: MainEnded): boolean {
    const following = this.#following;
    if (following?.id !== id || following.end !== undefined) return false;
    following.end = { at, end };
    this.#endIfComplete(following);
    // A guest that never sends what it announced must not keep the end from being reported.
    if (this.#following === following) this.#awaitOutput(following, end);
    return true;
  }

  /** Follows no more. */
  forget(): void {
    const following = this.#following;
    this.#following = undefined;
    this.#endTimer?.[Symbol.dispose]();
    this.#endTimer = undefined;
    if (following === undefined) return;
    this.#tty.forget(following.stdout);
    this.#tty.forget(following.stderr);
    this.#tty.release(this);
  }

  #begin(following: Following, at: number): void {
    following.at = at;
    for (const { stderr, data } of following.early.splice(0)) this.#pass(following, stderr, data);
    this.#tty.release(this);
    this.#endIfComplete(following);
  }

  #output(following: Following, stderr: boolean, borrowed: Uint8Array): void {
    if (borrowed.length === 0) return;
    const data = new Uint8Array(borrowed);
    if (following.at !== undefined) return this.#pass(following, stderr, data);
    following.early.push({ stderr, data });
    this.#tty.hold(this);
  }

  #pass(following: Following, stderr: boolean, data: Uint8Array): void {
    const at = following.at ?? 0;
    following.at = at + data.length;
    this.#pace(following.listener.output(stderr, data, at));
    this.#endIfComplete(following);
  }

  /** Holds the channel when more came in this second than is written down for any guest. */
  #pace(bytes: number): void {
    const now = performance.now();
    if (now - this.#window.since >= 1000) this.#window = { since: now, bytes: 0 };
    this.#window.bytes += bytes;
    if (this.#window.bytes < this.#limits.mainBytesPerS) return;
    this.#tty.hold(this);
    this.#time.after(Math.max(1, 1000 - (now - this.#window.since)), () => {
      this.#tty.release(this);
    });
  }

  #endIfComplete(following: Following): void {
    const { end, at, listener } = following;
    if (end === undefined || at === undefined || at < end.at) return;
    if (this.#following === following) this.forget();
    listener.ended(end.end);
  }

  #awaitOutput(following: Following, end: ProcessEnd): void {
    this.#endTimer = this.#time.after(this.#limits.execEofMs, () => {
      if (this.#following !== following) return;
      if (this.#tty.held) return this.#awaitOutput(following, end);
      this.forget();
      following.listener.ended(end);
    });
  }

  #access({ stdout }: Following, at: number): MainProcessAccess {
    const never = new AbortController().signal;
    return {
      at,
      write: async (data) => {
        for (let from = 0; from < data.length; from += inputFrame)
          await this.#tty.write(stdout, data.subarray(from, from + inputFrame));
      },
      closeInput: () => this.#tty.write(stdout, noBytes),
      signal: async (signal) => {
        await this.#call(this.#commands.signal(signal), `signal ${signal}`, never);
      },
      resize: async (rows, columns) => {
        await this.#call(this.#commands.resize(rows, columns), "to resize a terminal", never);
      },
    };
  }

  async #call([code, payload]: Asked, what: string, signal: AbortSignal): Promise<Uint8Array> {
    const options: CallOptions = { deadlineMs: this.#limits.commandMs, signal, what };
    return this.#control.call(code, payload, options);
  }
}

/** Throws `UNSUPPORTED` unless the agent runs main processes. */
export function requireMain(features: readonly string[] | undefined, feature: string): void {
  if (features?.includes(feature) === true) return;
  throw new PodnetError("UNSUPPORTED", "The guest's agent runs no main process", {
    field: "process",
    hint: "Use podnet's own kernel and initramfs, and the agent of this podnet",
  });
}
