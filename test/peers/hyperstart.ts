import { setTimeout as sleep } from "node:timers/promises";
import { codes, Guest } from "./hyperstart-guest.ts";
import { Refused } from "./hyperstart-json.ts";
import {
  formatAddress,
  GuestNetwork,
  parseAddress,
  parseDestination,
} from "./hyperstart-network.ts";
import { GuestPort } from "./hyperstart-port.ts";
import type { GuestProcess } from "./hyperstart-process.ts";
import type { IpFlavour } from "./hyperstart-text.ts";

/*
 * A stand-in for hyperstart 1.1.0, the agent in the guests of runv and hyperd. The real one cannot
 * be installed here: it has no package, and its guests no image. This was written from the
 * project's recorded facts about it (what was seen live, and what was read in its code), by someone
 * who had not read podnet's codec, so that the two agree only where both agree with the facts. It
 * is no proof about the real one.
 *
 * Where nothing was recorded, the stand-in takes what asks more of the host: a failed STARTPOD of
 * any kind powers off, a new name that is the old one still lets the link go down, a tty frame
 * shorter than its header is a panic. It reads one tty frame at a time and feeds the process after
 * each. A terminal does not echo.
 */

export interface HyperstartOptions {
  /** Where the sockets of sh.hyper.channel.0 and .1 listen. */
  readonly controlPath: string;
  readonly ttyPath: string;
  /** Network cards that are there at boot, and what is configured on them. */
  readonly links?: readonly {
    readonly name: string;
    readonly mac: string;
    /** `10.0.0.2/24`; a link that has any is up. */
    readonly addresses?: readonly string[];
  }[];
  /** Routes that are there at boot. */
  readonly routes?: readonly { readonly dest: string; readonly gateway: string }[];
  readonly ip?: IpFlavour;
  /**
   * `few`: only the applets that hyperstart's own image links by name; the others by `busybox NAME`
   * alone.
   */
  readonly applets?: "all" | "few";
  /** How far the guest's clock is behind, milliseconds, as after a pause. */
  readonly clockBehindMs?: number;
  /**
   * The kernel refuses new names of links; the MTU that is set with one takes the link down all the
   * same.
   */
  readonly keepsNames?: boolean;
  /** Whether the share of STARTPOD can be mounted; default no. */
  readonly nineP?: boolean;
  /**
   * False: the agent said READY to someone else, before a template was saved or a daemon restarted.
   */
  readonly ready?: boolean;
  /** Codes of commands that it acknowledges and does nothing about. */
  readonly ignores?: readonly number[];
  /** How long the agent takes to start; what the host sends meanwhile waits. */
  readonly bootMs?: number;
  /** How long each read of the control channel takes, for hosts that should wait for NEXT. */
  readonly readMs?: number;
  /** How long a device may be missing; 2 s in the real one. */
  readonly deviceWaitMs?: number;
  /** From power-off, and from the end of process 1 (`panic=1`), until QEMU is gone. */
  readonly powerOffMs?: number;
  readonly panicMs?: number;
}

export interface HyperstartState {
  readonly links: readonly {
    readonly name: string;
    readonly mac: string;
    readonly mtu: number;
    readonly up: boolean;
    /** `10.0.0.2/24` */
    readonly addresses: readonly string[];
  }[];
  readonly routes: readonly {
    /** `default` or `10.0.0.0/24` */
    readonly dest: string;
    readonly gateway?: string;
    readonly device: string;
    /** Made by the kernel for an address. */
    readonly connected: boolean;
  }[];
  readonly hostname: string;
  readonly resolvConf: string;
  readonly clockBehindMs: number;
  readonly processes: readonly {
    readonly container: string;
    readonly id: string;
    readonly args: readonly string[];
    readonly envs: readonly { readonly env: string; readonly value: string }[];
    readonly workdir: string;
    readonly size: readonly [rows: number, columns: number] | undefined;
    /** Undefined while it runs. */
    readonly status: number | undefined;
    /** Bytes of stdin that found the buffer full. */
    readonly lostInput: number;
  }[];
  /** Why there is no guest any more. */
  readonly gone: string | undefined;
}

export interface HyperstartPeer extends AsyncDisposable {
  readonly state: HyperstartState;
  /** Commands of the host, in the order they came. */
  readonly received: readonly { readonly code: number; readonly payload: Buffer }[];
  /**
   * Sizes in which bytes came to the control channel, and the most that ever waited there to be
   * read.
   */
  readonly arrivals: readonly number[];
  readonly mostUnread: number;
  /** Resolves when QEMU is gone, with the reason. */
  readonly exited: Promise<string>;
  /** A network card is plugged in. */
  addLink(name: string, mac: string): void;
  /** It is pulled out, with what was configured on it. */
  removeLink(mac: string): void;
  close(): Promise<void>;
}

