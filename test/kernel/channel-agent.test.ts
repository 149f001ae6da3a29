import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { parseIp, parseIpPrefix, parseCidr, parseUnicastMac } from "../../core/address.ts";
import type { ExecEvent, ExecSession } from "../../guest-init/channel/guest.ts";
import { type GuestSession, openGuest } from "../../guest-init/channel/session.ts";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";
import { run } from "../../linux/processes/command.ts";
import { ownNetns } from "../lab/netns.ts";
import { SerialRelay } from "../peers/serial-relay.ts";

const program = path.resolve(import.meta.dirname, "../../build/agent/podnet-guest");
const never = new AbortController().signal;

test.before(ownNetns);

/** The real agent as a plain process, and the channel to it. */
class AgentPair implements AsyncDisposable {
  readonly guest: GuestSession;
  readonly #relay: SerialRelay;
  #agent: ChildProcess | undefined;

  private constructor(relay: SerialRelay, reattach: boolean) {
    this.#relay = relay;
    this.guest = this.open(reattach);
  }

  static async start(): Promise<AgentPair> {
    const pair = new AgentPair(await SerialRelay.start(), false);
    pair.launch();
    await pair.guest.ready(never);
    return pair;
  }

  open(reattach: boolean): GuestSession {
    const channelPath = this.#relay.control.hostPath;
    return openGuest({ channelPath, ttyPath: this.#relay.tty.hostPath, reattach });
  }

  launch(): void {
    const { control, tty } = this.#relay;
    this.#agent = spawn(program, ["--channel", control.guestPath, "--tty", tty.guestPath], {
      stdio: ["ignore", "ignore", "inherit"],
    });
  }

  async kill(): Promise<void> {
    const agent = this.#agent;
    if (agent === undefined || agent.exitCode !== null || agent.signalCode !== null) return;
    agent.kill("SIGKILL");
    await once(agent, "exit");
  }

