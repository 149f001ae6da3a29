import { type ChildProcess, execFile } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import type { Machine } from "./lab.ts";

const top = path.resolve(import.meta.dirname, "../..");
const podnetProgram = path.join(top, "bin/podnet");
const podnetdProgram = path.join(top, "bin/podnetd");

/** How a run of the `podnet` command ended. */
export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

/** A podnetd running on a machine of the lab, with state and run directories of its own. */
export interface Podnetd extends AsyncDisposable {
  readonly process: ChildProcess;
  readonly directory: string;
  readonly stateDir: string;
  readonly runDir: string;
  readonly socket: string;
  readonly configFile: string;
  /**
   * Runs `podnet`; rejects with its standard error unless it exits 0. Resolves to its standard
   * output.
   */
  podnet(...args: readonly string[]): Promise<string>;
  /** Runs `podnet` whatever its exit code. */
  tryPodnet(...args: readonly string[]): Promise<CommandResult>;
  /** What the daemon has logged so far. */
  log(): string;
  /** SIGTERM, and waits for the end. Pods run on. */
  stop(): Promise<number | null>;
  /** SIGKILL, and waits for the end. Pods run on. */
  kill(): Promise<void>;
}

export interface PodnetdOptions {
  readonly machine: Machine;
  /** Holds state, run directory, log and configuration. */
  readonly directory: string;
  /** TOML put below the paths; top-level keys first. */
  readonly config?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** A command that runs it in some other way, given podnetd's own as arguments. */
  readonly through?: readonly [string, ...string[]];
  /** Longest it may take until it takes connections, milliseconds; 60,000 unless given. */
  readonly readyMs?: number;
}

/**
 * Control groups are everybody's in a sandbox: each podnetd makes those of its machines below a
 * directory of its own.
 */
const ownGroups = ({ directory, config = "" }: PodnetdOptions): Record<string, string> =>
  /^cgroup = /m.test(config) ? {} : { PODNET_QEMU_CGROUP: path.basename(directory) };

/**
 * Starts podnetd and waits until its socket takes connections. Rejects with its log when it ends
 * before.
 */
export async function startPodnetd(options: PodnetdOptions): Promise<Podnetd> {
  const { machine, directory, readyMs = 60_000 } = options;
  mkdirSync(directory, { recursive: true });
  const stateDir = path.join(directory, "state");
  const runDir = path.join(directory, "run");
  const socket = path.join(directory, "podnet.sock");
  const configFile = path.join(directory, "config.toml");
  const logFile = path.join(directory, "podnetd.log");
  writeFileSync(
    configFile,
    `state_dir = "${stateDir}"\nrun_dir = "${runDir}"\nsocket = "${socket}"\n${options.config ?? ""}`,
  );
  /** What podnetds before this one have written there. */
  const logged = existsSync(logFile) ? readFileSync(logFile, "utf8").length : 0;
  const log = openSync(logFile, "a");
  const command = [podnetdProgram, "--config", configFile] as const;
  const { through } = options;
  const child = machine.spawn(through === undefined ? command : [...through, ...command], {
    stdio: ["ignore", log, log],
    env: { ...process.env, ...ownGroups(options), ...options.env },
  });
  closeSync(log);
  const failpoints = options.env?.["PODNET_FAILPOINTS"] !== undefined;
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const readLog = (): string => readFileSync(logFile, "utf8");
  // Before it serves, whoever waits for it reports its end.
  let asked = true;
  child.once("exit", (code, signal) => {
    // Its log goes with the test's directory: whoever reads of a failure has nothing else to go by.
    if (!asked && code !== 0 && existsSync(logFile))
      console.error(`podnetd ended by itself, ${code ?? signal}:\n${readLog().slice(-4000)}`);
  });

  const deadline = performance.now() + readyMs;
  while (!(await accepts(socket))) {
    if (child.exitCode !== null || child.signalCode !== null || performance.now() > deadline) {
      child.kill("SIGKILL");
      throw new Error(`podnetd did not start:\n${readLog().slice(-4000)}`);
    }
    await delay(20);
  }
  asked = failpoints;

  const tryPodnet = (...args: readonly string[]): Promise<CommandResult> => runPodnet(socket, args);
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    asked = true;
    child.kill(signal);
    const code = await ended;
    if (!failpoints && existsSync(logFile)) requireNoDefects(readLog().slice(logged));
    return code;
  };
  return {
    process: child,
    directory,
    stateDir,
    runDir,
    socket,
    configFile,
    tryPodnet,
    async podnet(...args) {
      const { stdout, stderr, exitCode } = await tryPodnet(...args);
      if (exitCode !== 0) throw new Error(`podnet ${args.join(" ")} exited ${exitCode}: ${stderr}`);
      return stdout;
    },
    log: readLog,
    stop: () => end("SIGTERM"),
    kill: async () => {
      await end("SIGKILL");
    },
    [Symbol.asyncDispose]: async () => {
      // Pods survive their daemon by design, so a test's end takes them down first.
      if (child.exitCode === null && child.signalCode === null) {
        await tryPodnet("down", "--yes");
        await end("SIGTERM");
      }
    },
  };
}

/**
 * Throws when a podnetd has logged a defect of its own: it goes on after one, so a test would not
 * notice. A podnetd with failpoints is not asked: it is made to fail.
 */
export function requireNoDefects(log: string): void {
  const found = log.split("\n").filter((line) => line.includes("Defect in podnet, please"));
  if (found.length > 0) throw new Error(`podnetd met defects of its own:\n${found.join("\n")}`);
}

/** Runs the `podnet` command against a socket. */
export async function runPodnet(socket: string, args: readonly string[]): Promise<CommandResult> {
  try {
    const { stdout, stderr } = await promisify(execFile)(podnetProgram, args, {
      env: { ...process.env, PODNET_SOCKET: socket },
      maxBuffer: 1 << 28,
    });
    return { stdout, stderr, exitCode: 0 };
  } catch (error) {
    const { stdout, stderr, code } = error as { stdout: string; stderr: string; code: unknown };
    if (typeof code !== "number") throw error;
    return { stdout, stderr, exitCode: code };
  }
}

function accepts(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    connection.once("connect", () => {
      connection.destroy();
      resolve(true);
    });
    connection.once("error", () => {
      resolve(false);
    });
  });
}
