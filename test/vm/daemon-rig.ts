import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Podnet, connectPodnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { sockets, takeInventory } from "../lab/inventory.ts";
import { type Lab, type Machine, openLab } from "../lab/lab.ts";
import { difference } from "../lab/network.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";

/** A lab with one podnetd on its host, restarted at will over the same state. */
export interface Rig extends AsyncDisposable {
  readonly lab: Lab;
  readonly directory: string;
  readonly daemon: Podnetd;
  readonly client: Podnet;
  /** Ends the daemon, gently or not, and starts it again. Pods run on. */
  restart(how: "stop" | "kill", env?: Readonly<Record<string, string>>): Promise<void>;
  /** Everything there is now: see `takeInventory`. */
  inventory(): Promise<string>;
  /**
   * What has come (+) and gone (-) since an inventory; since the rig was opened, with no pod yet,
   * unless one is given.
   */
  changes(since?: string): Promise<readonly string[]>;
}

/** How the daemon is started: on the lab's host, as it is unless a test takes something from it. */
export type Starting = (host: Machine) => Machine;

/**
 * What goes by itself, and counts as left only if it stays. podnetd reads a process's `stat` and
 * the kernel's settings at any time: an inventory may meet the open file. A template goes a little
 * after the next one is there, or after it could not be made.
 */
const passing =
  /^[-+] (?:open (?:socket|pipe|\/proc\/(?:\d+\/stat|sys\/[\w./]+)|\/memfd:podnet-\w+ \(deleted\))|process \(zombie\))$/;

let opened = 0;

/**
 * Opens a rig whose pods are clones, which saves a boot each, unless the configuration says
 * otherwise: `factory = "cold"`, or another image, whose guests may bear no cloning. podnetd has
 * `always` in its environment, after each restart too.
 */
export async function openRig(
  given = "",
  starting: Starting = (host) => host,
  always: Readonly<Record<string, string>> = {},
): Promise<Rig> {
  const config = /^(?:factory =|\[image\])/m.test(given) ? given : `factory = "template"\n${given}`;
  await using stack = new AsyncDisposableStack();
  const lab = stack.use(await openLab(`d${process.pid}-${opened++}-`));
  const directory = mkdtempSync(join(tmpdir(), "podnet-vm-"));
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const start = (env: Readonly<Record<string, string>> = {}): Promise<Podnetd> =>
    startPodnetd({ machine: starting(lab.host), directory, config, env: { ...always, ...env } });
  let daemon = await start();
  let client = connectPodnet({ socket: daemon.socket });
  stack.defer(async () => {
    // Pods outlive their daemon by design.
    await client.node.down({}).catch(() => {});
    client.close();
    await daemon.stop();
  });
  const inventory = (): Promise<string> => takeInventory(lab.host, daemon, client);
  const atFirst = await inventory();
  const held = stack.move();
  return {
    lab,
    directory,
    get daemon() {
      return daemon;
    },
    get client() {
      return client;
    },
    async restart(how, env) {
      // The old client stays open while the daemon ends, which answers what is under way.
      const before = client;
      await daemon[how]();
      before.close();
      daemon = await start(env);
      client = connectPodnet({ socket: daemon.socket });
    },
    inventory,
    async changes(since = atFirst) {
      for (let attempt = 1; ; attempt++) {
        // A descriptor of a connection, or of a command, is closed a little after its last answer,
        // a child that has ended is waited for a little later, and nothing reports it: one that
        // was closing then may be gone, one that is closing now goes.
        const found = difference(since, await inventory()).filter(
          (line) => !(line.startsWith("- ") && passing.test(line)),
        );
        const closing = found.some((line) => passing.test(line));
        if (!closing) return found;
        if (attempt === 50)
          return [...found, `of ${sockets(daemon.process.pid as number).join(", ")}`];
        await delay(20);
      }
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

/** The rig with another end. */
export const endingWith = (rig: Rig, end: () => Promise<void>): Rig => ({
  lab: rig.lab,
  directory: rig.directory,
  get daemon() {
    return rig.daemon;
  },
  get client() {
    return rig.client;
  },
  restart: (how, env) => rig.restart(how, env),
  inventory: () => rig.inventory(),
  changes: (since) => rig.changes(since),
  [Symbol.asyncDispose]: end,
});

/**
 * Shares the rigs that `open` opens: all test files of this process that ask for one with the same
 * configuration get one, with one podnetd and one template. Whoever disposes of it last ends it.
 * Files of which several are imported by one (`*together*.test.ts`) leave neither pods nor
 * settings to each other, look at the changes since they began, and count on no address that they
 * have not asked for; their tests are serial, as the others would run after the last file's.
 */
export function sharing(open: (config: string) => Promise<Rig>) {
  /** Rigs in use, by their configuration. */
  const shared = new Map<string, { readonly opening: Promise<Rig>; users: number }>();
  return async (config = ""): Promise<Rig> => {
    const entry = shared.get(config) ?? { opening: open(config), users: 0 };
    shared.set(config, entry);
    entry.users++;
    const rig = await entry.opening;
    return endingWith(rig, async () => {
      if (--entry.users > 0) return;
      shared.delete(config);
      await rig[Symbol.asyncDispose]();
    });
  };
}

/** The shared rig of a configuration, with real machines. */
export const joinRig = sharing(openRig);

/** The pod of an answer, with its first address. */
export function addressOf(pod: Pod | undefined): string {
  const [address] = pod?.interfaces[0]?.addresses ?? [];
  if (address === undefined) throw new Error("The pod has no address");
  return address.slice(0, address.indexOf("/"));
}

/** Resolves when a create has finished a step. */
export async function reached(client: Podnet, step: string): Promise<void> {
  const ended = new AbortController();
  for await (const { kind, span } of client.pods.watch({}, { signal: ended.signal })) {
    if (kind === Kind.STEP && span?.step === step) break;
  }
  ended.abort();
}

/** Runs a program in a pod and answers its output and exit code. */
export async function execIn(
  client: Podnet,
  idOrName: string,
  ...args: readonly string[]
): Promise<{ readonly output: string; readonly code: number }> {
  const chunks: Uint8Array[] = [];
  let code = -1;
  const start = { idOrName, args: [...args] };
  const ended = Promise.withResolvers<void>();
  async function* input() {
    yield { input: { case: "start" as const, value: start } };
    yield { input: { case: "closeStdin" as const, value: {} } };
    await ended.promise;
  }
  try {
    for await (const { output } of client.pods.exec(input())) {
      if (output.case === "stdout" || output.case === "stderr") chunks.push(output.value);
      if (output.case === "exit") code = output.value.code;
    }
  } finally {
    ended.resolve();
  }
  return { output: Buffer.concat(chunks).toString(), code };
}
