import { closeSync, openSync } from "node:fs";
import { Socket } from "node:net";
import { constants } from "node:os";
import { errnoName } from "../rtnetlink/errno.ts";
import {
  fcntl,
  lastErrno,
  pipe2,
  posixSpawn,
  spawnActions,
  spawnAttributes,
  waitpid,
} from "../ffi/libc.ts";
import { checked, syscallError } from "../syscall-error.ts";

/** What a program is started with. */
export interface SpawnInput {
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /**
   * From standard output on: the i-th is descriptor 1 + i of the program, whatever its number here.
   * They stay the caller's. Standard input is empty.
   */
  readonly descriptors: readonly number[];
  /** The program's mask of rights; this process's own unless given. */
  readonly umask?: number;
}

/** A program that runs. */
export interface Spawned {
  readonly pid: number;
  /** Resolves with the way it ended: `exit code 1`, or the name of a signal. */
  readonly ended: Promise<string>;
  /** Kills it, unless its end is known. */
  kill(): void;
}

const F_DUPFD_CLOEXEC = 1030;
const O_CLOEXEC = 0o2000000;
const WNOHANG = 1;
/** Of glibc and musl alike: a session of its own, and no signal blocked or ignored. */
const setSession = 0x80;
const setDefaults = 0x04;
const setMask = 0x08;
/** More than glibc's structures take: 80 and 336 bytes, and 128 of a set of signals. */
const room = 512;
/** Signals 1 to 31 but SIGKILL and SIGSTOP, whose actions cannot be set. */
const settable = 0x7fff_ffff & ~(1 << 8) & ~(1 << 18);

/** Who waits for the end of what runs, by pid. */
const running = new Map<number, (how: string) => void>();

/** Resolves when the start before is over: starts hold one thread of Node's pool, not all. */
let before: Promise<unknown> = Promise.resolve();

/**
 * Starts a program in a session of its own. Node's `spawn` forks: it holds up the calling thread
 * while the kernel copies the tables of all of this process's memory, only to drop them, and until
 * the child has had a processor. `posix_spawn` lends the child the memory until it executes the
 * program, and another thread waits for that; with a `umask`, which all threads share, the calling
 * one does. Rejects as Node does (`code` is the error's name) when the program cannot be executed.
 */
export async function spawnProcess(program: string, input: SpawnInput): Promise<Spawned> {
  using prepared = new Preparation(program, input);
  const pid = new Int32Array(1);
  let errno: number;
  if (input.umask === undefined) {
    const started = before.then(() => prepared.executeElsewhere(pid));
    before = started.catch(() => {});
    errno = await started;
  } else errno = prepared.execute(pid, input.umask);
  if (errno !== 0) throw spawnError(program, errno);
  const { promise: ended, resolve } = Promise.withResolvers<string>();
  if (running.size === 0) process.on("SIGCHLD", reap);
  const [number = 0] = pid;
  running.set(number, resolve);
  // It may have ended by now.
  reap();
  // (Until it is waited for, no other process gets its pid.)
  const kill = (): void => void (running.has(number) && process.kill(number, "SIGKILL"));
  return { pid: number, ended, kill };
}

