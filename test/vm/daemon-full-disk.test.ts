import { execFileSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { HealthCheck_Status as Status } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";

/** What else there is, a complete run shows for both. */
const full = process.env["PODNET_TEST_FULL"] === "1";

let lab: Lab;
let config: string;

test.serial.before(async () => {
  lab = await openLab(`full${process.pid}-`);
  config = `quarantine_s = 0\n${await standInConfig(mkdtempSync(join(tmpdir(), "podnet-images-")))}`;
});
test.serial.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
});

/** A directory for a daemon whose state is on a small filesystem of its own. */
function smallState(options: string): string {
  const directory = mkdtempSync(join(tmpdir(), "podnet-full-"));
  const state = join(directory, "state");
  mkdirSync(state);
  execFileSync("mount", ["-n", "-t", "tmpfs", "-o", `${options},mode=700`, "tmpfs", state]);
  return directory;
}

const start = (directory: string): Promise<Podnetd> =>
  startPodnetd({ machine: lab.host, directory, config });

/**
 * Takes all the room there is, or all inodes; may be asked again for what has come free. Answers
 * what gives it back.
 */
const fillings: Readonly<Record<"room" | "inodes", (state: string) => () => void>> = {
  room(state) {
    const filler = join(state, "filler");
    const fill = ["-c", `head -c 100M /dev/zero >> ${filler}; true`];
    execFileSync("sh", fill, { stdio: "ignore" });
    return () => rmSync(filler);
  },
  inodes(state) {
    const filler = join(state, "filler");
    mkdirSync(filler, { recursive: true });
    try {
      for (let i = readdirSync(filler).length; ; i++) writeFileSync(join(filler, `${i}`), "");
    } catch {
      return () => rmSync(filler, { recursive: true });
    }
  },
};
const small = { room: "size=8192k", inodes: "size=64m,nr_inodes=100" } as const;

const create = (client: Podnet, name: string) => client.pods.create({ spec: { name } });
/** One that has ended and is not waited for yet runs no more. */
const runs = (pod: Pod | undefined): boolean => {
  const stat = `/proc/${pod?.vm?.pid}/stat`;
  return existsSync(stat) && !/\) [ZX] /.test(readFileSync(stat, "latin1"));
};
const names = async (client: Podnet): Promise<string[]> =>
  (await client.pods.list({})).pods.map(({ name }) => name).toSorted();

async function refusesCreates(t: ExecutionContext, client: Podnet): Promise<void> {
  const refused = await t.throwsAsync(create(client, "late"));
  t.like(refused, { code: "STATE_UNWRITABLE" });
  t.regex((refused as { hint?: string }).hint ?? "", /Make room there/);
  const { checks, ok } = await client.node.health({});
  t.false(ok);
  const store = checks.find(({ name }) => name === "store");
  t.is(store?.status, Status.FAILED);
  t.regex(store?.hint ?? "", /Make room/);
}

for (const kind of full ? (["room", "inodes"] as const) : (["room"] as const))
  test.serial(
    `with no ${kind} left in the state directory pods are stopped, started and deleted; creates are refused until there is some`,
    async (t) => {
      const directory = smallState(small[kind]);
      await using daemon = await start(directory);
      using client = connectPodnet({ socket: daemon.socket });
      for (const name of ["one", "two", "three"]) await create(client, name);
      const empty = fillings[kind](daemon.stateDir);
      if (kind === "room") {
        const { pod } = await client.pods.stop({ idOrName: "one" });
        t.is(pod?.state, PodState.STOPPED);
        // What the stop gave back is not for others, and is no reason to take on anything.
        await refusesCreates(t, client);
        t.is((await client.pods.start({ idOrName: "one" })).pod?.state, PodState.RUNNING);
        await client.pods.delete({ idOrName: "two" });
        t.deepEqual(await names(client), ["one", "three"]);
      }
      empty();
      await create(client, "another");
      await daemon.stop();
      fillings[kind](daemon.stateDir);
      await using again = await start(directory);
      using later = connectPodnet({ socket: again.socket });
      await refusesCreates(t, later);
      await later.pods.delete({ idOrName: "one" });
      t.false((await names(later)).includes("one"));
      empty();
      await create(later, "after");
      t.true(existsSync(join(daemon.stateDir, "reserve")));
      t.true((await later.node.health({})).ok);
      await again.podnet("down", "--yes");
    },
  );

for (const kind of full ? (["room", "inodes"] as const) : (["inodes"] as const))
  test.serial(
    `with neither ${kind} nor a reserve podnetd starts: a forced delete ends the machine, and the rest waits for room`,
    async (t) => {
      const directory = smallState(small[kind]);
      const first = await start(directory);
      using client = connectPodnet({ socket: first.socket });
      const { pod } = await create(client, "one");
      await create(client, "two");
      await first.stop();
      rmSync(join(first.stateDir, "reserve"), { recursive: true });
      const empty = fillings[kind](first.stateDir);
      await using second = await start(directory);
      using cramped = connectPodnet({ socket: second.socket });
      t.deepEqual(await names(cramped), ["one", "two"]);
      t.is((await cramped.pods.get({ idOrName: "one" })).pod?.state, PodState.RUNNING);
      await refusesCreates(t, cramped);
      const refused = await t.throwsAsync(cramped.pods.delete({ idOrName: "one" }));
      t.like(refused, { code: "STATE_UNWRITABLE" });
      t.regex((refused as { hint?: string }).hint ?? "", /podnet delete --force one/);
      t.true(runs(pod));
      const forced = await t.throwsAsync(cramped.pods.delete({ idOrName: "one", force: true }));
      t.like(forced, { code: "STATE_UNWRITABLE" });
      t.regex(forced.message, /no machine and no disk any more/);
      t.false(runs(pod));
      empty();
      await create(cramped, "after");
      for (let i = 0; i < 100 && (await names(cramped)).includes("one"); i++)
        await new Promise((resolve) => setTimeout(resolve, 100));
      t.deepEqual(await names(cramped), ["after", "two"]);
      const ended = once(second.process, "exit");
      await second.podnet("down", "--yes");
      await ended;
      t.true(readdirSync(second.stateDir).includes("reserve"));
    },
  );
