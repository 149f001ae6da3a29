import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { parseMac } from "../../core/address.ts";
import { parseIfName, podIdFromBytes } from "../../core/names.ts";
import { agentContainer, command, commandName } from "../../guest-init/protocol/codes.ts";
import {
  CtlDecoder,
  type CtlFrame,
  ctlLimit,
  encodeCtlFrame,
} from "../../guest-init/protocol/ctl-frame.ts";
import { TtyDecoder } from "../../guest-init/protocol/tty-frame.ts";
import { kindFor } from "../../hypervisor/argv/machine-kinds.ts";
import { plugCommands } from "../../hypervisor/argv/plug-commands.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { findProgram } from "../../linux/processes/command.ts";
import { openTap } from "../../linux/tun.ts";
import type { UnixConnection } from "../../linux/sockets/unix-socket.ts";
import { ownNetns } from "../lab/netns.ts";
import { standInQemu } from "../lab/standin.ts";
import { debianGuest, nicPlan } from "./hypervisor-rig.ts";
import { type BareMachine, startBare } from "./standin-dialogue.ts";

const realQemu = findProgram("qemu-system-x86_64") ?? "qemu-system-x86_64";

test.before(async () => await ownNetns());

/** The host's end of a guest's channels, and a record of what came. */
class Host {
  readonly record: string[] = [];
  readonly #control: UnixConnection;
  readonly #frames: CtlFrame[] = [];
  readonly #output: string[] = [];
  #consumed = 0;
  /** A HELLO was answered: what the guest reads is counted no longer. */
  #extended = false;
  #wake = Promise.withResolvers<void>();

  constructor(control: UnixConnection, tty?: UnixConnection) {
    this.#control = control;
    const decoder = new CtlDecoder();
    control.socket.on("data", (bytes: Buffer) => {
      for (const item of decoder.push(bytes)) {
        if (item.kind === "refused") throw new Error(`A frame of ${item.length} bytes`);
        // How a command is cut into reads is the reader's affair; how much was read is not.
        if (item.code === command.next) this.#consumed += Buffer.from(item.payload).readUInt32BE(0);
        else this.#frames.push(item);
      }
      this.#wake.resolve();
    });
    const outputs = new TtyDecoder();
    tty?.socket.on("data", (bytes: Buffer) => {
      for (const item of outputs.push(bytes))
        if (item.kind === "frame")
          this.#output.push(`output ${item.stream} "${Buffer.from(item.data).toString()}"`);
      this.#wake.resolve();
    });
  }

