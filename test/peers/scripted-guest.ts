import { mkdtempSync, rmSync } from "node:fs";
import { type Server, type Socket, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { apiVersion, command } from "../../guest-init/protocol/codes.ts";
import { CtlDecoder, encodeCtlFrame, encodeNext } from "../../guest-init/protocol/ctl-frame.ts";
import {
  encodeHelloReply,
  parseHelloRequest,
} from "../../guest-init/protocol/extension-messages.ts";
import { encodeVersion } from "../../guest-init/protocol/replies.ts";
import { TtyDecoder, encodeTtyFrame } from "../../guest-init/protocol/tty-frame.ts";

export interface ScriptedCommand {
  readonly code: number;
  readonly payload: Uint8Array;
}

/** Longest wait for something that is to come, milliseconds. */
const timeoutMs = 20_000;

/**
 * A guest that does as a test says, over real sockets, for faults no honest guest shows. It speaks
 * through our own codec and therefore proves nothing about hyperstart: `hyperstart.ts` does.
 */
export class ScriptedGuest implements AsyncDisposable {
  readonly channelPath: string;
  readonly ttyPath: string;
  /** Bytes of every read on the control channel, for looking at flow control. */
  readonly reads: number[] = [];
  /** Whether NEXT is said after each read, as hyperstart does. */
  sayNext = true;
  /** Its version, and which start of it this is. */
  agent = "scripted";
  epoch = "one";
  features: readonly string[] | undefined;
  readonly #directory: string;
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  /** Of waits that are under way. */
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #control = Promise.withResolvers<Socket>();
  readonly #tty = Promise.withResolvers<Socket>();
  readonly #commands: ScriptedCommand[] = [];
  readonly #input: { stream: bigint; data: Uint8Array }[] = [];
  #wake = Promise.withResolvers<void>();

  private constructor(directory: string) {
    this.#directory = directory;
    this.channelPath = path.join(directory, "channel.sock");
    this.ttyPath = path.join(directory, "tty.sock");
  }

  static async start(): Promise<ScriptedGuest> {
    const guest = new ScriptedGuest(mkdtempSync(path.join(tmpdir(), "podnet-peer-")));
    await guest.listen();
    return guest;
  }

  /** Made without its sockets, for the time before QEMU has made them. */
  static unbound(): ScriptedGuest {
    return new ScriptedGuest(mkdtempSync(path.join(tmpdir(), "podnet-peer-")));
  }

  async listen(): Promise<void> {
    await this.#listen(this.ttyPath, (socket) => {
      const decoder = new TtyDecoder();
      socket.on("data", (bytes) => {
        for (const item of decoder.push(bytes))
          if (item.kind === "frame") this.#input.push({ stream: item.stream, data: item.data });
        this.#woken();
      });
      this.#tty.resolve(socket);
    });
    await this.#listen(this.channelPath, (socket) => {
      const decoder = new CtlDecoder();
      socket.on("data", (bytes) => {
        this.reads.push(bytes.length);
        if (this.sayNext) socket.write(encodeNext(bytes.length));
        for (const item of decoder.push(bytes))
          if (item.kind === "frame") this.#commands.push(item);
        this.#woken();
      });
      this.#control.resolve(socket);
    });
  }

  /** Writes raw bytes on the control channel. */
  async raw(bytes: Uint8Array): Promise<void> {
    (await this.#control.promise).write(bytes);
  }

  async rawTty(bytes: Uint8Array): Promise<void> {
    (await this.#tty.promise).write(bytes);
  }

  async say(code: number, payload?: Uint8Array): Promise<void> {
    await this.raw(encodeCtlFrame(code, payload));
  }

  async output(stream: bigint, data?: Uint8Array): Promise<void> {
    await this.rawTty(encodeTtyFrame(stream, data));
  }

  /** The next command, in order. */
  async command(code?: number): Promise<ScriptedCommand> {
    for (;;) {
      const next = this.#commands.shift();
      if (next !== undefined) {
        if (code !== undefined && next.code !== code)
          throw new Error(`The host sent command ${next.code}, not ${code}`);
        return next;
      }
      await this.#more();
    }
  }

  /** The next frame on the tty channel. */
  async input(): Promise<{ stream: bigint; data: Uint8Array }> {
    for (;;) {
      const next = this.#input.shift();
      if (next !== undefined) return next;
      await this.#more();
    }
  }

  /** Commands that have come and were not taken. */
  get waiting(): number {
    return this.#commands.length;
  }

  /** Frames on the tty channel that have come and were not taken. */
  get inputWaiting(): number {
    return this.#input.length;
  }

  /** Answers as our agent or as a plain hyperstart does, until it has answered HELLO. */
  async introduce(as: "ours" | "hyperstart"): Promise<void> {
    for (;;) {
      const { code, payload } = await this.command();
      if (code === command.getVersion) await this.say(command.ack, encodeVersion(apiVersion));
      else if (code === command.ping) await this.say(command.ack);
      else if (code !== command.hello) throw new Error(`The host sent command ${code}`);
      else if (as === "hyperstart") return this.say(command.error);
      else {
        const { nonce } = parseHelloRequest(payload);
        const { agent, epoch, features } = this;
        const able = features === undefined ? {} : { features };
        const hello = { version: 1, agent, epoch, nonce, ...able };
        return this.say(command.ack, encodeHelloReply(hello));
      }
    }
  }

  async version(): Promise<void> {
    await this.command(command.getVersion);
    await this.say(command.ack, encodeVersion(apiVersion));
  }

  /** Hangs up both channels, as QEMU does when it ends. */
  hangUp(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.hangUp();
    // Nothing comes any more, and what waits for it must not keep the process.
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all(
      this.#servers.map((server) => new Promise((resolve) => server.close(resolve))),
    );
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #listen(socketPath: string, onSocket: (socket: Socket) => void): Promise<void> {
    const server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => this.#sockets.delete(socket));
      onSocket(socket);
    });
    this.#servers.push(server);
    await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  }

  /** Whatever is waited for in vain is a failure, and no test that hangs. */
  async #more(): Promise<void> {
    const late = Promise.withResolvers<never>();
    const error = new Error(`The host sent nothing more in ${timeoutMs} ms`);
    const timer = setTimeout(() => late.reject(error), timeoutMs);
    this.#timers.add(timer);
    await Promise.race([this.#wake.promise, late.promise]).finally(() => {
      clearTimeout(timer);
      this.#timers.delete(timer);
    });
  }

  #woken(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers<void>();
  }
}
