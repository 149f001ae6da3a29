import type { Rate } from "../../core/token-bucket.ts";
import { ctlLimit } from "../protocol/ctl-frame.ts";

/** The limits of a guest on the host: times in milliseconds, sizes in bytes. */
export interface ChannelLimits {
  /** Until the sockets can be connected to: QEMU makes them as it starts. */
  readonly connectMs: number;
  /**
   * From opening until the agent has said who it is; then the channel is closed. Callers bring
   * deadlines of their own.
   */
  readonly readyMs: number;
  /** For each answer to who it is, from READY or, when reattaching, from the start. */
  readonly identifyMs: number;
  /** For an answer to a command, counted from when those before it are due. */
  readonly commandMs: number;
  /** For CONFIGURE, on top of the time it may wait for interfaces. */
  readonly configureMs: number;
  readonly powerOffMs: number;
  /** For a frame to be complete once its first byte has come. */
  readonly frameMs: number;
  /** Largest control frame accepted. */
  readonly controlFrame: number;
  /** Commands without an answer, those given up included. */
  readonly outstanding: number;
  /** Bytes of commands not yet written. */
  readonly queuedBytes: number;
  /** READYs in a row without a word on who it is, before the guest is cut off. */
  readonly restarts: number;
  /**
   * Frames that mean nothing before the guest is cut off: unknown kinds, NEXT of 0 bytes, output of
   * streams that never were.
   */
  readonly senselessFrames: number;
  /**
   * Ends of processes that are not known, which earlier daemons and sessions given up leave behind;
   * above it the guest is cut off.
   */
  readonly strayEvents: Rate;
  /**
   * Frames on the control channel; what comes faster waits in the socket, and when it keeps coming
   * the guest is cut off.
   */
  readonly controlRate: Rate;
  /**
   * Small frames on the tty channel, and KiB of streams that have ended; what comes faster waits in
   * the socket.
   */
  readonly ttyRate: Rate;
  /** How long a guest may keep to the limit of a rate. */
  readonly tooFastMs: number;
  /** Sessions at a time. */
  readonly execSessions: number;
  /** Output held for one session before the tty channel is paused. */
  readonly execQueue: number;
  /** How long a session that is not read may pause the others; then it is ended. */
  readonly execStallMs: number;
  /** After a process has ended: silence on its stream that counts as the end-of-stream frame. */
  readonly execEofMs: number;
  /** Bytes that the output of a main process may cost in a second; more waits in the guest. */
  readonly mainBytesPerS: number;
}

export const defaultLimits: ChannelLimits = {
  connectMs: 10_000,
  readyMs: 300_000,
  identifyMs: 10_000,
  commandMs: 10_000,
  configureMs: 10_000,
  powerOffMs: 10_000,
  frameMs: 10_000,
  controlFrame: ctlLimit.default,
  outstanding: 256,
  queuedBytes: 4 * 1024 * 1024,
  restarts: 16,
  senselessFrames: 64,
  strayEvents: { perSecond: 8, burst: 512 },
  controlRate: { perSecond: 16_384, burst: 8192 },
  ttyRate: { perSecond: 8192, burst: 8192 },
  tooFastMs: 5000,
  execSessions: 256,
  execQueue: 256 * 1024,
  execStallMs: 30_000,
  execEofMs: 5_000,
  mainBytesPerS: 4 * 1024 * 1024,
};
