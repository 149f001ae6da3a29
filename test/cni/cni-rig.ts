import { execFile } from "node:child_process";
import { request } from "node:http";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import type { ExecutionContext } from "ava";
import { type Machine, machine } from "../lab/lab.ts";
import { type Rig, sharing } from "../vm/daemon-rig.ts";
import { openStandInRig } from "../vm/standin-rig.ts";

const exec = promisify(execFile);

/** What a plugin would print and exit with. */
export interface Answered {
  readonly exit: number;
  readonly stdout: string;
  /** `stdout`, where there is any. */
  // oxlint-disable-next-line typescript/no-explicit-any -- each test says what it looks for
  readonly json: any;
}

export interface Asked {
  readonly command?: string;
  readonly container: Machine;
  readonly id?: string;
  readonly ifName?: string;
  /** Empty is a namespace that is lost. */
  readonly netns?: string;
  readonly args?: string;
  readonly config?: Readonly<Record<string, unknown>>;
}

/**
 * A podnetd whose machines are stand-ins, and containers on its host that are namespaces with
 * nothing in them.
 */
export interface CniRig extends AsyncDisposable {
  readonly rig: Rig;
  readonly socket: string;
  /** A namespace of its own, which goes with the rig unless it is lost before. */
  container(): Promise<Machine>;
  lose(container: Machine): Promise<void>;
  /** It ends, and another one is at its path. */
  replace(container: Machine): Promise<void>;
  ask(asked: Asked): Promise<Answered>;
  /** Asks, and expects success. */
  done(asked: Asked): Promise<Answered["json"]>;
  /** The links of attachments on the host. */
  links(): Promise<string[]>;
  /** Whether podnetd still waits for what plugins after it make of a container. */
  mayChange(container: Machine): boolean;
  /** Waits until no attachment is on its way, nor there. */
  converged(): Promise<void>;
  /** Closes the rig, and fails where something is left that was not there before. */
  gone(t: ExecutionContext): Promise<void>;
}

let count = 0;
/** The test, or hook of one, that last looked for what is left. */
let looked = "";

const usual = "quarantine_s = 0\ndrift_s = 1\n";
const join = sharing(openStandInRig);

/** The shared podnetd of all files that are imported by one (test/cni/together-*.test.ts). */
export const joinCniRig = (): Promise<CniRig> => cniRigOn(join(usual));

export const openCniRig = (config = usual): Promise<CniRig> => cniRigOn(openStandInRig(config));

async function cniRigOn(opening: Promise<Rig>): Promise<CniRig> {
  await using opened = new AsyncDisposableStack();
  const rig = opened.use(await opening);
  const socket = path.join(rig.directory, "run", "cni.sock");
  const containers = new Set<string>();
  const lose = async ({ name }: Machine): Promise<void> => {
    if (containers.delete(name)) await exec("ip", ["netns", "del", name]);
  };
  opened.defer(async () => {
    for (const name of containers) await lose(machine(name));
  });
  const make = async (name: string): Promise<void> => {
    await exec("ip", ["netns", "add", name]);
    containers.add(name);
  };
  const ask: CniRig["ask"] = async (asked) =>
    answeredBy(await post(socket, "/cni/v1", bodyOf(asked)));
  const converged = async (): Promise<void> => {
    for (let waited = 0; attachmentsIn(rig.directory) > 0; waited++, await delay(50))
      if (waited === 200) throw new Error("Attachments are left");
  };
  const held = opened.move();
  return {
    rig,
    socket,
    ask,
    lose,
    async replace(container) {
      await lose(container);
      await make(container.name);
    },
    async container() {
      const name = `cn${process.pid}-${count++}`;
      await make(name);
      return machine(name);
    },
    async done(asked) {
      const { exit, stdout, json } = await ask(asked);
      if (exit !== 0) throw new Error(`${asked.command ?? "ADD"} failed: ${stdout}`);
      return json;
    },
    async links() {
      const lines = (await rig.lab.host.run("ip", "-o", "link", "show")).split("\n");
      return lines.flatMap((line) => /^\d+: (p[ci][a-z2-7]{12})/.exec(line)?.[1] ?? []);
    },
    mayChange: ({ name }) => mayChange(rig.directory, name),
    converged,
    async gone(t) {
      // The hooks of several files say so after one test.
      if (t.title === looked && t.title.startsWith("afterEach")) return;
      looked = t.title;
      await converged();
      t.deepEqual(await rig.changes(), []);
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

/** How many rows there are. */
function attachmentsIn(directory: string): number {
  const db = new DatabaseSync(path.join(directory, "state", "state.db"), { readOnly: true });
  using _db = { [Symbol.dispose]: () => db.close() };
  return Number(db.prepare("SELECT count(*) AS n FROM attachments").get()?.["n"]);
}

function mayChange(directory: string, container: string): boolean {
  const db = new DatabaseSync(path.join(directory, "state", "state.db"), { readOnly: true });
  using _db = { [Symbol.dispose]: () => db.close() };
  const waits = "plan ->> '$.awaitsPlugins' = 1";
  const rows = `SELECT count(*) AS n FROM attachments WHERE container_id = ? AND ${waits}`;
  return Number(db.prepare(rows).get(container)?.["n"]) > 0;
}

/** The environment and standard input of a plugin. */
export function bodyOf({
  command = "ADD",
  container,
  id = container.name,
  ifName = "eth0",
  netns = container.path,
  args,
  config = {},
}: Asked): string {
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: id,
    CNI_NETNS: netns,
    CNI_IFNAME: ifName,
    CNI_PATH: "/opt/cni/bin",
    ...(args === undefined ? {} : { CNI_ARGS: args }),
  };
  const whole = { cniVersion: "1.1.0", name: "podnet", type: "podnet-cni", ...config };
  return JSON.stringify({ env, config: Buffer.from(JSON.stringify(whole)).toString("base64") });
}

function answeredBy({ text }: { readonly text: string }): Answered {
  const { exit, stdout } = JSON.parse(text) as { exit: number; stdout: string };
  return { exit, stdout, json: stdout === "" ? undefined : JSON.parse(stdout) };
}

/** One request on a unix socket; who asks goes away when the signal aborts. */
export function post(
  socketPath: string,
  path: string,
  body: string,
  signal?: AbortSignal,
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const asked = { socketPath, path, method: "POST", agent: false };
    const sent = request(signal === undefined ? asked : { ...asked, signal }, (response) => {
      const chunks: Uint8Array[] = [];
      response.on("data", (chunk: Uint8Array) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          text: Buffer.concat(chunks).toString(),
        }),
      );
    });
    sent.once("error", reject);
    sent.end(body);
  });
}
