import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import type { Cidr } from "../../../../core/address.ts";
import { watchEffects } from "../../../../core/effect.ts";
import type { NetworkName } from "../../../../core/names.ts";
import { SubnetFile, subnetFilePath } from "../../../../daemon/overlays/kernel/subnet-file.ts";
import type { LogFields } from "../../../../linux/log.ts";
import type { SubnetEnv } from "../../../../overlay/flannel/subnet-env.ts";
import { until } from "../../../lab/until.ts";

const top = mkdtempSync(join(tmpdir(), "podnet-subnet-"));

const env = (third: number): SubnetEnv => ({
  networks: { v4: "10.77.0.0/16" as Cidr, v6: undefined },
  subnets: { v4: `10.77.${third}.0/24` as Cidr, v6: undefined },
  mtu: 1450,
  masquerade: true,
});

interface Watched {
  readonly file: SubnetFile;
  readonly warnings: (readonly [string, LogFields])[];
  readonly ready: () => number;
}

function open(path: string): Watched {
  const warnings: [string, LogFields][] = [];
  let ready = 0;
  const log = { warn: (fields: LogFields, msg: string) => void warnings.push([msg, fields]) };
  const file = new SubnetFile({ path, log, ready: () => void ready++ });
  return { file, warnings, ready: () => ready };
}

test.serial(
  "the subnet's file is there whole, for all to read, before podnetd reports that it is ready",
  (t) => {
    const path = join(top, "run", "flannel", "subnet.env");
    const former = process.umask(0o077);
    t.teardown(() => process.umask(former));
    const seen: string[] = [];
    const file = new SubnetFile({
      path,
      log: { warn: () => t.fail() },
      ready: () => void seen.push(readFileSync(path, "utf8")),
    });
    t.is(file.former(), undefined, "nothing yet");
    file.write(env(5));
    t.deepEqual(seen, [
      "FLANNEL_NETWORK=10.77.0.0/16\nFLANNEL_SUBNET=10.77.5.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
    ]);
    t.is(statSync(path).mode & 0o777, 0o644);
    const { ino } = statSync(path);
    file.write(env(5));
    t.is(statSync(path).ino, ino, "the same is not written again");
    file.write(env(6));
    t.not(statSync(path).ino, ino, "another one takes its place");
    t.is(seen.length, 1, "ready once");
    t.deepEqual(file.former()?.subnets, { v4: "10.77.6.0/24", v6: undefined } as never);
    t.deepEqual(readdirSync(dirname(path)), ["subnet.env"], "nothing else is left");
    file.remove();
    t.deepEqual(readdirSync(dirname(path)), []);
    file.remove();
  },
);

test.serial("whoever reads the file while it is written sees the old one or the new one", (t) => {
  const path = join(top, "whole.env");
  const { file, warnings } = open(path);
  file.write(env(5));
  const before = readFileSync(path, "utf8");
  const seen: string[] = [];
  const look = (): void => void seen.push(readFileSync(path, "utf8"));
  watchEffects({ at: look, atAsync: () => Promise.resolve() });
  t.teardown(() => watchEffects(undefined));
  file.write(env(6));
  const after = readFileSync(path, "utf8");
  t.is(seen.length, 6, "directory, contents and name, before and after each");
  t.deepEqual(new Set(seen), new Set([before, after]));
  // And one that is stopped on the way has changed nothing; the next one goes through.
  watchEffects({
    at: ({ what }) => {
      if (what === "name subnet file") throw new Error("stopped here");
    },
    atAsync: () => Promise.resolve(),
  });
  file.write(env(7));
  t.is(warnings.length, 1);
  watchEffects(undefined);
  t.is(readFileSync(path, "utf8"), after);
  file.write(env(7));
  t.regex(readFileSync(path, "utf8"), /10\.77\.7\.1/);
  t.is(warnings.length, 1);
});

