import { type ChildProcess, execFile, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import { type Answer, decode, encode, type Packet, streamEncode } from "dns-packet";
import type { Ip } from "../../core/address.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import { Resolvers } from "../../daemon/dns/resolvers.ts";
import { openLog } from "../../linux/log.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";
import { definition } from "../lab/network-definition.ts";

const exec = promisify(execFile);
const opened = new AsyncDisposableStack();
const directory = mkdtempSync("/tmp/podnet-names-");
opened.defer(() => rmSync(directory, { recursive: true, force: true }));
test.after.always(() => opened.disposeAsync());

const upstream = "127.0.0.77" as Ip;
/**
 * Pods of two networks, by the last number of their address; what is asked for below `slow.example`
 * is answered by none.
 */
const blue = definition("blue", ["10.20.0.1/24"], { dns: [upstream] });
const red = definition("red", ["10.30.0.1/24"], { dns: [upstream] });
let resolvers: Resolvers;
let isAway = false;

test.before(async () => {
  await ownNetns();
  await serveNames();
  for (const [network, pods] of [
    [blue, ["asks-hostile", "asks-pod"]],
    [red, ["asks-other"]],
  ] as const) {
    const gateway = network.subnets.map((subnet) => subnet.gateway).join();
    await ip(`link add ${network.bridge} address 02:00:00:00:00:01 type bridge`);
    await ip(`address add ${gateway} dev ${network.bridge}`);
    await ip(`link set ${network.bridge} up`);
    for (const [i, pod] of pods.entries()) {
      await ip(`netns add ${pod}`);
      opened.defer(async () => void (await ip(`netns del ${pod}`)));
      await ip(`link add p-${pod} type veth peer name eth0 netns ${pod}`);
      await ip(`link set p-${pod} master ${network.bridge} up`);
      await ip(`-n ${pod} address add ${gateway.replace(".1/", `.${i + 2}/`)} dev eth0`);
      await ip(`-n ${pod} link set lo up`);
      await ip(`-n ${pod} link set eth0 up`);
    }
  }
  // It asks by addresses of others without having them: it answers no ARP for them, and asks by
  // none.
  await exec("ip", [
    "netns",
    "exec",
    "asks-hostile",
    "sysctl",
    "-qw",
    "net.ipv4.conf.all.arp_ignore=1",
  ]);
  await ip("-n asks-hostile neighbour replace 10.20.0.1 lladdr 02:00:00:00:00:01 dev eth0");
  for (let nth = 3; nth < 13; nth++)
    await ip(`-n asks-hostile address add 10.20.0.${nth}/32 dev lo`);
  const holderAt = (network: NetworkName, at: Ip): PodId => `${network}${at}` as PodId;
  resolvers = opened.use(
    new Resolvers({
      config: { resolver: true, domain: "podnet", upstreams: [], staleMs: 60_000 },
      names: {
        addressesOf: () => undefined,
        nameAt: () => undefined,
        holderAt,
        networksOf: () => [],
        isSent: () => false,
        hasClients: () => false,
      },
      clock: { now: () => Date.now(), monotonic: () => performance.now() },
      journal: { emit: () => {} },
      log: openLog({ component: "test", level: "silent" }),
    }),
  );
  await resolvers.converge(() => [blue, red]);
});

/**
 * A server that names everything but what ends in `slow.example`, to which it says nothing; nothing
 * at all while it is away.
 */
async function serveNames(): Promise<void> {
  const answerTo = (bytes: Buffer): Packet | undefined => {
    const { id = 0, questions = [] } = decode(bytes);
    const [question] = questions;
    const name = question?.name ?? "";
    if (isAway || name.endsWith("slow.example")) return undefined;
    const answers: Answer[] =
      question?.type === "A" ? [{ type: "A", name, ttl: 60, data: "203.0.113.9" }] : [];
    return { type: "response", id, flags: 0x0180, questions, answers };
  };
  const byUdp = createSocket("udp4");
  opened.defer(() => void byUdp.close());
  byUdp.on("message", (bytes, from) => {
    const answer = answerTo(bytes);
    if (answer !== undefined) byUdp.send(encode(answer), from.port, from.address);
  });
  byUdp.bind(53, upstream);
  const byTcp = createServer((connection) => {
    connection.on("error", () => {});
    connection.on("data", (bytes) => {
      const answer = answerTo(bytes.subarray(2));
      if (answer !== undefined) connection.end(streamEncode(answer));
    });
  });
  opened.defer(() => void byTcp.close());
  byTcp.listen(53, upstream);
  await Promise.all([once(byUdp, "listening"), once(byTcp, "listening")]);
}

/**
 * A source of questions that has begun: the pod asks by these addresses, so often a second each.
 */
async function flood(
  seconds: number,
  aSecond: number,
  from: readonly string[],
): Promise<ChildProcess> {
  const program = join(import.meta.dirname, "../lab/question-flood.ts");
  const words = [process.execPath, program, "10.20.0.1", `${aSecond}`, `${seconds}`, ...from];
  const child = spawn("ip", ["netns", "exec", "asks-hostile", ...words]);
  opened.defer(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  return child;
}

/**
 * Asks for a name as programs do, with glibc: whether it was answered, and after how long,
 * milliseconds.
 */
async function asked(pod: string, name: string, gateway: string) {
  const file = join(directory, `resolv-${pod}`);
  writeFileSync(file, `nameserver ${gateway}\noptions timeout:5 attempts:1\n`);
  const begun = performance.now();
  const words = ["netns", "exec", pod, "unshare", "--mount", "sh", "-c"];
  const found = await exec("ip", [
    ...words,
    'mount --bind "$0" /etc/resolv.conf && exec getent ahostsv4 "$1"',
    file,
    name,
  ]).then(
    ({ stdout }) => stdout.includes("203.0.113.9"),
    () => false,
  );
  return { found, ms: Math.round(performance.now() - begun) };
}

/** Of so many questions, one after the other, how many were answered. */
async function answered(pod: string, gateway: string, times: number): Promise<number> {
  let found = 0;
  for (let nth = 0; nth < times; nth++)
    if ((await asked(pod, `${pod}${nth}.example`, gateway)).found) found++;
  return found;
}

test.serial(
  "a pod that asks by its neighbours' addresses takes no names from them, nor from other networks",
  async (t) => {
    const forged = Array.from({ length: 11 }, (_, i) => `10.20.0.${i + 2}`);
    const hostile = await flood(6, 200, forged);
    for (let nth = 0; nth < 500 && resolvers.counts.refused < 300; nth++) await delay(10);
    t.true(resolvers.counts.refused >= 300, "it has used up what it can get");
    t.deepEqual(
      await Promise.all([
        answered("asks-pod", "10.20.0.1", 3),
        answered("asks-other", "10.30.0.1", 3),
      ]),
      [3, 3],
    );
    hostile.kill("SIGKILL");
  },
);

test.serial("while no server answers, a pod gets the answer it got before", async (t) => {
  t.true((await asked("asks-other", "before.example", "10.30.0.1")).found);
  isAway = true;
  const { stale } = resolvers.counts;
  const { found, ms } = await asked("asks-other", "before.example", "10.30.0.1");
  t.true(found);
  t.true(ms >= 1500 && ms < 3500, `after ${ms} ms`);
  t.is(resolvers.counts.stale, stale + 1);
  t.is(resolvers.counts.timeouts, 0, "the question is still under way");
});