export async function startHyperstartPeer(options: HyperstartOptions): Promise<HyperstartPeer> {
  const peer = new Hyperstart(options);
  await peer.listen();
  return peer;
}

const headerSize = 8;
const ttyHeaderSize = 12;
const ttyFrameLimit = 4096;

class Hyperstart implements HyperstartPeer {
  readonly #options: HyperstartOptions;
  readonly #network: GuestNetwork;
  readonly #guest: Guest;
  #control!: GuestPort;
  #tty!: GuestPort;
  /** What of the current command has been read. */
  #message = Buffer.alloc(0);
  /** What processes did that the agent has not got to yet. */
  readonly #happened: (() => void)[] = [];
  #started = false;
  #looping = false;
  #woken = false;
  #gone: string | undefined;
  readonly #exited = Promise.withResolvers<string>();
  readonly #closing = new AbortController();
  readonly received: { code: number; payload: Buffer }[] = [];

  constructor(options: HyperstartOptions) {
    this.#options = options;
    this.#network = new GuestNetwork(options.deviceWaitMs ?? 2000, options.keepsNames);
    for (const { name, mac, addresses = [] } of options.links ?? []) {
      const link = this.#network.addLink(name, mac);
      for (const written of addresses) {
        const { destination, length } = parseDestination(written);
        this.#network.addAddress(link, destination, length);
        this.#network.up(link);
      }
    }
    for (const { dest, gateway } of options.routes ?? []) {
      const route = { ...parseDestination(dest), gateway: parseAddress(gateway) };
      if (!this.#network.addRoute(route)) throw new Error(`No kernel would take a route ${dest}`);
    }
    this.#guest = new Guest(
      {
        network: this.#network,
        ip: options.ip ?? "busybox",
        nineP: options.nineP ?? false,
        applets: options.applets ?? "all",
        clock: { behindMs: options.clockBehindMs ?? 0 },
      },
      {
        output: (seq, data) => this.#later(() => this.#output(seq, data)),
        exit: (process, status) => this.#later(() => this.#exit(process, status)),
      },
    );
  }

  async listen(): Promise<void> {
    const wake = (): void => this.#wake();
    this.#control = await GuestPort.listen(this.#options.controlPath, wake);
    this.#tty = await GuestPort.listen(this.#options.ttyPath, wake);
    void this.#boot();
  }

  addLink(name: string, mac: string): void {
    this.#network.addLink(name, mac);
  }

  removeLink(mac: string): void {
    const link = this.#network.links.find((other) => other.mac === mac);
    if (link !== undefined) this.#network.removeLink(link);
  }

  get arrivals(): readonly number[] {
    return this.#control.arrivals;
  }

  get mostUnread(): number {
    return this.#control.mostUnread;
  }

  get exited(): Promise<string> {
    return this.#exited.promise;
  }