test.serial(
  "a file that cannot be written is warned of, and podnetd is ready all the same",
  (t) => {
    const blocked = join(top, "blocked");
    writeFileSync(blocked, "a file where a directory should be");
    const { file, warnings, ready } = open(join(blocked, "subnet.env"));
    file.write(env(5));
    t.is(ready(), 1);
    t.is(warnings[0]?.[0], "Failed to write the overlay's subnet file; retrying");
    t.regex(String(warnings[0]?.[1].err), /ENOTDIR|EEXIST/);
    t.is(file.former(), undefined);
    const directory = join(top, "directory.env");
    mkdirSync(join(directory, "full"), { recursive: true });
    const other = open(directory);
    other.file.remove();
    t.is(other.warnings[0]?.[0], "Failed to remove the overlay's subnet file; retrying");
  },
);

test.serial("what could not be written or removed is, once it can be", async (t) => {
  const directory = join(top, "later");
  const path = join(directory, "subnet.env");
  const reported: string[] = [];
  const log = { warn: (_: LogFields, msg: string) => void reported.push(msg) };
  writeFileSync(directory, "a file where a directory should be");
  using file = new SubnetFile({ path, log, ready: () => {}, againMs: 5 });
  file.write(env(5));
  t.false(existsSync(path));
  rmSync(directory);
  await until("subnet.env", () => existsSync(path));
  watchEffects({
    at: ({ what }) => {
      if (what === "name subnet file" || what === "remove subnet file") throw new Error("not now");
    },
    atAsync: () => Promise.resolve(),
  });
  t.teardown(() => watchEffects(undefined));
  file.write(env(6));
  file.remove();
  t.deepEqual(readdirSync(directory).toSorted(), [".subnet.env.new", "subnet.env"]);
  watchEffects(undefined);
  await until("nothing", () => readdirSync(directory).length === 0);
  const [without, goneStill] = [reported[0], reported.at(-1)];
  t.is(without, "Failed to write the overlay's subnet file; retrying");
  t.is(goneStill, "Failed to remove the overlay's subnet file; retrying");
  t.is(reported.length, 3, "each once, however often it is tried");
});

test.serial("what others took or changed of the file is put back, and nothing else", (t) => {
  const path = join(top, "healed.env");
  const { file, warnings } = open(path);
  writeFileSync(path, "FLANNEL_SUBNET=10.77.9.1/24\n");
  t.false(file.look(), "of an earlier start, before anything is known");
  t.regex(readFileSync(path, "utf8"), /10\.77\.9\.1/);
  file.write(env(5));
  const wanted = readFileSync(path, "utf8");
  t.false(file.look(), "as it was written");
  rmSync(path);
  t.true(file.look());
  t.is(readFileSync(path, "utf8"), wanted);
  writeFileSync(path, "FLANNEL_SUBNET=10.77.9.1/24\n");
  t.true(file.look());
  t.is(readFileSync(path, "utf8"), wanted);
  rmSync(path);
  mkdirSync(join(path, "in the way"), { recursive: true });
  t.false(file.look(), "it cannot be put back");
  t.is(warnings.length, 1);
  rmSync(path, { recursive: true });
  file.remove();
  t.false(file.look());
  t.false(existsSync(path), "what was given up stays away");
});

test.serial(
  "a link in the way leads nowhere else, and a file that goes on for ever is not read",
  (t) => {
    const victim = join(top, "victim");
    writeFileSync(victim, "precious");
    const path = join(top, "linked.env");
    symlinkSync(victim, join(top, ".linked.env.new"));
    const linked = open(path);
    linked.file.write(env(5));
    t.is(readFileSync(victim, "utf8"), "precious");
    t.is(linked.warnings.length, 1);
    const long = join(top, "long.env");
    writeFileSync(long, `FLANNEL_SUBNET=10.77.5.1/24\n${"#".repeat(70_000)}`);
    chmodSync(long, 0o600);
    t.is(open(long).file.former(), undefined);
    writeFileSync(long, "FLANNEL_SUBNET=10.77.5.1/24\n");
    t.is(open(long).file.former()?.subnets?.v4, "10.77.5.0/24" as Cidr);
  },
);

test.serial("each of several overlays has a file of its own", (t) => {
  const where = { subnetFile: "/run/flannel/subnet.env", subnetDir: "/run/flannel/networks" };
  t.is(subnetFilePath(where, undefined), "/run/flannel/subnet.env");
  t.is(subnetFilePath(where, "green" as NetworkName), "/run/flannel/networks/green.env");
});
