import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type Podnet, connectPodnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";

/** A lab with one podnetd on its host, restarted at will over the same state. */
export interface Rig extends AsyncDisposable {
  readonly lab: Lab;
  readonly directory: string;
  readonly daemon: Podnetd;
  readonly client: Podnet;
  /** Ends the daemon, gently or not, and starts it again. Pods run on. */
  restart(how: "stop" | "kill", env?: Readonly<Record<string, string>>): Promise<void>;
  /** What there is of pods: links, processes, files, rows, leases. */
  leftovers(): Promise<Leftovers>;
}

export interface Leftovers {
  readonly links: readonly string[];
  readonly processes: readonly string[];
  readonly files: readonly string[];
  readonly rows: Readonly<Record<string, number>>;
}

export const nothing: Leftovers = {
  links: [],
  processes: [],
  files: [],
  rows: { pods: 0, runs: 0, interfaces: 0, leases: 0 },
};

export async function openRig(config = ""): Promise<Rig> {
  await using opened = new AsyncDisposableStack();
  const lab = opened.use(await openLab(`d${process.pid}-`));
  const directory = mkdtempSync(join(tmpdir(), "podnet-vm-"));
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const start = (env: Readonly<Record<string, string>> = {}): Promise<Podnetd> =>
    startPodnetd({ machine: lab.host, directory, config, env });
  let daemon = await start();
  let client = connectPodnet({ socket: daemon.socket });
  opened.defer(async () => {
    // Pods outlive their daemon by design.
    await client.node.down({}).catch(() => {});
    client.close();
    await daemon.stop();
  });
  const held = opened.move();
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
    leftovers: () => leftovers(lab, directory),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

async function leftovers(lab: Lab, directory: string): Promise<Leftovers> {
  const links = (await lab.host.run("ip", "-o", "link"))
    .split("\n")
    .map((line) => line.split(": ")[1]?.split("@")[0] ?? "")
    .filter((name) => name !== "" && !["lo", "lan0", "wan0", "hyper0"].includes(name));
  const db = new DatabaseSync(join(directory, "state", "state.db"), { readOnly: true });
  const count = (sql: string): number => Number(db.prepare(sql).get()?.["n"]);
  using _db = { [Symbol.dispose]: () => db.close() };
  return {
    links,
    processes: processesWith(join(directory, "run", "pods")),
    files: readdirSync(join(directory, "run", "pods")),
    rows: {
      pods: count("SELECT count(*) AS n FROM pods"),
      runs: count("SELECT count(*) AS n FROM runs"),
      interfaces: count("SELECT count(*) AS n FROM interfaces"),
      leases: count("SELECT count(*) AS n FROM leases WHERE freed_ms IS NULL"),
    },
  };
}

/** Processes whose command line or working directory names the path. */
function processesWith(path: string): string[] {
  return readdirSync("/proc")
    .filter((pid) => /^\d+$/.test(pid))
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ");
        return line.includes(path) ? [`${pid} ${line}`] : [];
      } catch {
        return [];
      }
    });
}

/** The pod of an answer, with its first address. */
export function addressOf(pod: Pod | undefined): string {
  const [address] = pod?.interfaces[0]?.addresses ?? [];
  if (address === undefined) throw new Error("The pod has no address");
  return address.slice(0, address.indexOf("/"));
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
