import { once } from "node:events";
import { mkdir, open, readFile, rm } from "node:fs/promises";
import { type ChildProcess, spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseIfName } from "../../core/names.ts";
import { type VmPlan, vmSockets } from "../../hypervisor/driver.ts";
import { qemuArgv } from "../../hypervisor/argv/argv.ts";
import { openTap } from "../../linux/tun.ts";
import { connectUnix, type UnixConnection } from "../../linux/sockets/unix-socket.ts";
import type { Line } from "./standin-script.ts";

/** A machine started without podnet's driver, from the command line the driver would use. */
export interface BareMachine extends AsyncDisposable {
  readonly child: ChildProcess;
  readonly runDir: string;
  connect(socket: keyof typeof vmSockets): Promise<UnixConnection>;
  /** How it ended: exit code or signal. */
  readonly ended: Promise<string>;
  stderr(): Promise<string>;
}

/** Starts QEMU, or what stands in for it; `connect` waits for its sockets. */
export async function startBare(
  qemu: string,
  plan: VmPlan,
  more: readonly string[] = [],
): Promise<BareMachine> {
  await mkdir(plan.runDir, { recursive: true });
  const [program, ...words] = qemuArgv(plan, { qemu, accelerator: "tcg", tbSizeMib: 32 });
  const args = [...words, ...more];
  const logFile = join(plan.runDir, "..", "stderr");
  const log = await open(logFile, "w");
  const child = spawn(program as string, args, {
    cwd: plan.runDir,
    stdio: ["ignore", log.fd, log.fd],
    env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
  });
  const ended = once(child, "exit").then(([code, signal]) => String(signal ?? code));
  await log.close();
  const connect = async (socket: keyof typeof vmSockets): Promise<UnixConnection> => {
    for (let attempt = 1; ; attempt++) {
      try {
        const connection = await connectUnix(join(plan.runDir, vmSockets[socket]));
        // A machine that ends resets a connection of which it has not read everything.
        connection.socket.on("error", () => {});
        return connection;
      } catch (error) {
        if (attempt === 1000) throw error;
        await delay(5);
      }
    }
  };
  return {
    child,
    runDir: plan.runDir,
    connect,
    ended,
    stderr: () => readFile(logFile, "utf8"),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
      await rm(plan.runDir, { recursive: true, force: true });
    },
  };
}

type Json = Record<string, unknown>;

/**
 * Talks to a monitor, line by line, and returns all that was said, without times.
 */
export async function converse(
  machine: BareMachine,
  script: readonly Line[],
): Promise<readonly string[]> {
  using connection = await machine.connect("qmp");
  const said = new Listener(connection);
  const transcript: string[] = [...(await said.lines(1))];
  for (const [index, line] of script.entries()) {
    transcript.push(`> ${line.send}${line.with === undefined ? "" : ` with a ${line.with}`}`);
    if (line.after !== undefined) await delay(line.after);
    await send(connection, line, index);
    // A line of several commands gets as many answers; an empty one gets none.
    const replies = [...line.send.matchAll(/"execute"/g)].length || (line.send === "" ? 0 : 1);
    transcript.push(...(await said.answers(replies, line.until ?? [])));
  }
  return transcript;
}

async function send(connection: UnixConnection, line: Line, index: number): Promise<void> {
  const bytes = Buffer.from(`${line.send}\n`);
  if (line.with === "tap") {
    await using tap = openTap(parseIfName(`sc${process.pid % 10_000}x${index}`));
    await connection.sendWithFd(bytes, tap.fd);
  } else if (line.with === "file") {
    await using file = await open("/dev/null");
    await connection.sendWithFd(bytes, file.fd);
  } else if (line.with === "disk") {
    const path = join(tmpdir(), `podnet-dialogue-${process.pid}`);
    await using file = await open(path, "w+");
    await rm(path);
    await file.truncate(1 << 20);
    await connection.sendWithFd(bytes, file.fd);
  } else connection.socket.write(bytes);
}

/** Lines of a monitor, as they come. */
class Listener {
  readonly #lines: Json[] = [];
  #text = "";
  #wake = Promise.withResolvers<void>();

  constructor({ socket }: UnixConnection) {
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      const lines = (this.#text + chunk).split("\r\n");
      this.#text = lines.pop() ?? "";
      this.#lines.push(...lines.map((line) => JSON.parse(line) as Json));
      this.#wake.resolve();
    });
    // An end comes to light as an answer that is missing.
    socket.on("error", () => {});
  }

  async lines(count: number): Promise<string[]> {
    while (this.#lines.length < count) await this.#more(`${count} lines`);
    return this.#lines.splice(0, count).map(normalised);
  }

  /** Everything up to the answers and the events asked for, in the order it came. */
  async answers(replies: number, events: readonly string[]): Promise<string[]> {
    const isEvent = (line: Json): boolean => "event" in line;
    for (;;) {
      const seen = this.#lines.filter(isEvent).map(({ event }) => event);
      const lacking = events.filter(
        (name, i) =>
          seen.filter((s) => s === name).length <
          events.slice(0, i + 1).filter((e) => e === name).length,
      );
      const answered = this.#lines.filter((line) => !isEvent(line)).length;
      if (answered >= replies && lacking.length === 0) break;
      await this.#more(`${replies - answered} answers and the events ${lacking.join(", ")}`);
    }
    const all = this.#lines.splice(0);
    // What a guest's processor brings about races with the answer in QEMU itself, and the end of a
    // device, which its RCU thread reports, with a reset.
    if (!events.includes("DEVICE_DELETED")) return all.map(normalised);
    const resets = all.filter(({ event }) => event === "RESET");
    const otherEvents = all.filter((line) => isEvent(line) && line["event"] !== "RESET");
    return [...resets, ...otherEvents, ...all.filter((line) => !isEvent(line))].map(normalised);
  }

  async #more(what: string): Promise<void> {
    this.#wake = Promise.withResolvers();
    const late = new AbortController();
    const timer = delay(5000, "late", { signal: late.signal }).catch(() => "");
    const how = await Promise.race([this.#wake.promise, timer]);
    late.abort();
    if (how === "late")
      throw new Error(`Waited in vain for ${what}, has ${JSON.stringify(this.#lines)}`);
  }
}

/**
 * One line without its times, numbers of descriptors and threads, and the order of QEMU's hash
 * tables.
 */
function normalised(line: Json): string {
  const { timestamp, ...rest } = line;
  const time = timestamp as { seconds?: unknown; microseconds?: unknown } | undefined;
  if (
    time !== undefined &&
    !(Number.isInteger(time.seconds) && Number.isInteger(time.microseconds))
  )
    throw new Error(`Not a time: ${JSON.stringify(line)}`);
  if (Array.isArray(rest["return"]))
    rest["return"] = rest["return"].map((one) => JSON.stringify(one)).toSorted();
  const thread = /(\\"thread-id\\":)\d+/;
  return `< ${JSON.stringify(rest)
    .replace(/ on FD \d+/, " on FD N")
    .replaceAll(/(\\?"fd\\?":)\d+/g, "$1N")
    .replace(thread, "$1N")}`;
}