  get state(): HyperstartState {
    const show = (address: number, length: number): string => `${formatAddress(address)}/${length}`;
    return {
      links: this.#network.links.map(({ name, mac, mtu, up, addresses }) => ({
        name,
        mac,
        mtu,
        up,
        addresses: addresses.map(({ address, length }) => show(address, length)),
      })),
      routes: this.#network.routes.map((route) => ({
        dest: route.length === 0 ? "default" : show(route.destination, route.length),
        ...(route.gateway !== undefined && { gateway: formatAddress(route.gateway) }),
        device: this.#network.linkOf(route).name,
        connected: route.source !== undefined,
      })),
      hostname: this.#guest.hostname,
      clockBehindMs: this.#guest.clock.behindMs,
      resolvConf: (this.#guest.files.get("/tmp/hyper/resolv.conf") ?? "").toString(),
      processes: this.#guest.processes.map(({ spec, size, status, stdin }) => ({
        container: spec.container,
        id: spec.id,
        args: spec.args,
        envs: spec.envs,
        workdir: spec.workdir,
        size,
        status,
        lostInput: stdin.lost,
      })),
      gone: this.#gone,
    };
  }

  async close(): Promise<void> {
    this.#gone ??= "closed";
    this.#closing.abort();
    await Promise.all([this.#control.close(), this.#tty.close()]);
    this.#exited.resolve(this.#gone);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #boot(): Promise<void> {
    await this.#pause(this.#options.bootMs);
    if (this.#gone !== undefined) return;
    if (this.#options.ready !== false) this.#send(codes.READY);
    this.#started = true;
    this.#wake();
  }

  /** The agent is one thread: while it is in one step, whatever comes waits. */
  #wake(): void {
    this.#woken = true;
    if (!this.#looping && this.#started) void this.#loop();
  }

  async #loop(): Promise<void> {
    this.#looping = true;
    while (this.#woken && this.#gone === undefined) {
      this.#woken = false;
      while (this.#gone === undefined && (await this.#step()));
    }
    this.#looping = false;
  }

  /** Whether there was anything to do. */
  async #step(): Promise<boolean> {
    return (await this.#readControl()) || this.#readTty() || this.#happen();
  }

  /** One read, and NEXT for it; the command if it is complete. */
  async #readControl(): Promise<boolean> {
    if (this.#control.unread === 0) return false;
    await this.#pause(this.#options.readMs);
    if (this.#gone !== undefined) return false;
    const bytes = this.#control.read(this.#missing());
    const next = Buffer.alloc(4);
    next.writeUInt32BE(bytes.length);
    this.#send(codes.NEXT, next);
    this.#message = Buffer.concat([this.#message, bytes]);
    if (this.#message.length < headerSize) return true;
    if (this.#message.readUInt32BE(4) < headerSize) {
      this.#end("the agent died of a control frame shorter than its header", this.#panicMs);
      return false;
    }
    if (this.#missing() > 0) return true;
    const [code, payload] = [this.#message.readUInt32BE(0), this.#message.subarray(headerSize)];
    this.#message = Buffer.alloc(0);
    this.received.push({ code, payload });
    await this.#answer(code, payload);
    return true;
  }

  /** How much of the current command, header first, has not been read. */
  #missing(): number {
    const whole =
      this.#message.length < headerSize
        ? headerSize
        : Math.max(headerSize, this.#message.readUInt32BE(4));
    return whole - this.#message.length;
  }

  async #answer(code: number, payload: Buffer): Promise<void> {
    let refused: Refused | undefined;
    try {
      const ignored = this.#options.ignores?.includes(code) === true;
      this.#send(codes.ACK, ignored ? Buffer.alloc(0) : await this.#guest.handle(code, payload));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refused = error;
      this.#send(codes.ERROR, refused.reply);
    }
    if (code === codes.DESTROYPOD || (code === codes.STARTPOD && refused))
      this.#end("powered off", this.#options.powerOffMs ?? 50);
  }

  /** One frame of the tty channel. */
  #readTty(): boolean {
    if (this.#tty.unread < ttyHeaderSize) return false;
    const length = this.#tty.peek(ttyHeaderSize).readUInt32BE(8);
    if (length > ttyFrameLimit || length < ttyHeaderSize) {
      this.#end(`kernel panic after a tty frame of ${length} bytes`, this.#panicMs);
      return false;
    }
    if (this.#tty.unread < length) return false;
    const frame = this.#tty.read(length);
    const seq = frame.readBigUInt64BE();
    const process = this.#guest.processes.find(
      ({ spec, status }) => spec.stdio === seq && status === undefined,
    );
    const data = frame.subarray(ttyHeaderSize);
    if (!process) this.#sendTty(seq, Buffer.alloc(0));
    else if (data.length === 0) process.stdin.end();
    else process.stdin.offer(data);
    return true;
  }

  #later(what: () => void): void {
    this.#happened.push(what);
    this.#wake();
  }

  #happen(): boolean {
    const what = this.#happened.shift();
    what?.();
    return what !== undefined;
  }

  #output(seq: bigint, data: Buffer): void {
    const most = ttyFrameLimit - ttyHeaderSize;
    for (let at = 0; at < data.length; at += most) this.#sendTty(seq, data.subarray(at, at + most));
  }

  #exit({ spec }: GuestProcess, status: number): void {
    this.#sendTty(spec.stdio, Buffer.alloc(0));
    const event = { container: spec.container, process: spec.id, event: "finished", status };
    this.#send(codes.PROCESSASYNCEVENT, Buffer.from(JSON.stringify(event)));
  }

  #send(code: number, payload: Buffer = Buffer.alloc(0)): void {
    const header = Buffer.alloc(headerSize);
    header.writeUInt32BE(code, 0);
    header.writeUInt32BE(headerSize + payload.length, 4);
    this.#control.write(Buffer.concat([header, payload]));
  }

  #sendTty(seq: bigint, data: Buffer): void {
    const header = Buffer.alloc(ttyHeaderSize);
    header.writeBigUInt64BE(seq);
    header.writeUInt32BE(ttyHeaderSize + data.length, 8);
    this.#tty.write(Buffer.concat([header, data]));
  }

  get #panicMs(): number {
    return this.#options.panicMs ?? 1000;
  }

  /** The guest does nothing any more, and after `ms` QEMU is gone with its sockets. */
  #end(why: string, ms: number): void {
    this.#gone = why;
    void (async () => {
      await this.#pause(ms);
      await this.close();
    })();
  }

  async #pause(ms: number | undefined): Promise<void> {
    if (ms === undefined) return;
    try {
      await sleep(ms, undefined, { signal: this.#closing.signal });
    } catch {
      // Closed meanwhile; whoever waited finds that the guest is gone.
    }
  }
}
