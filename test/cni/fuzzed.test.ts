/**
 * The plugin fed with what no runtime sends, and podnetd's socket with what no plugin sends: always
 * an answer in CNI's form, never a crash, and podnetd serves on.
 */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { mutate } from "../fuzz/engine/mutate.ts";
import { Random, runSeed } from "../fuzz/engine/random.ts";
import type { Target } from "../fuzz/engine/target.ts";
import type { RecordedCall } from "../lab/cni-recorder.ts";
import { bodyOf, type CniRig, openCniRig } from "./cni-rig.ts";
import { type PluginEnd, runPlugin } from "./run-plugin.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const inputs = full ? 20_000 : 120;
const seed = runSeed();
const requestMs = 3000;

let cni: CniRig;
test.serial.before(async () => {
  cni = await openCniRig(`quarantine_s = 0\nlimits = { request_s = ${requestMs / 1000} }\n`);
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

const recorded = ["containerd-1.6", "podman-4.3"].flatMap(
  (name) =>
    JSON.parse(
      readFileSync(path.join(import.meta.dirname, `../fixtures/cni/${name}.json`), "utf8"),
    ) as RecordedCall[],
);

const dictionary: Target = {
  name: "cni-plugin",
  files: [],
  seeds: [],
  longest: 16_384,
  words: [
    "runtimeConfig",
    "prevResult",
    "cniVersion",
    '"1.1.0"',
    "null",
    "[[[[",
    "IgnoreUnknown=1",
  ],
  run: () => {},
};

const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
const changed = (text: string, random: Random): string =>
  latin1(
    mutate(
      Buffer.from(text, "latin1"),
      Buffer.from(random.pick(recorded).env.join(";")),
      random,
      dictionary,
    ),
  );

/** Whatever becomes of the rest, it asks the podnetd of this rig, and writes nowhere else. */
function aimed(text: string): Buffer {
  const here = { socket: cni.socket, pendingDirectory: path.join(cni.rig.directory, "pending") };
  const whole = text.trimEnd();
  const end = JSON.stringify(here).slice(1);
  return Buffer.from(whole.endsWith("}") ? `${whole.slice(0, -1)},${end}` : whole, "latin1");
}

const withoutZero = (text: string): string => text.replaceAll("\0", "");

/** One variable changed, left out or added. */
function changedEnvironment(env: readonly string[], random: Random): string[] {
  const at = random.below(env.length);
  const pair = env[at] as string;
  switch (random.below(5)) {
    case 0:
      return env.filter((_, i) => i !== at);
    case 1:
      return [...env, `CNI_${withoutZero(changed("X", random)).replaceAll("=", "")}=1`];
    case 2: {
      const name = pair.slice(0, pair.indexOf("=") + 1);
      return env.with(at, name + "x".repeat(random.below(100_000)));
    }
    default: {
      const equals = pair.indexOf("=") + 1;
      return env.with(at, pair.slice(0, equals) + withoutZero(changed(pair.slice(equals), random)));
    }
  }
}

/**
 * What CNI has a plugin say: nothing or an object at success, an error with its number at failure.
 */
function inForm({ exit, stdout, json }: PluginEnd): boolean {
  if (exit === 0) return stdout === "" || typeof json === "object";
  return (
    exit === 1 && Number.isInteger(json?.code) && json.code > 0 && typeof json.msg === "string"
  );
}

async function serves(t: ExecutionContext): Promise<void> {
  const container = await cni.container();
  await cni.done({ container, config: { name: "after" } });
  await container.ping("192.168.123.1");
  await cni.done({ command: "DEL", container, config: { name: "after" } });
  await cni.lose(container);
  t.is(cni.rig.daemon.process.exitCode, null);
}

test.serial("what cannot be a configuration is refused with CNI's number for it", async (t) => {
  const env = ["CNI_COMMAND=ADD", "CNI_CONTAINERID=c", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/x"];
  const rows: readonly (readonly [what: string, stdin: Buffer, code: number])[] = [
    ["nothing", Buffer.alloc(0), 6],
    ["half a text", Buffer.from('{"name":"a'), 6],
    ["bytes", Buffer.from(new Random(seed).bytes(4096)), 6],
    ["a million lists", Buffer.alloc(1024 * 1024, "["), 6],
    ["a million objects", Buffer.from('{"a":'.repeat(200_000)), 6],
    ["one byte too many", Buffer.alloc(1024 * 1024 + 1, " "), 5],
  ];
  for (const [what, stdin, code] of rows)
    t.is((await runPlugin(env, stdin)).json?.code, code, what);
  const long = await runPlugin(
    [...env, ...["CNI_ARGS", "CNI_X"].map((name) => `${name}=${"x".repeat(70_000)}`)],
    "{}",
  );
  t.is(long.json.code, 4);
});

/**
 * Sends bytes and answers all that comes back until the other end has had enough, or is given an
 * end.
 */
async function exchange(bytes: Buffer, end: boolean): Promise<string> {
  const socket = connect(cni.socket);
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.on("error", () => {});
  const closed = once(socket, "close");
  socket.write(bytes);
  if (end) socket.end();
  await closed;
  return Buffer.concat(chunks).toString("latin1");
}

const posted = (at: string, body: string, length = body.length): string =>
  `POST ${at} HTTP/1.1\r\nHost: podnet\r\nContent-Length: ${length}\r\n\r\n${body}`;

test.serial("the socket answers garbage with an answer or an end, in both forms", async (t) => {
  t.timeout(full ? 4 * 3_600_000 : 90_000);
  const random = new Random(seed);
  const container = await cni.container();
  const check = bodyOf({ command: "CHECK", container });
  const openshift = JSON.stringify({ ...JSON.parse(check), hostVeth: "veth0" });
  const seeds = [
    posted("/cni/v1", check),
    posted("/", openshift),
    posted("/cni/v1", "{}"),
    `GET / HTTP/1.1\r\n\r\n`,
  ];
  const statuses = new Set<string>();
  for (let i = 0; i < inputs; i++) {
    const whole = random.pick(seeds);
    const sent = random.once(8)
      ? whole.slice(0, random.below(whole.length))
      : changed(whole, random);
    const said = await exchange(Buffer.from(sent, "latin1"), true);
    if (said !== "" && !/^HTTP\/1\.1 (?:100|200|400|404|413) /.test(said))
      t.fail(`input ${i}: ${JSON.stringify({ sent, said }).slice(0, 4000)}`);
    statuses.add(said.slice(9, 12));
    const body = said.slice(said.indexOf("\r\n\r\n") + 4);
    if (!said.startsWith("HTTP/1.1 200") || !body.startsWith('{"exit"')) continue;
    const { exit, stdout } = JSON.parse(body) as { exit: number; stdout: string };
    t.true(exit === 0 || Number.isInteger((JSON.parse(stdout) as { code: number }).code));
  }
  t.log(`statuses ${[...statuses].toSorted().join(" ")}`);
  t.true(statuses.has("200") && statuses.size > 2);
  await serves(t);
});

test.serial("bodies that never end are cut, and keep no caller waiting", async (t) => {
  t.timeout(60_000);
  const container = await cni.container();
  const body = bodyOf({ container });
  const slow = Array.from({ length: 20 }, (_, i) =>
    exchange(Buffer.from(posted(i % 2 === 0 ? "/" : "/cni/v1", "{", body.length)), false),
  );
  await serves(t);
  // Heads that never end are no better.
  slow.push(exchange(Buffer.from("POST / HTTP/1.1\r\nHost:"), false));
  for (const said of await Promise.all(slow)) t.regex(said, /^(?:HTTP\/1\.1 4|$)/);
  t.deepEqual(await cni.links(), []);
});

test.serial("the plugin always answers in CNI's form, whatever it is handed", async (t) => {
  t.timeout(full ? 4 * 3_600_000 : 90_000);
  t.log(`PODNET_SEED=${seed}, ${inputs} inputs`);
  const random = new Random(seed);
  const container = await cni.container();
  const codes = new Set<number>();
  for (let i = 0; i < inputs; i++) {
    const call = random.pick(recorded);
    const there = (text: string): string =>
      text.replaceAll(/\/(?:var\/)?run\/netns\/[\w-]+/g, container.path);
    const stdin = there(JSON.stringify(call.stdin));
    const env = call.env.map(there);
    const [variables, config] = random.once(2)
      ? [changedEnvironment(env, random), stdin]
      : [env, changed(stdin, random)];
    const end = await runPlugin(variables, aimed(config)).catch((error: unknown) => ({
      exit: null,
      stdout: String(error),
      stderr: "",
      json: undefined,
    }));
    if (!inForm(end))
      t.fail(`input ${i}: ${JSON.stringify({ variables, config, end }).slice(0, 4000)}`);
    codes.add(end.exit === 0 ? 0 : Number(end.json.code));
  }
  t.log(`codes ${[...codes].toSorted((a, b) => a - b).join(" ")}`);
  // Both sides were reached: what is served, and what is refused at several places.
  t.true(codes.has(0) && codes.size > 3);
  await serves(t);
  // What changed names attached to goes with podnetd, which this ends.
  await cni.rig.daemon.podnet("down", "--yes");
});
