import type { ChildProcess } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { takeHostInventory, takeInventory } from "../lab/inventory.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { difference } from "../lab/network.ts";
import { auditConfig } from "./audit.ts";
import { makeOthers } from "./mixed.ts";
import { type OthersMachine, startOthersMachine } from "./others-machine.ts";

const program = path.resolve(import.meta.dirname, "../../bin/podnetd");

/** How a podnetd that was started fared. */
export type Start =
  | { readonly kind: "ready" }
  /** It ended before it took connections. */
  | { readonly kind: "ended"; readonly how: string };

/** A lab of its own with one state directory and, most of the time, one podnetd on it. */
export interface Worker extends AsyncDisposable {
  readonly lab: Lab;
  readonly directory: string;
  readonly client: Podnet;
  /** A foreign machine; it is started when it is first asked for. */
  others(): Promise<OthersMachine>;
  /** What is wrong with it, if it was started; `attached` when the subject is it. */
  amiss(attached: boolean): Promise<readonly string[]>;
  /** Starts podnetd with these failpoints armed; its effects are recorded. */
  start(failpoints?: readonly string[]): Promise<Start>;
  /**
   * How podnetd ended, within a time; undefined when it has not. Without a time: as long as the end
   * of a process may take whose sockets the kernel closes on a busy machine.
   */
  ended(withinMs?: number): Promise<string | undefined>;
  /** SIGKILL to podnetd, if it runs. */
  kill(): Promise<void>;
  /** Empties the state and run directories of a podnetd that has ended. */
  forget(): void;
  /** Failpoints passed since the last start. */
  record(): readonly string[];
  /** Everything there is: see `takeInventory`. */
  inventory(): Promise<string>;
  /** What there is on the host when no podnetd runs. */
  bare(): Promise<string>;
  /**
   * What has come (+) and gone (-) since an inventory, but for lines with one of the texts to be
   * left out.
   */
  changes(since: string, leftOut?: readonly string[]): Promise<readonly string[]>;
  /** The last that podnetd has logged. */
  log(): string;
  /** Whether anything that it has logged since its start has this text. */
  reports(text: string): boolean;
}

export async function openWorker(name: string, config: string): Promise<Worker> {
  await using opened = new AsyncDisposableStack();
  const lab = opened.use(await openLab(`${name}-`));
  await makeOthers(lab.host);
  const directory = mkdtempSync(path.join(tmpdir(), `podnet-crash-${name}-`));
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  opened.defer(() => killAllOf(directory));
  const socket = path.join(directory, "podnet.sock");
  const recordFile = path.join(directory, "record");
  const logFile = path.join(directory, "podnetd.log");
  const configFile = path.join(directory, "config.toml");
  writeFileSync(
    configFile,
    `state_dir = "${directory}/state"\nrun_dir = "${directory}/run"\nsocket = "${socket}"\n${auditConfig(directory)}${config}`,
  );
  let child: ChildProcess | undefined;
  let end: Promise<string> = Promise.resolve("never started");
  let client = connectPodnet({ socket });
  opened.defer(() => client.close());

  const alive = (): boolean =>
    child !== undefined && child.exitCode === null && child.signalCode === null;
  const kill = async (): Promise<void> => {
    if (!alive()) return;
    child?.kill("SIGKILL");
    await end;
  };
  opened.defer(kill);
  const inventory = (): Promise<string> =>
    takeInventory(lab.host, { process: child as ChildProcess, directory }, client);
  let others: Promise<OthersMachine> | undefined;
  opened.defer(async () => {
    await (await others)?.[Symbol.asyncDispose]();
  });
  const held = opened.move();
  return {
    lab,
    directory,
    get client() {
      return client;
    },
    others: () => (others ??= startOthersMachine()),
    amiss: async (attached) => (await (await others)?.amiss(attached ? 1 : 0)) ?? [],
    async start(failpoints = []) {
      writeFileSync(recordFile, "");
      const log = openSync(logFile, "w");
      const started = lab.host.spawn([program, "--config", configFile], {
        stdio: ["ignore", log, log],
        env: {
          ...process.env,
          PODNET_FAILPOINTS: [`record:${recordFile}`, ...failpoints].join(";"),
        },
      });
      closeSync(log);
      child = started;
      end = new Promise((resolve) => {
        started.once("exit", (code, signal) => resolve(signal ?? `exit code ${code}`));
      });
      client.close();
      client = connectPodnet({ socket });
      const deadline = performance.now() + 60_000;
      while (alive() && performance.now() < deadline) {
        if (await accepts(socket)) return { kind: "ready" };
        await delay(10);
      }
      if (alive()) {
        const last = lines(recordFile).slice(-6).join("\n");
        throw new Error(`podnetd hangs in its start:\n${last}\n${readFileSync(logFile, "utf8")}`);
      }
      return { kind: "ended", how: await end };
    },
    async ended(withinMs = 30_000) {
      const late = new AbortController();
      const limit = delay(withinMs, undefined, { signal: late.signal }).catch(() => undefined);
      const how = await Promise.race([end, limit]);
      late.abort();
      return how;
    },
    kill,
    forget() {
      for (const name of ["state", "run"])
        rmSync(path.join(directory, name), { recursive: true, force: true });
    },
    record: () => lines(recordFile),
    inventory,
    bare: () => takeHostInventory(lab.host, directory),
    async changes(since, leftOut = []) {
      for (let attempt = 1; ; attempt++) {
        const found = difference(since, await inventory()).filter(
          (line) =>
            !/^- open (?:socket|pipe)$/.test(line) && !leftOut.some((text) => line.includes(text)),
        );
        // A descriptor of a connection, or of a command, is closed a little after its last answer,
        // and nothing reports it.
        const closing = found.every((line) => /^\+ open (?:socket|pipe)$/.test(line));
        if (found.length === 0 || !closing || attempt === 50) return found;
        await delay(20);
      }
    },
    log: () => readFileSync(logFile, "utf8").slice(-3000),
    reports: (text) => readFileSync(logFile, "utf8").includes(text),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

const lines = (file: string): readonly string[] =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .split("\n")
        .filter((line) => line !== "")
    : [];

function accepts(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    connection.once("connect", () => {
      connection.destroy();
      resolve(true);
    });
    connection.once("error", () => resolve(false));
  });
}

/** Ends whatever works in a directory: machines outlive their daemon. */
function killAllOf(directory: string): void {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (readlinkSync(`/proc/${pid}/cwd`).startsWith(directory))
        process.kill(Number(pid), "SIGKILL");
    } catch {
      // It has ended.
    }
  }
}
