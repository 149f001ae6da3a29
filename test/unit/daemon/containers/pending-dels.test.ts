import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { temporaryName, pendingName, renderPending } from "../../../../cni/protocol/pending.ts";
import { PendingDels } from "../../../../daemon/containers/cni/pending-dels.ts";
import { watchPending } from "../../../../daemon/containers/cni/watch-pending.ts";
import type { BootMoment } from "../../../../linux/processes/boot-moment.ts";
import { openLog } from "../../../../linux/log.ts";
import { bootId } from "../../../../linux/processes/proc.ts";
import { until } from "../../../lab/until.ts";

const log = openLog({ component: "cni", level: "silent" });

const record = (containerId: string, atMs: number, moment?: BootMoment): string => {
  const env = { CNI_COMMAND: "DEL", CNI_CONTAINERID: containerId, CNI_IFNAME: "eth0" };
  const config = JSON.stringify({ cniVersion: "1.0.0", name: "podnet", type: "podnet-cni" });
  const stdin = Buffer.from(config).toString("base64");
  return renderPending({ ...env, CNI_PATH: "/" }, stdin, atMs, moment);
};

/** A directory with records in it; those of `attached` are, since then. */
function site(attached: Record<string, number>, claims: Record<string, BootMoment> = {}) {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-pending-"));
  const deleted: string[] = [];
  const said: string[] = [];
  /** What happens while a container's turn is waited for. */
  const during = new Map<string, () => void | Promise<void>>();
  const attachments = {
    async delete(
      { containerId }: { readonly containerId: string },
      isMeant: (row: never) => boolean = () => true,
    ): Promise<void> {
      await during.get(containerId)?.();
      const createdMs = attached[containerId];
      const plan = { claimed: claims[containerId] };
      if (createdMs !== undefined && isMeant({ createdMs, plan } as never))
        deleted.push(containerId);
    },
  };
  const noted = { ...log, error: (_fields: object, text: string) => void said.push(text) };
  const pending = new PendingDels({ directory, attachments, log: noted });
  return {
    directory,
    attached,
    deleted,
    said,
    during,
    write: (name: string, text: string) => writeFileSync(path.join(directory, name), text),
    age: (name: string) => utimesSync(path.join(directory, name), 1, 1),
    files: () => readdirSync(directory),
    carryOut: () => pending.carryOut(),
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  };
}

test("a DEL that was written down is done once, unless it was written before the ADD", async (t) => {
  using at = site({ gone: 1000, again: 3000 });
  for (const id of ["gone", "again", "never-was"])
    at.write(pendingName(id, "eth0"), record(id, 2000));
  await at.carryOut();
  t.deepEqual(at.deleted, ["gone"]);
  t.deepEqual(at.files(), []);
});

test("a DEL that was written down is about what was attached before it, whatever was done to the clock", async (t) => {
  const boot = bootId();
  // By the clock, which was set back or forward an hour, each is the other way round.
  const attached = { "set-back": 5000, "set-forward": 1000, boots: 1000, "this-boot": 5000 };
  using at = site(attached, {
    "set-back": { boot, us: 1_000_000 },
    "set-forward": { boot, us: 3_000_000 },
    boots: { boot, us: 1_000_000 },
    "this-boot": { boot: "a former one", us: 9_000_000 },
  });
  for (const id of Object.keys(attached)) {
    const former = id === "boots" ? "a former one" : boot;
    at.write(pendingName(id, "eth0"), record(id, 2000, { boot: former, us: 2_000_000 }));
  }
  await at.carryOut();
  t.deepEqual(at.deleted.toSorted(), ["set-back", "this-boot"]);
  t.deepEqual(at.files(), []);
});

test("one that cannot be done or read stays, and keeps no other from it", async (t) => {
  using at = site({ stuck: 1000, next: 1000 });
  at.write("a@eth0.json", "{");
  for (const id of ["stuck", "next"]) at.write(pendingName(id, "eth0"), record(id, 2000));
  at.during.set("stuck", () => Promise.reject(new Error("Injected failure")));
  for (let look = 0; look < 3; look++) await at.carryOut();
  t.deepEqual(at.deleted, ["next"]);
  t.deepEqual(at.files(), ["a@eth0.json", "stuck@eth0.json"]);
  // Each is reported once, however often podnetd looks.
  t.is(at.said.length, 2);
  at.during.clear();
  await at.carryOut();
  t.deepEqual(at.deleted, ["next", "stuck"]);
  t.deepEqual(at.files(), ["a@eth0.json"]);
});

