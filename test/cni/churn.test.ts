import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, utimesSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import test from "ava";
import { isTemporaryName } from "../../cni/protocol/pending.ts";
import type { Machine } from "../lab/lab.ts";
import { Random } from "../sim/random.ts";
import { openCniRig } from "./cni-rig.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
/** Containers that come and go, so many side by side. */
const rounds = full ? 1000 : 60;
const together = 8;
/** From one kill of podnetd to the next: so many calls that were answered, at least and at most. */
const between = full ? ([10, 60] as const) : ([15, 40] as const);
/** One in so many plugins is killed. */
const killedPlugins = 12;

const program = path.resolve(import.meta.dirname, "../../build/cni-plugin/podnet-cni");

test("containers come and go while podnetd and plugins are killed, and nothing is left", async (t) => {
  t.timeout(full ? 7_200_000 : 170_000);
  const random = new Random(seed);
  await using cni = await openCniRig("quarantine_s = 0\ndrift_s = 3600\n");
  const { rig, socket } = cni;
  const pendingDirectory = path.join(rig.directory, "state", "cni-pending");
  const count = { added: 0, refused: 0, deleted: 0, again: 0, plugins: 0, podnetd: 0, written: 0 };
  /** Calls that were answered, and whether none will come any more; and who waits for one more. */
  const progress = { answered: 0, over: false };
  let report = Promise.withResolvers<void>();
  /**
   * Resolves when podnetd serves again: no runtime goes on without it for longer than one
   * container.
   */
  let serving: Promise<void> = Promise.resolve();

  /** As a runtime calls it; undefined when the plugin was killed. */
  async function call(
    command: string,
    { path: netns }: Machine,
    id: string,
    runtimeConfig: object,
  ): Promise<number | undefined> {
    const child = spawn(program, [], {
      env: {
        CNI_COMMAND: command,
        CNI_CONTAINERID: id,
        CNI_NETNS: netns,
        CNI_IFNAME: "eth0",
        CNI_PATH: path.dirname(program),
      },
      stdio: "pipe",
    });
    child.stdin.on("error", () => {});
    const config = { cniVersion: "1.0.0", name: "podnet", type: "podnet-cni" };
    child.stdin.end(JSON.stringify({ ...config, socket, pendingDirectory, runtimeConfig }));
    const kill =
      random.next() * killedPlugins < 1
        ? setTimeout(() => child.kill("SIGKILL"), random.next() * 40)
        : undefined;
    const output = text(child.stdout);
    const [exit] = (await once(child, "close")) as [number | null];
    clearTimeout(kill);
    if (exit === null) count.plugins += 1;
    else if (exit !== 0 && (JSON.parse(await output) as { code?: number }).code === undefined)
      throw new Error(`${command} says ${await output}`);
    progress.answered += 1;
    report.resolve();
    report = Promise.withResolvers();
    return exit ?? undefined;
  }

  async function comeAndGo(container: Machine, id: string, port: number): Promise<void> {
    const portMappings = [{ hostPort: port, containerPort: 80, protocol: "tcp" }];
    const runtimeConfig = random.next() < 0.25 ? { portMappings } : {};
    if ((await call("ADD", container, id, runtimeConfig)) === 0) {
      count.added += 1;
      // It works from its answer on, whatever becomes of podnetd.
      if (!full || random.next() < 0.1) await container.ping("192.168.123.1");
    } else count.refused += 1;
    // A runtime asks until it is done, whatever became of the ADD.
    for (let asked = 1; (await call("DEL", container, id, {})) !== 0; asked++) {
      count.again += 1;
      if (asked === 100) throw new Error(`${id} cannot be deleted`);
    }
    count.deleted += 1;
  }

  let next = 0;
  const work = async (worker: number): Promise<void> => {
    const container = await cni.container();
    while (next < rounds) {
      const refused = count.refused;
      await comeAndGo(container, `churn-${next++}`, 20_000 + worker);
      if (count.refused > refused) await serving;
    }
  };
  const worked = Promise.all(Array.from({ length: together }, (_, worker) => work(worker)));
  const end = worked.finally(() => (progress.over = true));

  const [least, most] = between;
  while (!progress.over) {
    const until = progress.answered + least + random.next() * (most - least);
    while (progress.answered < until && !progress.over) await Promise.race([report.promise, end]);
    if (progress.over) break;
    const { resolve, promise } = Promise.withResolvers<void>();
    serving = promise;
    // Counted from before the kill: every worker may have deleted its container, and wait, before
    // the kill has returned.
    const deleted = count.deleted;
    await rig.daemon.kill();
    count.podnetd += 1;
    // Some get the error that it is away, and some DELs are written down.
    while (count.deleted < deleted + 2 && !progress.over) await Promise.race([report.promise, end]);
    count.written += existsSync(pendingDirectory) ? readdirSync(pendingDirectory).length : 0;
    await rig.restart("kill").finally(resolve);
  }
  await end;
  t.log(`PODNET_SEED=${seed}`, count);
  t.is(count.deleted, rounds);
  t.true(count.podnetd >= 2 && count.written > 0 && count.added > rounds / 4);

  // What plugins left that were killed as they wrote goes with the next start.
  for (const name of readdirSync(pendingDirectory).filter(isTemporaryName))
    utimesSync(path.join(pendingDirectory, name), 1, 1);
  await rig.restart("kill");
  await cni.converged();
  t.deepEqual(readdirSync(pendingDirectory), []);
  await cni.gone(t);
});