/** What the C library needs for a start. */
class Preparation implements Disposable {
  readonly #actions = new Uint8Array(room);
  readonly #attributes = new Uint8Array(room);
  readonly #descriptors: number[] = [];
  readonly #call: readonly [
    program: string,
    actions: Uint8Array,
    attributes: Uint8Array,
    argv: readonly (string | null)[],
    environment: readonly (string | null)[],
  ];

  constructor(program: string, { args, cwd, env, descriptors }: SpawnInput) {
    const [actions, attributes] = [this.#actions, this.#attributes];
    const surroundings = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    this.#call = [program, actions, attributes, [program, ...args, null], [...surroundings, null]];
    succeed(spawnActions.init(actions));
    succeed(spawnAttributes.init(attributes));
    const signals = new Uint8Array(room);
    succeed(spawnAttributes.setSignalMask(attributes, signals));
    new DataView(signals.buffer).setUint32(0, settable, true);
    succeed(spawnAttributes.setDefaultSignals(attributes, signals));
    succeed(spawnAttributes.setFlags(attributes, setSession | setDefaults | setMask));
    succeed(spawnActions.changeDirectory(actions, cwd));
    const nothing = openSync("/dev/null", "r");
    try {
      // First to numbers that none of them gets: one could be in another's place.
      for (const fd of [nothing, ...descriptors])
        this.#descriptors.push(duplicate(fd, 1 + descriptors.length));
    } catch (thrown) {
      this[Symbol.dispose]();
      throw thrown;
    } finally {
      closeSync(nothing);
    }
    for (const [to, fd] of this.#descriptors.entries())
      succeed(spawnActions.duplicate(actions, fd, to));
  }

  /** Answers with an error number. */
  execute(pid: Int32Array, umask: number): number {
    const former = process.umask(umask);
    try {
      return posixSpawn(pid, ...this.#call);
    } finally {
      process.umask(former);
    }
  }

  /** As `execute`, on another thread. */
  executeElsewhere(pid: Int32Array): Promise<number> {
    return new Promise((resolve, reject) => {
      posixSpawn.async(pid, ...this.#call, (error: Error | null, errno: number) =>
        error === null ? resolve(errno) : reject(error),
      );
    });
  }

  [Symbol.dispose](): void {
    for (const fd of this.#descriptors.splice(0)) closeSync(fd);
    spawnActions.destroy(this.#actions);
    spawnAttributes.destroy(this.#attributes);
  }
}

/** Throws unless it is 0, which these functions answer unless there is no memory. */
function succeed(errno: number): void {
  if (errno !== 0) throw syscallError("posix_spawn", errno, "Cannot start a program");
}

const duplicate = (fd: number, least: number): number =>
  checked(fcntl(fd, F_DUPFD_CLOEXEC, least), "fcntl", "Cannot hand over a descriptor");

/** As Node's own. */
function spawnError(program: string, errno: number): NodeJS.ErrnoException {
  const code = errnoName(errno);
  const syscall = `spawn ${program}`;
  return Object.assign(new Error(`${syscall} ${code}`), { code, errno: -errno, syscall });
}

/** Node waits for its own children only, each by its pid. */
function reap(): void {
  for (const [pid, resolve] of running) {
    const status = new Int32Array(1);
    const found = waitpid(pid, status, WNOHANG);
    if (found === 0) continue;
    running.delete(pid);
    resolve(found === pid ? endOf(status[0] as number) : `waitpid: ${errnoName(lastErrno())}`);
  }
  if (running.size === 0) process.off("SIGCHLD", reap);
}

function endOf(status: number): string {
  const number = status & 0x7f;
  if (number === 0) return `exit code ${(status >> 8) & 0xff}`;
  const [name = `signal ${number}`] =
    Object.entries(constants.signals).find(([, each]) => each === number) ?? [];
  return name;
}

/** A pipe whose other end a program writes into. */
export class ReportPipe implements Disposable {
  readonly stream: Socket;
  /** The end for the program; undefined once it is closed here. */
  #write: number | undefined;

  constructor() {
    const ends = new Int32Array(2);
    checked(pipe2(ends, O_CLOEXEC), "pipe2", "Cannot open a pipe");
    const [fd = -1, write = -1] = ends;
    this.#write = write;
    this.stream = new Socket({ fd, readable: true, writable: false });
  }

  /** The end to hand over. */
  get descriptors(): readonly number[] {
    return this.#write === undefined ? [] : [this.#write];
  }

  /** Closes the program's end here, so that the stream ends when the program closes it. */
  handedOver(): void {
    if (this.#write !== undefined) closeSync(this.#write);
    this.#write = undefined;
  }

  [Symbol.dispose](): void {
    this.handedOver();
    this.stream.destroy();
  }
}