test("one whose container's turn has not come keeps no other from it, and is asked for once", async (t) => {
  using at = site({ "a-slow": 1000, "b-next": 1000 });
  const turn = Promise.withResolvers<void>();
  at.during.set("a-slow", () => turn.promise);
  at.write(pendingName("a-slow", "eth0"), record("a-slow", 2000));
  const first = at.carryOut();
  at.write(pendingName("b-next", "eth0"), record("b-next", 2000));
  const second = at.carryOut();
  await until("one to be done", () => at.deleted.length > 0);
  t.deepEqual(at.deleted, ["b-next"]);
  turn.resolve();
  await Promise.all([first, second]);
  t.deepEqual(at.deleted, ["b-next", "a-slow"]);
  t.deepEqual(at.files(), []);
});

test("what is attached or written down while a DEL waits for its turn is not taken with it", async (t) => {
  using at = site({ again: 1000, twice: 1000 });
  for (const id of ["again", "twice"]) at.write(pendingName(id, "eth0"), record(id, 2000));
  at.during.set("again", () => {
    at.attached["again"] = 3000;
  });
  at.during.set("twice", () => at.write(pendingName("twice", "eth0"), record("twice", 4000)));
  await at.carryOut();
  t.deepEqual(at.deleted, ["twice"]);
  t.deepEqual(at.files(), [pendingName("twice", "eth0")]);
});

test("records are looked for soon after they were written, whoever has made the directory", async (t) => {
  using at = site({ one: 1000, two: 1000, three: 1000 });
  const pending = path.join(at.directory, "pending");
  const seen: string[][] = [];
  const write = (id: string): void => {
    const temporary = path.join(pending, temporaryName(1));
    writeFileSync(temporary, id);
    renameSync(temporary, path.join(pending, id));
  };
  /** How long it takes, milliseconds. */
  const found = async (id: string): Promise<number> => {
    const begun = performance.now();
    while (seen.at(-1)?.includes(id) !== true) {
      if (performance.now() - begun > 10_000) throw new Error(`${id} is not seen`);
      await delay(10);
    }
    return performance.now() - begun;
  };
  const look = (): void => {
    try {
      seen.push(readdirSync(pending));
    } catch {
      seen.push([]);
    }
  };
  {
    using _watch = watchPending(pending, look, log);
    // The kernel notifies: by rounds alone each would take two seconds.
    const took: number[] = [];
    for (const id of ["one", "two", "three", "four"]) {
      write(id);
      took.push(await found(id));
    }
    t.true(Math.min(...took) < 1500, took.join(", "));
    // A round finds another directory.
    rmSync(pending, { recursive: true });
    mkdirSync(pending);
    write("five");
    await found("five");
  }
  const looks = seen.length;
  write("six");
  await delay(150);
  t.is(seen.length, looks);
});

test("what a plugin that was killed left of a record goes, and one that is being written stays", async (t) => {
  using at = site({});
  const [old, fresh] = [temporaryName(4711), temporaryName(4712)];
  for (const name of [old, fresh, ".keep"]) at.write(name, "{");
  for (const name of [old, ".keep"]) at.age(name);
  await at.carryOut();
  t.deepEqual(at.files(), [fresh, ".keep"].toSorted());
});

test("a pipe, a link and a record without end among those written down hold up no other", async (t) => {
  using it = site({ good: 1 });
  const at = (name: string): string => path.join(it.directory, name);
  const [pipe, link, endless] = ["pipe", "link", "endless"].map((id) => pendingName(id, "eth0"));
  execFileSync("mkfifo", [at(pipe as string)]);
  symlinkSync("/dev/zero", at(link as string));
  it.write(endless as string, "");
  truncateSync(at(endless as string), 64 * 2 ** 20);
  it.write(pendingName("good", "eth0"), record("good", 2));
  await it.carryOut();
  t.deepEqual(it.deleted, ["good"]);
  t.is(it.said.length, 3, it.said.join());
  t.deepEqual(it.files().toSorted(), [pipe, link, endless].map(String).toSorted());
});