  async exited(): Promise<void> {
    if (this.#agent?.exitCode === null) await once(this.#agent, "exit");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.guest.close();
    await this.kill();
    this.#relay[Symbol.dispose]();
  }
}

const shell = (script: string) => ({
  args: ["/bin/sh", "-c", script],
  env: { PATH: "/usr/bin:/bin" },
  workdir: "/",
  terminal: false,
});

interface Outcome {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly code: number;
}

async function outcome(session: ExecSession): Promise<Outcome> {
  const of = (events: readonly ExecEvent[], kind: "stdout" | "stderr"): Buffer =>
    Buffer.concat(events.flatMap((event) => (event.kind === kind ? [event.data] : [])));
  const events: ExecEvent[] = [];
  for await (const event of session.events) events.push(event);
  const last = events.at(-1);
  return {
    stdout: of(events, "stdout"),
    stderr: of(events, "stderr"),
    code: last?.kind === "exit" ? last.code : -1,
  };
}

const configOf = (mac: string, name: string, waitMs: number): GuestConfig => ({
  requestId: "r1",
  interfaces: [
    {
      mac: parseUnicastMac(mac),
      name,
      mtu: 1400,
      addresses: [parseIpPrefix("10.44.0.2/24"), parseIpPrefix("fd44::2/64")],
    },
  ],
  routes: [
    { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("10.44.0.1"), interface: name },
    { destination: parseCidr("::/0"), gateway: parseIp("fd44::1"), interface: name },
  ],
  neighbours: [],
  waitMs,
});

test.serial("the agent says who it is", async (t) => {
  await using pair = await AgentPair.start();
  const identity = await pair.guest.ready(never);
  t.like(identity, { api: 4244, extension: 1 });
  await t.notThrowsAsync(pair.guest.ping(never));
});

test.serial("configure waits for a NIC that comes later, and shows what is there", async (t) => {
  await using pair = await AgentPair.start();
  const mac = "52:54:00:44:00:02";
  const configured = pair.guest.configure(configOf(mac, "eth7", 5000), never);
  // Behind the waiting configure in the channel, answered after it.
  const pinged = pair.guest.ping(never);
  await run([
    "ip",
    "link",
    "add",
    "veth0",
    "address",
    mac,
    "type",
    "veth",
    "peer",
    "name",
    "veth1",
  ]);
  await run(["ip", "link", "set", "veth1", "up"]);
  const observed = await configured;
  await pinged;
  const found = observed.interfaces.find((i) => i.mac === mac);
  t.like(found, { name: "eth7", mtu: 1400, up: true });
  t.deepEqual([...(found?.addresses ?? [])].sort(), ["10.44.0.2/24", "fd44::2/64"] as never);
  t.true(
    observed.routes.some((r) => r.destination === "0.0.0.0/0" && r.gateway === "10.44.0.1"),
    JSON.stringify(observed.routes),
  );
  t.true(observed.routes.some((r) => r.destination === "::/0" && r.gateway === "fd44::1"));
  t.regex((await run(["ip", "addr", "show", "dev", "eth7"])).stdout, /inet 10\.44\.0\.2\/24/);
  // Once more: the same end.
  t.deepEqual(
    (await pair.guest.configure(configOf(mac, "eth7", 0), never)).interfaces,
    observed.interfaces,
  );
  await run(["ip", "link", "del", "eth7"]);
});

test.serial("configure for a NIC that never comes is refused with its field", async (t) => {
  await using pair = await AgentPair.start();
  const error = await t.throwsAsync(
    pair.guest.configure(configOf("52:54:00:44:00:99", "eth0", 50), never),
    { code: "AGENT_REFUSED" },
  );
  t.like(error, { field: "interfaces[0].mac" });
  await t.notThrowsAsync(pair.guest.ping(never));
});

test.serial("a process: both outputs, environment, directory, exit code", async (t) => {
  await using pair = await AgentPair.start();
  const script = 'echo "out $A $PWD"; echo err >&2; exit 3';
  const session = await pair.guest.exec(
    { ...shell(script), env: { A: "1", PATH: "/bin" }, workdir: "/tmp" },
    never,
  );
  const { stdout, stderr, code } = await outcome(session);
  t.deepEqual([String(stdout), String(stderr), code], ["out 1 /tmp\n", "err\n", 3]);
});

test.serial("a program that is not there ends with a shell's code for it", async (t) => {
  await using pair = await AgentPair.start();
  const request = { ...shell(""), args: ["/no/such/program"] };
  t.is((await outcome(await pair.guest.exec(request, never))).code, 127);
});

test.serial("a process ended by a signal is 128 + its number", async (t) => {
  await using pair = await AgentPair.start();
  const session = await pair.guest.exec(shell("echo up; exec sleep 100"), never);
  const codes: number[] = [];
  for await (const event of session.events) {
    if (event.kind === "stdout") await session.signal(15);
    if (event.kind === "exit") codes.push(event.code);
  }
  t.deepEqual(codes, [143]);
});

const digest = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

async function through(t: ExecutionContext, guest: GuestSession, size: number): Promise<void> {
  const data = randomBytes(size);
  const session = await guest.exec(shell("exec cat"), never);
  const ended = outcome(session);
  for (let at = 0; at < size; at += 100_000) await session.write(data.subarray(at, at + 100_000));
  await session.closeInput();
  const { stdout, code } = await ended;
  t.is(code, 0);
  t.is(stdout.length, size);
  t.is(digest(stdout), digest(data));
}

test.serial("10 MB of random bytes go through and come back", async (t) => {
  await using pair = await AgentPair.start();
  const start = performance.now();
  await through(t, pair.guest, 10_000_000);
  t.log(`${(10_000 / (performance.now() - start)).toFixed(1)} MB/s there and back`);
});

test.serial("20 processes at once, each its own bytes", async (t) => {
  await using pair = await AgentPair.start();
  await Promise.all(Array.from({ length: 20 }, (_, i) => through(t, pair.guest, 50_000 + i)));
  t.like(pair.guest.counters(), { senselessFrames: 0, staleReplies: 0 });
});

test.serial("a terminal has its size", async (t) => {
  await using pair = await AgentPair.start();
  const session = await pair.guest.exec(
    { ...shell("read now; stty size"), terminal: true, rows: 33, columns: 77 },
    never,
  );
  await session.write(Buffer.from("\n"));
  const { stdout } = await outcome(session);
  t.is(String(stdout).trim(), "33 77");
});

test.serial("an agent that is killed and started again is found again", async (t) => {
  await using pair = await AgentPair.start();
  const again = new Promise((resolve) => pair.guest.onReady(resolve));
  const session = await pair.guest.exec(shell("exec sleep 100"), never);
  const waiting = pair.guest.configure(configOf("52:54:00:44:00:98", "eth0", 20_000), never);
  const ended = outcome(session);
  await pair.kill();
  pair.launch();
  await t.throwsAsync(waiting, { code: "AGENT_DISCONNECTED" });
  await t.throwsAsync(ended, { code: "AGENT_DISCONNECTED" });
  t.like(await again, { api: 4244, extension: 1 });
  await through(t, pair.guest, 10_000);
});

test.serial("a new daemon finds the agent without READY", async (t) => {
  await using pair = await AgentPair.start();
  await pair.guest.close();
  const guest = pair.open(true);
  t.like(await guest.ready(never), { extension: 1 });
  await through(t, guest, 10_000);
  await guest.close();
});

test.serial("a new daemon copes with an agent that restarted meanwhile", async (t) => {
  await using pair = await AgentPair.start();
  await pair.guest.close();
  await pair.kill();
  pair.launch();
  const guest = pair.open(true);
  const heard = new Promise((resolve) => guest.onReady(resolve));
  t.like(await guest.ready(never), { extension: 1 });
  t.like(await heard, { extension: 1 });
  await through(t, guest, 10_000);
  await guest.close();
});

test.serial("powerOff ends the agent", async (t) => {
  await using pair = await AgentPair.start();
  await pair.guest.powerOff(never);
  await pair.exited();
  t.pass();
});
