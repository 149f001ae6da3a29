import { mkdtemp, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import {
  type HyperstartOptions,
  type HyperstartPeer,
  startHyperstartPeer,
} from "../../peers/hyperstart.ts";

export const ACK = 9;
export const ERROR = 10;
export const NEXT = 14;
export const eth0 = { name: "eth0", mac: "52:54:00:11:22:33" };
export const configured = { ...eth0, addresses: ["192.168.123.2/24"] };
export const byDefault = { dest: "default", gateway: "192.168.123.1" };

export interface Message {
  readonly code: number;
  readonly data: Buffer;
}

export interface Frame {
  readonly seq: bigint;
  readonly data: string;
}

/** One of the two sockets, as bytes. */
export class Line {
  readonly socket: Socket;
  bytes = Buffer.alloc(0);
  closed = false;
  #changed = Promise.withResolvers<void>();

  constructor(path: string) {
    this.socket = connect(path);
    this.socket.on("data", (data) => {
      this.bytes = Buffer.concat([this.bytes, data]);
      this.#changed.resolve();
    });
    this.socket.on("error", () => this.socket.destroy());
    this.socket.on("close", () => {
      this.closed = true;
      this.#changed.resolve();
    });
  }

  async take(count: number): Promise<Buffer> {
    while (this.bytes.length < count) {
      if (this.closed) throw new Error(`Closed; ${this.bytes.length} of ${count} bytes came`);
      await this.#changed.promise;
      this.#changed = Promise.withResolvers();
    }
    const taken = this.bytes.subarray(0, count);
    this.bytes = this.bytes.subarray(count);
    return taken;
  }
}

/** A host that knows no more than the framing. */
export class Host {
  readonly control: Line;
  readonly tty: Line;
  /** NEXT values since the last reply. */
  nexts: number[] = [];

  constructor(controlPath: string, ttyPath: string) {
    this.control = new Line(controlPath);
    this.tty = new Line(ttyPath);
  }

  write(hex: string): void {
    this.control.socket.write(Buffer.from(hex.replaceAll(" ", ""), "hex"));
  }

  async message(): Promise<Message> {
    const header = await this.control.take(8);
    const data = await this.control.take(header.readUInt32BE(4) - 8);
    return { code: header.readUInt32BE(0), data };
  }

  /** The next message that is not NEXT. */
  async reply(): Promise<Message> {
    for (;;) {
      const message = await this.message();
      if (message.code !== NEXT) return message;
      this.nexts.push(message.data.readUInt32BE(0));
    }
  }

  send(code: number, payload: string | object = ""): void {
    this.control.socket.write(command(code, payload));
  }

  /**
   * Sends a command and returns what became of it: "ACK", "ERROR", with the reply's data if it has
   * any.
   */
  async ask(code: number, payload: string | object = ""): Promise<string> {
    this.nexts = [];
    this.send(code, payload);
    const { code: reply, data } = await this.reply();
    const name = reply === ACK ? "ACK" : reply === ERROR ? "ERROR" : `${reply}`;
    return data.length === 0 ? name : `${name} ${data.toString("latin1")}`;
  }

  frame(seq: bigint, data: Buffer | string): void {
    const body = Buffer.from(data);
    const header = Buffer.alloc(12);
    header.writeBigUInt64BE(seq);
    header.writeUInt32BE(12 + body.length, 8);
    this.tty.socket.write(Buffer.concat([header, body]));
  }

  async ttyFrame(): Promise<Frame> {
    const header = await this.tty.take(12);
    const data = await this.tty.take(header.readUInt32BE(8) - 12);
    return { seq: header.readBigUInt64BE(), data: data.toString() };
  }

  /** Runs a command in the agent's namespaces to its end. */
  async run(
    ...args: readonly string[]
  ): Promise<{ output: string; errors: string; status: number }> {
    const answer = await this.ask(6, exec(args));
    if (answer !== "ACK") throw new Error(answer);
    let [output, errors] = ["", ""];
    for (;;) {
      const { seq, data } = await this.ttyFrame();
      if (data === "") break;
      if (seq === 1n) output += data;
      else errors += data;
    }
    const { data } = await this.reply();
    return { output, errors, status: JSON.parse(data.toString()).status as number };
  }

  close(): void {
    this.control.socket.destroy();
    this.tty.socket.destroy();
  }
}

export function command(code: number, payload: string | object = ""): Buffer {
  const body = Buffer.from(typeof payload === "string" ? payload : JSON.stringify(payload));
  const header = Buffer.alloc(8);
  header.writeUInt32BE(code, 0);
  header.writeUInt32BE(8 + body.length, 4);
  return Buffer.concat([header, body]);
}

export function exec(
  args: readonly string[],
  process: object = {},
  container = "hyperstart",
): object {
  return {
    container,
    process: { id: "p", terminal: false, stdio: 1, stderr: 2, args, workdir: "/", ...process },
  };
}

export interface Setup {
  readonly peer: HyperstartPeer;
  readonly host: Host;
  readonly paths: { readonly controlPath: string; readonly ttyPath: string };
}

export async function listen(
  t: ExecutionContext,
  options: Partial<HyperstartOptions>,
): Promise<Setup["paths"] & { peer: HyperstartPeer }> {
  const folder = await mkdtemp(join(tmpdir(), "podnet-hyperstart-"));
  const paths = { controlPath: join(folder, "hyper.sock"), ttyPath: join(folder, "tty.sock") };
  const peer = await startHyperstartPeer({ ...paths, ...options });
  t.teardown(async () => {
    await peer.close();
    await rm(folder, { recursive: true });
  });
  return { ...paths, peer };
}

/** A peer whose READY has been read. */
export async function setUp(
  t: ExecutionContext,
  options: Partial<HyperstartOptions> = {},
): Promise<Setup> {
  const { peer, ...paths } = await listen(t, options);
  const host = new Host(paths.controlPath, paths.ttyPath);
  t.teardown(() => host.close());
  if (options.ready !== false) t.is((await host.message()).code, 8);
  return { peer, host, paths };
}
