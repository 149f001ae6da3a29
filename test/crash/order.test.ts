import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { standInConfig } from "../lab/standin.ts";
import { openWorker } from "./worker.ts";
import { looks, parse } from "./points.ts";
import { create, remove, started, subject } from "./pods.ts";

test("no step begins before its row is durable, and no row goes before what it stands for", async (t) => {
  t.timeout(60_000);
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-order-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  await using worker = await openWorker(
    "order",
    `drift_s = 3600\n${await standInConfig(directory)}`,
  );
  let reported = 0;
  /**
   * Effects since the last call, without those that only look: a look for drift may fall
   * anywhere.
   */
  const since = (): readonly string[] => {
    const all = worker.record();
    const part = all.slice(reported).filter((line) => !looks.test(parse(line).name));
    reported = all.length;
    return part;
  };
  const before = (record: readonly string[], first: string, then: string): void => {
    const [at, later] = [record.indexOf(first), record.indexOf(then)];
    t.true(at >= 0 && later > at, `${first} (${at}) before ${then} (${later})`);
  };

  await started(worker, []);
  // It takes connections a moment before its socket's file has its mode; an answer comes after.
  await worker.client.pods.list({});
  const start = since();
  before(start, "commit:insert networks:after#1", "netlink:add bridge:before#1");
  // What takes a setting back, or finds our rules again, is remembered before it is made.
  before(start, "commit:insert meta:after#1", "command:iptables-nft-restore:before#1");
  before(start, "commit:insert meta:after#3", "file:set net/ipv4/ip_forward:before#1");

  await create(worker, subject);
  const made = since();
  t.deepEqual(made.slice(0, 2), ["commit:claim:before#1", "commit:claim:after#1"]);
  // No step begins before the claim survives a loss of power.
  before(made, "commit:flush:after#1", "spawn:qemu:before#1");
  before(made, "spawn:qemu:after#1", "commit:insert runs:before#1");
  before(made, "commit:insert runs:after#1", "socket:connect channel.sock:before#1");
  before(made, "commit:insert runs:after#1", "qmp:getfd:before#1");
  before(made, "qmp:device_add:after#1", "commit:running:before#1");
  before(made, "ioctl:close tap:after#1", "commit:running:before#1");
  before(made, "commit:running:after#1", "commit:flush:before#2");
  t.is(made.at(-1), "commit:flush:after#2");

  await remove(worker, subject);
  const removed = since();
  t.deepEqual(removed.slice(0, 2), ["commit:deleting:before#1", "commit:deleting:after#1"]);
  before(removed, "commit:deleting:after#1", "commit:flush:before#3");
  t.deepEqual(removed.slice(-2), ["commit:forget:before#1", "commit:forget:after#1"]);
});
