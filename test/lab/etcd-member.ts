import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Machine } from "./lab.ts";

const top = path.resolve(import.meta.dirname, "../..");
/** Debian's, unpacked by scripts/unpack-etcd. */
export const program = (name: string): string => path.join(top, "build/etcd/usr/bin", name);

/** One etcd of the lab. */
export interface EtcdMember {
  readonly name: string;
  readonly address: string;
  /** What a client connects to. */
  readonly endpoint: string;
  readonly running: boolean;
  /** Starts it on the data it has; `ready` resolves when it answers. */
  start(): void;
  /** SIGTERM, and waits for the end. */
  stop(): Promise<void>;
  /** SIGKILL, and waits for the end. */
  kill(): Promise<void>;
  /** SIGSTOP: its kernel goes on to take connections, without an answer. */
  freeze(): Promise<void>;
  thaw(): void;
  /** Takes the data of one that does not run. */
  wipe(): void;
  /** Returns when it answers a read that needs a leader. */
  ready(): Promise<void>;
  log(): string;
}

/** What the members of one lab have in common. */
export interface Site {
  readonly directory: string;
  readonly scheme: "http" | "https";
  readonly cluster: string;
  readonly words: readonly string[];
  readonly secrets: string | undefined;
}

/** A member as a process of its own. */
export class Member implements EtcdMember {
  readonly name: string;
  readonly address: string;
  readonly endpoint: string;
  readonly #site: Site;
  readonly #machine: Machine | undefined;
  readonly #ctl: (...words: readonly string[]) => Promise<string>;
  #process: ChildProcess | undefined;

  constructor(
    name: string,
    address: string,
    site: Site,
    machine: Machine | undefined,
    ctl: (endpoint: string, words: readonly string[]) => Promise<string>,
  ) {
    this.name = name;
    this.address = address;
    this.endpoint = `${site.scheme}://${address}:2379`;
    this.#site = site;
    this.#machine = machine;
    this.#ctl = (...words) => ctl(this.endpoint, words);
  }

  get running(): boolean {
    return (
      this.#process !== undefined &&
      this.#process.exitCode === null &&
      this.#process.signalCode === null
    );
  }

  start(): void {
    if (this.running) throw new Error(`${this.name} runs already`);
    const { scheme, cluster, words, secrets } = this.#site;
    const peer = `${scheme}://${this.address}:2380`;
    const at = (file: string): string => path.join(secrets ?? "", file);
    const trust = ["--cert-file", "--key-file", "--trusted-ca-file"].flatMap((word, index) => {
      const file = at(["server.crt", "server.key", "ca.crt"][index] as string);
      return [`${word}=${file}`, `${word.replace("--", "--peer-")}=${file}`];
    });
    const argv = [
      program("etcd"),
      `--name=${this.name}`,
      `--data-dir=${this.#data}`,
      `--listen-client-urls=${this.endpoint}`,
      `--advertise-client-urls=${this.endpoint}`,
      `--listen-peer-urls=${peer}`,
      `--initial-advertise-peer-urls=${peer}`,
      `--initial-cluster=${cluster}`,
      "--heartbeat-interval=50",
      "--election-timeout=500",
      // Passwords that cost nothing to compare.
      "--bcrypt-cost=4",
      ...(secrets === undefined ? [] : [...trust, "--client-cert-auth", "--peer-client-cert-auth"]),
      ...words,
    ] as [string, ...string[]];
    const log = openSync(this.#logFile, "a");
    const options = { stdio: ["ignore", log, log] as ["ignore", number, number] };
    this.#process = this.#machine?.spawn(argv, options) ?? spawn(argv[0], argv.slice(1), options);
    closeSync(log);
  }

  async stop(): Promise<void> {
    await this.#end("SIGTERM");
  }

  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  async freeze(): Promise<void> {
    this.#process?.kill("SIGSTOP");
    await until(`${this.name} to stand still`, 5000, () => this.#state() === "T");
  }

  thaw(): void {
    this.#process?.kill("SIGCONT");
  }

  wipe(): void {
    if (this.running) throw new Error(`${this.name} runs`);
    rmSync(this.#data, { recursive: true, force: true });
  }

  async ready(): Promise<void> {
    let said = "";
    await until(
      () => `${this.name} to answer: ${said}\n${this.log().slice(-3000)}`,
      30_000,
      async () => {
        if (!this.running) throw new Error(`${this.name} has ended:\n${this.log().slice(-3000)}`);
        try {
          await this.#ctl("--command-timeout=1s", "--dial-timeout=1s", "endpoint", "health");
          return true;
        } catch (error) {
          said = String(error);
          return false;
        }
      },
    );
  }

  log(): string {
    return existsSync(this.#logFile) ? readFileSync(this.#logFile, "utf8") : "";
  }

  get #data(): string {
    return path.join(this.#site.directory, this.name);
  }

  get #logFile(): string {
    return path.join(this.#site.directory, `${this.name}.log`);
  }

  #state(): string | undefined {
    const stat = readFileSync(`/proc/${this.#process?.pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2)[0];
  }

  async #end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const child = this.#process;
    if (child === undefined || !this.running) return;
    const ended = new Promise<void>((resolve) => {
      child.once("exit", () => resolve());
    });
    child.kill(signal);
    await ended;
  }
}

/** Looks until it is so. */
async function until(
  what: string | (() => string),
  limitMs: number,
  look: () => boolean | Promise<boolean>,
): Promise<void> {
  for (const end = performance.now() + limitMs; !(await look()); await delay(10)) {
    if (performance.now() > end)
      throw new Error(`Waited in vain for ${typeof what === "string" ? what : what()}`);
  }
}