  /** The next frame, as a line. */
  async hear(what: string): Promise<number> {
    while (this.#frames.length === 0) await this.#more(what);
    const { code, payload } = this.#frames.shift() as CtlFrame;
    this.record.push(`${what}: ${commandName(code)} ${shown(payload)}`);
    return code;
  }

  /** Sends a command and records the answer. */
  async ask(what: string, code: number, payload?: string | object): Promise<void> {
    const text = typeof payload === "object" ? JSON.stringify(payload) : (payload ?? "");
    const answer = await this.raw(what, encodeCtlFrame(code, Buffer.from(text)));
    this.#extended ||= code === command.hello && answer === command.ack;
  }

  async raw(what: string, bytes: Uint8Array): Promise<number> {
    this.#control.socket.write(bytes);
    const answer = await this.hear(what);
    while (!this.#extended && this.#consumed < bytes.length) await this.#more(`NEXT of ${what}`);
    this.record.push(`${what}: consumed ${this.#consumed} of ${bytes.length}`);
    this.#consumed = 0;
    return answer;
  }

  /** Output of processes until the end of a stream. */
  async output(stream: number): Promise<void> {
    while (!this.#output.includes(`output ${stream} ""`)) await this.#more("output");
    this.record.push(...this.#output.splice(0));
  }

  async #more(what: string): Promise<void> {
    this.#wake = Promise.withResolvers();
    const late = new AbortController();
    const timer = delay(20_000, "late", { signal: late.signal }).catch(() => "");
    const how = await Promise.race([this.#wake.promise, timer]);
    late.abort();
    if (how === "late") throw new Error(`Nothing came: ${what}`);
  }
}

/**
 * A payload without what differs by nature: times, memory, this start's name, what it offers beyond
 * the protocol's first version, PCI's order.
 */
function shown(payload: Uint8Array): string {
  const text = Buffer.from(payload).toString();
  if (!text.startsWith("{"))
    return /^[\x20-\x7e]*\0?$/.test(text) ? text : Buffer.from(payload).toString("hex");
  const {
    clockMs,
    agentRssKib,
    epoch,
    agent,
    features: _,
    ...rest
  } = JSON.parse(text) as Record<string, unknown>;
  const kinds = [clockMs, agentRssKib, epoch, agent].map((one) => typeof one);
  const interfaces = (rest["interfaces"] as { index?: number; mac: string }[] | undefined)?.map(
    ({ index, ...each }) => ({ index: typeof index, ...each }),
  );
  const routes = (rest["routes"] as object[] | undefined)?.map((one) => JSON.stringify(one));
  return JSON.stringify({
    kinds,
    ...rest,
    ...(interfaces === undefined ? {} : { interfaces }),
    ...(routes === undefined ? {} : { routes: routes.toSorted() }),
  });
}

const mac = (slot: number): string => nicPlan(slot).mac;
const config = (more: object): object => ({
  requestId: "r1",
  interfaces: [],
  routes: [],
  neighbours: [],
  waitMs: 100,
  ...more,
});
const eth0 = { mac: mac(1), name: "eth0", mtu: 1400, addresses: ["192.0.2.2/24"] };
const eth1 = { mac: mac(2), name: "data", addresses: ["198.51.100.2/29"] };
const routes = [{ destination: "0.0.0.0/0", gateway: "192.0.2.1", interface: "eth0" }];
const execution = (args: readonly string[], stdio: number, more: object = {}): object => ({
  container: agentContainer,
  process: { id: `p${stdio}`, terminal: false, stdio, stderr: stdio + 1, args, ...more },
});

async function introductions(host: Host): Promise<void> {
  await host.hear("boot");
  await host.ask("version", command.getVersion);
  await host.ask("version of null", command.getVersion, "null");
  await host.ask("version with keys", command.getVersion, { surplus: 1 });
  await host.ask("version of nonsense", command.getVersion, "{");
  await host.ask("ping", command.ping);
  await host.ask("unknown", 99);
  await host.ask("deprecated", command.getPod);
  await host.ask("containers", command.killContainer, {});
  await host.ask("hello", command.hello, { versions: [1], nonce: "n1" });
  await host.ask("hello of many", command.hello, { versions: [7, 1, 9], nonce: "n2", later: 1 });
  await host.ask("hello of another protocol", command.hello, { versions: [9], nonce: "n3" });
  await host.ask("hello without nonce", command.hello, { versions: [1] });
  await host.ask("hello of nonsense", command.hello, "nonsense");
}

async function frames(host: Host): Promise<void> {
  const oversize = Buffer.alloc(ctlLimit.default + 8);
  oversize.writeUInt32BE(command.ping, 0);
  oversize.writeUInt32BE(oversize.length, 4);
  await host.raw("oversize", oversize);
  await host.raw("short", Uint8Array.of(0, 0, 0, command.ping, 0, 0, 0, 4));
  const both = Buffer.concat([encodeCtlFrame(command.ping), encodeCtlFrame(99)]);
  await host.raw("two at once", both);
  await host.hear("the second of two");
  await host.ask("after that", command.ping);
}

async function badConfigurations(host: Host): Promise<void> {
  const ask = (what: string, payload: object | string): Promise<void> =>
    host.ask(what, command.configure, payload);
  await ask("nothing", "");
  await ask("no keys", {});
  await ask("surplus", config({ surplus: 1 }));
  await ask("bad mac", config({ interfaces: [{ ...eth0, mac: "words" }] }));
  await ask("mac twice", config({ interfaces: [eth0, { ...eth1, mac: eth0.mac }] }));
  await ask("long wait", config({ waitMs: 60_001 }));
  await ask("mixed families", config({ routes: [{ ...routes[0], gateway: "2001:db8::1" }] }));
  await ask("absent", config({ interfaces: [eth0] }));
}

async function processes(host: Host): Promise<void> {
  await host.ask("no such container", command.execCmd, {
    ...execution(["true"], 1),
    container: "x",
  });
  await host.ask("no args", command.execCmd, execution([], 1));
  await host.ask("no such process", command.signalProcess, {
    container: agentContainer,
    process: "p9",
    signal: 9,
  });
  for (const [at, args] of [["echo", "hello"], ["false"], ["no-such-program"]].entries()) {
    const stream = 11 + 10 * at;
    await host.ask(args.join(" "), command.execCmd, execution(args, stream));
    await host.output(stream);
    await host.hear("the end");
  }
}

/** Everything a host and a guest say to each other, from the boot to the power-off. */
async function life(bare: BareMachine): Promise<readonly string[]> {
  await using machine = bare;
  const control = await machine.connect("channel");
  using tty = await machine.connect("tty");
  using qmp = await QmpClient.open(join(machine.runDir, "qmp.sock"));
  const record: string[] = [];
  qmp.onEvent(({ name, data }) => {
    if (["VSERPORT_CHANGE", "SHUTDOWN"].includes(name))
      record.push(`event ${name} ${JSON.stringify(data)}`);
  });
  const host = new Host(control, tty);
  const plug = async (slot: number): Promise<void> => {
    const nic = nicPlan(slot);
    const commands = plugCommands({ ...nic, mac: parseMac(nic.mac) }, kindFor("x86_64"));
    await using tap = openTap(parseIfName(`sg${process.pid % 10_000}x${slot}`));
    await qmp.passFd(nic.fdName, tap.fd);
    await qmp.execute("netdev_add", commands.netdev_add);
    await qmp.execute("device_add", commands.device_add);
  };

  await qmp.execute("cont", {});
  await introductions(host);
  await frames(host);
  await badConfigurations(host);
  await plug(1);
  const dns = { servers: ["192.0.2.1"], search: ["example.org"], options: ["ndots:2"] };
  const first = config({ hostname: "web", dns, interfaces: [eth0], routes, waitMs: 10_000 });
  await host.ask("configured", command.configure, first);
  await host.ask("configured again", command.configure, { ...first, requestId: "r2" });
  const both = config({ interfaces: [eth0, eth1], routes, waitMs: 20_000 });
  const waiting = host.ask("before its NIC is there", command.configure, both);
  await delay(100);
  await plug(2);
  await waiting;
  await processes(host);

  control.close();
  // Longer than the agent doubts that its host has gone: another host is greeted anew.
  await delay(1000);
  const again = new Host(await machine.connect("channel"), tty);
  await again.ask("another host", command.ping);
  await again.ask("power off", command.destroyPod);
  record.push(`ended ${await machine.ended}`);
  return [...record, ...host.record, ...again.record];
}

async function machine(t: ExecutionContext, qemu: string): Promise<BareMachine> {
  const directory = mkdtempSync(join(tmpdir(), "podnet-standin-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return await startBare(qemu, {
    podId: podIdFromBytes(crypto.getRandomValues(new Uint8Array(12))),
    vcpu: 1,
    memoryMib: 128,
    ...debianGuest,
    cmdline: "",
    disks: [],
    runDir: join(directory, "run"),
  });
}

test("podnet's agent and its stand-in say the same, frame by frame, from boot to power-off", async (t) => {
  // A guest's kernel that powers off closes its ports or is gone before: both are seen.
  const converged = (lines: readonly string[]): readonly string[] =>
    lines.filter((line) => !line.startsWith('event VSERPORT_CHANGE {"open":false'));
  const real = converged(await life(await machine(t, realQemu)));
  const standIn = converged(await life(await machine(t, standInQemu)));
  t.log(`${real.length} lines`);
  t.deepEqual(standIn, real);
});
