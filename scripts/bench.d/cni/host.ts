import path from "node:path";
import { run } from "../../../linux/processes/command.ts";
import { type Machine, openLab } from "../../../test/lab/lab.ts";
import { type Call, openRunner, type Plugin, type Runner, type Took } from "./runner.ts";

/** How a host's containers get their networks. */
export interface Stack {
  /** The plugins of an ADD, in order; with a host port that leads into the container. */
  plugins(hostPort: number | undefined): readonly Plugin[];
  readonly pluginPath: string;
  /** Processor time of what serves the plugins so far, milliseconds. */
  served(): number;
  /** Which link of the host's a result names. */
  linkOf(result: string): string;
}

/** What a verb cost, milliseconds. */
interface Cost {
  readonly ms: number;
  /** When it began, by CLOCK_MONOTONIC. */
  readonly beganMs: number;
  /** Of the plugin, of what it started and of what served it. */
  readonly cpuMs: number;
}

/** What a container was measured with. */
export interface Round {
  readonly add: Cost;
  readonly addPort: Cost;
  readonly del: Cost;
  readonly delPort: Cost;
  /** From DEL to the end of the link. */
  readonly goneMs: number;
}

/** What came of many at once. */
export interface Series {
  /** Attached a second. */
  readonly adds: number;
  /** Detached a second. */
  readonly dels: number;
  /** Processor time of an ADD, milliseconds. */
  readonly addCpuMs: number;
}

/** A host whose containers are attached and detached by plugins. */
export interface CniHost extends AsyncDisposable {
  /** Attaches and detaches two containers in fresh namespaces, one of them with a port. */
  round(): Promise<Round>;
  /** So many containers, so many of them at once, in fresh namespaces. */
  atOnce(slots: number, count: number): Promise<Series>;
  /** Containers that stay. */
  fill(slots: number, count: number): Promise<void>;
}

const firstPort = 20_000;
let opened = 0;

/** A machine of its own, with the stack that `start` starts there. */
export async function openCniHost(
  runner: string,
  start: (machine: Machine, owned: AsyncDisposableStack) => Promise<Stack>,
): Promise<CniHost> {
  await using owned = new AsyncDisposableStack();
  const prefix = `cni${opened++}-`;
  const { host } = owned.use(await openLab(prefix));
  const stack = await start(host, owned);
  const plugins = owned.use(await openRunner(host, runner));
  const containers = new Containers(prefix, stack, plugins);
  await containers.prepare(64);
  const held = owned.move();
  return {
    async round() {
      await containers.prepare(2);
      const [plain, published] = [containers.take(undefined), containers.take(firstPort)];
      const add = await containers.one(plain.add);
      const addPort = await containers.one(published.add);
      const delPort = await containers.one(published.del(addPort.stdout));
      const del = await containers.one({
        ...plain.del(add.stdout),
        link: stack.linkOf(add.stdout),
      });
      return { add, addPort, del, delPort, goneMs: del.goneMs };
    },
    async atOnce(slots, count) {
      await containers.prepare(count);
      const taken = Array.from({ length: count }, () => containers.take(undefined));
      const before = stack.served();
      const added = await plugins.run(
        slots,
        taken.map(({ add }) => add),
      );
      const served = stack.served() - before;
      const results = added.took.map(({ stdout }) => stdout);
      const ended = await plugins.run(
        slots,
        taken.map(({ del }, i) => del(results[i] as string)),
      );
      await containers.gone(results);
      const rate = (elapsedMs: number): number => (count * 1000) / elapsedMs;
      const cpuMs = added.took.reduce((sum, each) => sum + each.cpuMs, served);
      return {
        adds: rate(added.elapsedMs),
        dels: rate(ended.elapsedMs),
        addCpuMs: cpuMs / count,
      };
    },
    async fill(slots, count) {
      await containers.prepare(count);
      const taken = Array.from({ length: count }, () => containers.take(undefined));
      await plugins.run(
        slots,
        taken.map(({ add }) => add),
      );
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

/** Namespaces with nothing in them, each for one container. */
class Containers {
  readonly #prefix: string;
  readonly #stack: Stack;
  readonly #runner: Runner;
  #made = 0;
  #used = 0;

  constructor(prefix: string, stack: Stack, runner: Runner) {
    this.#prefix = prefix;
    this.#stack = stack;
    this.#runner = runner;
  }

  /** Makes so many, unless that many are left. */
  async prepare(count: number): Promise<void> {
    const lines: string[] = [];
    for (; this.#made < this.#used + count; this.#made++)
      lines.push(`netns add ${this.#prefix}c${this.#made}\n`);
    if (lines.length > 0) await run(["ip", "-batch", "-"], { stdin: lines.join("") });
  }

  take(hostPort: number | undefined): { readonly add: Call; del(result: string): Call } {
    const container = `${this.#prefix}c${this.#used++}`;
    const netns = path.join("/run/netns", container);
    const { pluginPath } = this.#stack;
    const plugins = this.#stack.plugins(hostPort);
    return {
      add: { command: "ADD", container, netns, pluginPath, plugins },
      // (Each is given the result of the whole ADD.)
      del: (result) => ({
        command: "DEL",
        container,
        netns,
        pluginPath,
        plugins: plugins.toReversed().map(({ program, config }) => ({
          program,
          config: { ...config, prevResult: JSON.parse(result) as unknown },
        })),
      }),
    };
  }

  async one(call: Call): Promise<Took> {
    const before = this.#stack.served();
    const { took } = await this.#runner.run(1, [call]);
    const [only] = took;
    if (only === undefined) throw new Error("The runner has answered nothing");
    // (What goes on until the link is gone counts too: it is this call's.)
    return { ...only, cpuMs: only.cpuMs + this.#stack.served() - before };
  }

  /** Waits until the links of these results are gone. */
  async gone(results: readonly string[]): Promise<void> {
    const { pluginPath } = this.#stack;
    const wait = results.map((result): Call => {
      const link = this.#stack.linkOf(result);
      const plugins = [{ program: "/bin/true", config: {} }];
      return { command: "VERSION", container: "", netns: "", pluginPath, link, plugins };
    });
    await this.#runner.run(1, wait);
  }
}
