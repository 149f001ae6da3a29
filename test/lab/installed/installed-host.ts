/**
 * A Debian host with systemd, in namespaces of its own, where packages are installed, upgraded and
 * removed. Its root directory is a Debian's below a layer in memory.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const exec = promisify(execFile);

/** Longest that systemd may take to start, milliseconds. */
const bootMs = 60_000;

export interface InstalledHost extends AsyncDisposable {
  /** Path of the host's root directory, as this process sees it. */
  readonly root: string;
  /** Runs a shell command there; resolves to its output, rejects with it in the message. */
  sh(command: string): Promise<string>;
  /** Runs a shell command there; resolves to its exit code and output. */
  attempt(command: string): Promise<{ readonly code: number; readonly output: string }>;
}

/** The name of a process; undefined if it has ended, as commands of the starting script do. */
function nameOf(pid: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch (thrown) {
    if (["ENOENT", "ESRCH"].includes((thrown as NodeJS.ErrnoException).code ?? ""))
      return undefined;
    throw thrown;
  }
}

/** The process that is the first one in the namespaces that `unshare` made. */
async function firstProcess({ pid }: ChildProcess): Promise<number> {
  const until = Date.now() + bootMs;
  while (Date.now() < until) {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
    const [child = ""] = children;
    if (child !== "" && nameOf(child) === "systemd") return Number(child);
    await delay(50);
  }
  throw new Error("systemd did not start");
}

/**
 * The root directory below the layer: in a complete run a Debian that has nothing but what podnet's
 * package names (scripts/unpack-debian), else this machine's. PODNET_TEST_ROOT names another.
 */
function rootBelow(): string {
  const named = process.env["PODNET_TEST_ROOT"];
  if (named !== undefined) return named;
  if (process.env["PODNET_TEST_FULL"] !== "1") return "/";
  const own = path.resolve(import.meta.dirname, "../../../build/debian-root");
  if (!existsSync(own)) throw new Error(`There is no ${own}; run scripts/setup --root`);
  return own;
}

/** Starts the host. */
export async function openInstalledHost(): Promise<InstalledHost> {
  if (process.env["PODNET_SANDBOX"] !== "1")
    throw new Error("This makes mounts and links; run it below scripts/sandbox");
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-installed-"));
  const name = `podnet-sandbox-installed-${process.pid}`;
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const starter = path.join(import.meta.dirname, "start-system");
  // (A mount namespace of its own: the mounts go with its last process.)
  const system = spawn("unshare", ["--mount", starter, directory, name, rootBelow()], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const ended = new Promise((resolve) => system.once("exit", resolve));
  stack.defer(async () => {
    system.kill("SIGKILL");
    await ended;
    await exec("unshare", ["--mount", starter, directory, name]);
  });
  const pid = await firstProcess(system);
  const words = ["-t", `${pid}`, "-m", "-p", "-n", "-u", "-i", "-C", "--"];
  const inside = ["env", "-i", `PATH=${searchPath}`, "HOME=/root", "sh", "-ec"];
  const attempt: InstalledHost["attempt"] = (command) =>
    new Promise((resolve) => {
      execFile(
        "nsenter",
        [...words, ...inside, `exec 2>&1; ${command}`],
        { maxBuffer: 1 << 26 },
        (failure, stdout) =>
          resolve({
            code: failure === null ? 0 : typeof failure.code === "number" ? failure.code : 255,
            output: stdout,
          }),
      );
    });
  const sh = async (command: string): Promise<string> => {
    const { code, output } = await attempt(command);
    if (code !== 0) throw new Error(`${command}\nended with ${code}:\n${output}`);
    return output;
  };
  await sh(
    "for i in $(seq 600); do systemctl is-system-running | grep -qE 'running|degraded' && exit; sleep 0.1; done; exit 1",
  );
  const held = stack.move();
  return {
    root: `/proc/${pid}/root`,
    sh,
    attempt,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin";
