import type { Awakening, GuestConfig, ObservedGuest } from "../protocol/configure.ts";
import type { UserAndGroup } from "../../core/user-text.ts";
import type { PlacedFile } from "../protocol/file-messages.ts";
import type { MainProcessSpec, SoughtProgram } from "../protocol/main-process.ts";
import type { MountedShare } from "../protocol/share-messages.ts";
import type { GuestContainers } from "./containers.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import type { MainProcessAccess, MainProcessListener } from "./main-process.ts";
import type { ParkedNic } from "./parked.ts";

/** Who is at the other end. */
export interface GuestIdentity {
  /** hyperstart's API version, 4244. */
  readonly api: number;
  /** Agreed version of our extension; undefined when the guest is a plain hyperstart. */
  readonly extension: number | undefined;
  /** The agent's own version, when it speaks the extension. */
  readonly agent: string | undefined;
  /**
   * Drawn anew at each start of our agent: another one than before means that it has forgotten
   * everything.
   */
  readonly epoch?: string;
  /** Its abilities beyond its version: see `agentFeatures`. */
  readonly features?: readonly string[];
}

export type ExecEvent =
  | { readonly kind: "stdout"; readonly data: Uint8Array }
  | { readonly kind: "stderr"; readonly data: Uint8Array }
  /** Exit code; 128 + n for a process ended by signal n. Always the last event. */
  | { readonly kind: "exit"; readonly code: number };

export interface ExecRequest {
  /** In this container; absent: alongside the pod's own programs. */
  readonly container?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string;
  /** By name or number; absent: root. */
  readonly user?: UserAndGroup | undefined;
  readonly terminal: boolean;
  readonly rows?: number;
  readonly columns?: number;
}

export interface ExecSession {
  /** 16 hexadecimal digits, drawn anew. */
  readonly id: string;
  /** Output and exit, in order; ends after `exit`. Throws when the guest is lost. */
  readonly events: AsyncIterable<ExecEvent>;
  /** The reader of the events gives memory of much output back, once it has used it. */
  lend?(): void;
  /** Writes to standard input; resolves when the bytes are handed to the channel. */
  write(data: Uint8Array): Promise<void>;
  /** End of standard input; a second one says nothing new. */
  closeInput(): Promise<void>;
  resize(rows: number, columns: number): Promise<void>;
  signal(signal: number): Promise<void>;
}

/**
 * The host's side of one guest's channels. Every call takes a signal and carries a deadline of its
 * own; every failure is a `PodnetError` with an AGENT_* code. A guest that breaks the protocol
 * loses its channel only.
 */
export interface Guest {
  /**
   * Resolves once the agent has said READY and who it is. Nothing is sent before. `AGENT_TIMEOUT`
   * when the signal timed out.
   */
  ready(signal: AbortSignal): Promise<GuestIdentity>;
  /** Sets up the network and returns what the guest observes afterwards. */
  configure(config: GuestConfig, signal: AbortSignal): Promise<ObservedGuest>;
  /** Writes a file. `UNSUPPORTED` for a plain hyperstart; needs the feature `files`. */
  placeFile(file: PlacedFile, signal: AbortSignal): Promise<void>;
  /**
   * Has the guest read what the program's start will read, and run nothing of it; nothing is done
   * by an agent without the feature `preload`.
   */
  preload(program: SoughtProgram, signal: AbortSignal): Promise<void>;
  /**
   * Mounts a share, read-only; one that is mounted stays. `UNSUPPORTED` for an agent without the
   * feature `shares`, `AGENT_REFUSED` for a kernel without the module.
   */
  mountShare(share: MountedShare, signal: AbortSignal): Promise<void>;
  ping(signal: AbortSignal): Promise<void>;
  /**
   * Starts a process. The signal ends the session too: the process is killed and `events` throws.
   */
  exec(request: ExecRequest, signal: AbortSignal): Promise<ExecSession>;
  /**
   * Starts the pod's main process; the one of this id runs already or has ended, where it was
   * started before. Throws `AGENT_REFUSED` with the field at fault, `UNSUPPORTED`.
   */
  startMain(spec: MainProcessSpec, signal: AbortSignal): Promise<void>;
  /**
   * Has the output of the main process from a position on, and its end. Throws `AGENT_REFUSED` when
   * the guest has no such process.
   */
  followMain(
    id: string,
    from: number,
    listener: MainProcessListener,
    signal: AbortSignal,
  ): Promise<MainProcessAccess>;
  /** The containers of the guest. `UNSUPPORTED` for one whose agent runs none. */
  containers(signal: AbortSignal): Promise<GuestContainers>;
  /** Has the guest switch on processors and memory that were plugged into its machine. */
  online(signal: AbortSignal): Promise<void>;
  /** DESTROYPOD: the guest acknowledges and powers off. */
  powerOff(signal: AbortSignal): Promise<void>;
  /**
   * Called on each READY after the first: the guest rebooted or its agent restarted. Returns the
   * unsubscriber.
   */
  onReady(listener: (identity: GuestIdentity) => void): () => void;
  /**
   * Called when the guest's output is slowed down for longer than a moment, because it sends more
   * small frames than it may (true), and when that ends (false). Returns the unsubscriber.
   */
  onSlowed(listener: (is: boolean) => void): () => void;
  /** Called once when the channel is gone for good, with the reason. */
  onClose(listener: (reason: Error) => void): () => void;
  close(): Promise<void>;
}

/** A clone whose template has said who it is, so that it need not be asked. */
export interface Twin {
  /** Its own epoch, and else what its template has said. */
  readonly identity: GuestIdentity & { readonly epoch: string };
  /** 32 hexadecimal digits, drawn anew. */
  readonly machineId: string;
  /** The NIC that its template has parked. */
  readonly nic: ParkedNic | undefined;
}

/**
 * How to begin with a guest cloned from a memory image, which has said READY before it was cloned.
 */
export interface Wake {
  /** Absent: it is sent AWAKE, and asked who it is. Needs the feature `twins`. */
  readonly twin?: Twin;
  /** Asked for at the moment of sending. */
  awakening(): Awakening;
  /**
   * Lets the guest run. Its first frame is on its way by then: it reads it before it does anything
   * else.
   */
  resume(): Promise<void>;
}

export interface OpenGuestOptions {
  readonly channelPath: string;
  /** Undefined: nothing can be run in this guest. */
  readonly ttyPath: string | undefined;
  /**
   * The agent is up already and will not say READY: ask who it is instead. `AGENT_TIMEOUT` if it is
   * silent.
   */
  readonly reattach: boolean;
  /**
   * A guest found again was configured before, which is on record: a plain hyperstart has
   * acknowledged its STARTPOD then, and gets no second one. READY, which says that the guest has
   * booted, overrides it.
   */
  readonly configuredBefore?: boolean;
  /** The guest is a clone that does not run yet. */
  readonly wake?: Wake;
  /**
   * False takes every guest for a plain hyperstart: our agent is one too, and this way it is tested
   * as one.
   */
  readonly extension?: boolean;
  /** Measures the guest's deadlines; a new clock by default. */
  readonly time?: GuestTime;
  /** Deadlines and bounds that differ from `defaultLimits`. */
  readonly limits?: Partial<ChannelLimits>;
}
