import { createHash } from "node:crypto";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
} from "node:fs";
import type { Socket } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { perform } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { startNetworkProgram } from "../../hypervisor/process/network-program.ts";
import { isSameProcess, processStartTime } from "../../linux/processes/proc.ts";
import {
  connectUnix,
  peerCredentials,
  type UnixConnection,
} from "../../linux/sockets/unix-socket.ts";
import type { RelayProgram } from "../../relay/program.ts";
import type { RelayProcess } from "./relayed-pods.ts";

/** Connections at once, of all pods; each takes two descriptors. */
const mostConnections = 16_384;
/** Descriptors that the program itself needs. */
const ownDescriptors = 100;
/** Milliseconds until it listens, and until it has ended. */
const listenMs = 20_000;
const endMs = 5000;
const logFile = "relay.log";
const prefix = "control-";

export interface HostRelayOptions {
  readonly program: RelayProgram;
  /** Its own, below podnetd's run directory. */
  readonly directory: string;
  readonly port: number;
  /** The user that it runs as; undefined: podnetd's own, where machines are not confined either. */
  readonly uid: number | undefined;
}

/**
 * The relay on this host. It outlives podnetd, which finds it by its control socket: another
 * version of the program, or another port, has another one.
 */
export class HostRelay implements RelayProcess {
  readonly #options: HostRelayOptions;

  constructor(options: HostRelayOptions) {
    this.#options = options;
  }

  async connect(): Promise<Socket> {
    const { directory } = this.#options;
    const control = this.#control();
    const there = await connected(path.join(directory, control));
    if (there !== undefined) return there.socket;
    await this.end();
    this.#makeDirectory();
    return (await this.#start(control)).socket;
  }

  async end(): Promise<void> {
    const { directory } = this.#options;
    for (const name of controls(directory)) {
      using connection = await connected(path.join(directory, name));
      if (connection !== undefined) await endPeer(connection, name);
    }
    // One that has no socket yet ends as well, for it cannot make any without the directory.
    if (existsSync(directory))
      perform("file", "remove relay's directory", () => rmSync(directory, { recursive: true }));
  }

  #control(): string {
    const { program, port } = this.#options;
    const digest = createHash("sha256").update(String(port));
    try {
      digest.update(readFileSync(program.argv[1]));
    } catch (cause) {
      throw new PodnetError("JAIL_FAILED", `The relay "${program.argv[1]}" is not there`, {
        hint: "Build it: ./scripts/build-programs",
        cause,
      });
    }
    return `${prefix}${digest.digest("hex").slice(0, 8)}`;
  }

  async #start(control: string): Promise<UnixConnection> {
    const { program, directory, port, uid } = this.#options;
    const openFiles = 2 * mostConnections + ownDescriptors;
    const { ended } = await startNetworkProgram({
      argv: [...program.argv, String(port), control, String(mostConnections)],
      directory,
      log: logFile,
      jail: uid === undefined ? undefined : { uid, files: program.files, openFiles },
    });
    let how: string | undefined;
    void ended.then((text) => (how = text));
    for (const before = performance.now(); performance.now() - before < listenMs; await delay(10)) {
      const connection = await connected(path.join(directory, control));
      if (connection !== undefined) return connection;
      if (how !== undefined) throw this.#failed(how);
    }
    throw this.#failed(`nothing within ${listenMs} ms`);
  }

  #failed(how: string): PodnetError {
    const { directory, port } = this.#options;
    const said = readFileSync(path.join(directory, logFile), "utf8").slice(-4000);
    if (said.includes("EADDRINUSE"))
      return new PodnetError("PORT_IN_USE", `Port ${port} of the relay is taken`, {
        field: "relay_port",
        hint: "Set relay_port to a free port",
      });
    return new PodnetError("INTERNAL", `The relay ended with ${how}`, {
      hint: `See ${path.join(directory, logFile)}`,
      details: { said },
    });
  }

  /** Open to podnetd, and to the relay by its group: it makes its socket there, and no more. */
  #makeDirectory(): void {
    const { directory, uid } = this.#options;
    perform("file", "make relay's directory", () => {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      if (uid !== undefined) chownSync(directory, process.getuid?.() ?? 0, uid);
      chmodSync(directory, uid === undefined ? 0o700 : 0o1770);
    });
  }
}

function controls(directory: string): readonly string[] {
  try {
    return readdirSync(directory).filter((name) => name.startsWith(prefix));
  } catch {
    return [];
  }
}

/** Undefined where nothing listens. */
async function connected(socket: string): Promise<UnixConnection | undefined> {
  try {
    return await connectUnix(socket, AbortSignal.timeout(endMs));
  } catch (thrown) {
    const errno = isPodnetError(thrown, "SYSCALL_FAILED") ? thrown.details["errno"] : undefined;
    if (errno === "ENOENT" || errno === "ECONNREFUSED") return undefined;
    throw thrown;
  }
}

/**
 * Ends who listens at a control socket: by the kernel's word for its pid, and its own command line.
 */
async function endPeer({ fd }: UnixConnection, control: string): Promise<void> {
  const { pid } = peerCredentials(fd);
  const started = processStartTime(pid);
  if (started === undefined || !isRelay(pid, control)) return;
  perform("signal", "SIGKILL", () => process.kill(pid, "SIGKILL"));
  for (const before = performance.now(); isSameProcess(pid, started); await delay(5))
    if (performance.now() - before > endMs)
      throw new PodnetError("INTERNAL", `The relay with pid ${pid} does not end`, {
        hint: "Look for a hung device below it",
        details: { pid },
      });
}

function isRelay(pid: number, control: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(control);
  } catch {
    return false;
  }
}
