import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { type Server, type Socket, createServer } from "node:net";
import path from "node:path";
import { command } from "../../guest-init/protocol/codes.ts";
import { CtlDecoder, type CtlFrame, encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import {
  type ProcessEvent,
  parseProcessEvent,
} from "../../guest-init/protocol/process-messages.ts";
import { encodeJson } from "../../guest-init/protocol/fields.ts";
import { parseNext } from "../../guest-init/protocol/replies.ts";
import { TtyDecoder, encodeTtyFrame } from "../../guest-init/protocol/tty-frame.ts";

export const agentProgram = path.resolve(import.meta.dirname, "../../build/agent/podnet-guest");

/** What one command brought: ACK or ERROR, its payload, and the NEXTs on the way. */
export interface Answer {
  readonly code: number;
  readonly payload: Buffer;
  readonly next: readonly number[];
}

/** Items that come in, and whoever waits for them. */
class Inbox<T> {
  readonly #items: T[] = [];
  #wake: (() => void) | undefined;

  put(item: T): void {
    this.#items.push(item);
    this.#wake?.();
  }

  async take(): Promise<T> {
    for (;;) {
      if (this.#items.length > 0) return this.#items.shift() as T;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** One finished process: all it wrote, and its PROCESSASYNCEVENT. */
export interface Finished {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly event: ProcessEvent;
}

/**
 * The bare protocol towards an agent, wherever it runs: what is sent and received is the test's to
 * choose.
 */
export class AgentPeer {
  control: Socket;
  tty: Socket;
  readonly frames = new Inbox<CtlFrame>();
  readonly #streams = new Map<bigint, Buffer[]>();
  readonly #ended = new Map<bigint, Inbox<undefined>>();
  readonly #ends = new Map<string, Inbox<ProcessEvent>>();
  /** Largest tty frame seen, header included. */
  largestFrame = 0;
  #stream = 0;

  constructor(control: Socket, tty: Socket) {
    this.control = control;
    this.tty = tty;
    this.#receive();
  }

  /** Waits for READY. */
  async ready(): Promise<void> {
    const { code } = await this.frames.take();
    if (code !== command.ready) throw new Error(`The agent began with ${code}`);
  }

  protected hear(control: Socket): void {
    const decoder = new CtlDecoder();
    control.on("data", (data) => {
      for (const item of decoder.push(data)) if (item.kind === "frame") this.#sort(item);
    });
  }

  #receive(): void {
    this.hear(this.control);
    this.hearTty(this.tty);
  }

  protected hearTty(socket: Socket): void {
    const tty = new TtyDecoder();
    socket.on("data", (data) => {
      for (const item of tty.push(data)) {
        if (item.kind !== "frame") continue;
        this.largestFrame = Math.max(this.largestFrame, item.data.length + 12);
        const parts = this.#streams.get(item.stream) ?? [];
        this.#streams.set(item.stream, parts);
        if (item.data.length > 0) parts.push(Buffer.from(item.data));
        else this.#endOfStream(item.stream).put(undefined);
      }
    });
  }

  /** Answers are in order; ends of processes come in between whenever they happen. */
  #sort(frame: CtlFrame): void {
    if (frame.code !== command.processAsyncEvent) {
      this.frames.put(frame);
      return;
    }
    const event = parseProcessEvent(frame.payload);
    this.#endOf(event.process).put(event);
  }

  #endOfStream(stream: bigint): Inbox<undefined> {
    const inbox = this.#ended.get(stream) ?? new Inbox<undefined>();
    this.#ended.set(stream, inbox);
    return inbox;
  }

  #endOf(id: string): Inbox<ProcessEvent> {
    const inbox = this.#ends.get(id) ?? new Inbox<ProcessEvent>();
    this.#ends.set(id, inbox);
    return inbox;
  }

  /** One command and its answer. A payload that is not bytes is sent as JSON. */
  async ask(code: number, payload: unknown = new Uint8Array(0)): Promise<Answer> {
    const bytes = payload instanceof Uint8Array ? payload : encodeJson(payload);
    this.control.write(encodeCtlFrame(code, bytes));
    return await this.answer();
  }

  /** The next ACK or ERROR. */
  async answer(): Promise<Answer> {
    const next: number[] = [];
    for (;;) {
      const frame = await this.frames.take();
      if (frame.code === command.next) next.push(parseNext(frame.payload));
      else return { code: frame.code, payload: Buffer.from(frame.payload), next };
    }
  }

  /** Asks, and fails unless it is acknowledged. */
  async ack(code: number, payload?: unknown): Promise<Buffer> {
    const answer = await this.ask(code, payload);
    if (answer.code !== command.ack)
      throw new Error(`Command ${code} was refused: ${answer.payload.toString()}`);
    return answer.payload;
  }

  /** Starts a process; `input` is written and ended. */
  async begin(
    args: readonly string[],
    more: object = {},
  ): Promise<{ stdio: bigint; stderr: bigint }> {
    const stdio = ++this.#stream;
    const stderr = ++this.#stream;
    const spec = { id: `p${stdio}`, terminal: false, stdio, stderr, args, workdir: "/", ...more };
    await this.ack(command.execCmd, { container: "hyperstart", process: spec });
    return { stdio: BigInt(stdio), stderr: BigInt(stderr) };
  }

  write(stream: bigint, data: Uint8Array): void {
    for (let at = 0; at < data.length; at += 4084)
      this.tty.write(encodeTtyFrame(stream, data.subarray(at, at + 4084)));
  }

  end(stream: bigint): void {
    this.tty.write(encodeTtyFrame(stream));
  }

  /** Waits for a process's end: the empty frame on its stdio, and the event. */
  async finished(
    { stdio, stderr }: { stdio: bigint; stderr: bigint },
    id = `p${stdio}`,
  ): Promise<Finished> {
    await this.#endOfStream(stdio).take();
    const event = await this.ended(id);
    const text = (stream: bigint): Buffer => Buffer.concat(this.#streams.get(stream) ?? []);
    return { stdout: text(stdio), stderr: text(stderr), event };
  }

  /** Waits until a process has written this. */
  async output(stream: bigint, text: string): Promise<void> {
    while (!Buffer.concat(this.#streams.get(stream) ?? []).includes(text))
      await once(this.tty, "data");
  }

  /** Waits for the event of a process's end alone: its stream may have been another host's. */
  ended(id: string): Promise<ProcessEvent> {
    return this.#endOf(id).take();
  }

  async run(args: readonly string[], more: object = {}, input?: Uint8Array): Promise<Finished> {
    const streams = await this.begin(args, more);
    const end = this.finished(streams);
    if (input !== undefined) this.write(streams.stdio, input);
    this.end(streams.stdio);
    return await end;
  }

  hangUp(): void {
    this.control.destroy();
    this.tty.destroy();
  }
}

/**
 * The agent as a plain process in this test's network namespace; /etc, /tmp and the hostname are
 * its own.
 */
export class AgentHost extends AgentPeer implements AsyncDisposable {
  readonly process: ChildProcess;
  readonly #directory: string;
  readonly #servers: readonly Server[];

  private constructor(
    directory: string,
    child: ChildProcess,
    servers: readonly Server[],
    [control, tty]: [Socket, Socket],
  ) {
    super(control, tty);
    this.#directory = directory;
    this.process = child;
    this.#servers = servers;
  }

  /** Starts the agent and takes its READY. */
  static async start(): Promise<AgentHost> {
    // On the sandbox's own /run, the program too: the agent's /tmp is hidden, and a checkout may be
    // in it.
    const directory = mkdtempSync("/run/agent-");
    const program = path.join(directory, "podnet-guest");
    copyFileSync(agentProgram, program);
    const servers = await Promise.all(
      ["control", "tty"].map(async (name) => {
        const server = createServer();
        server.listen(path.join(directory, name));
        await once(server, "listening");
        return server;
      }),
    );
    const connected = servers.map(
      async (server) => (await once(server, "connection"))[0] as Socket,
    );
    const own = 'mount -t tmpfs tmpfs /etc && mount -t tmpfs tmpfs /tmp && exec "$@"';
    const agent = [program, "--channel", `${directory}/control`, "--tty", `${directory}/tty`];
    const child = spawn("unshare", ["--uts", "--mount", "sh", "-c", own, "sh", ...agent], {
      stdio: ["ignore", "inherit", "inherit"],
    });
    const sockets = (await Promise.all(connected)) as [Socket, Socket];
    const host = new AgentHost(directory, child, servers, sockets);
    await host.ready();
    return host;
  }

  /** Hangs up the control channel and takes the agent's next connection, with its READY. */
  async comeAgain(): Promise<void> {
    const connection = once(this.#servers[0] as Server, "connection");
    this.control.destroy();
    const [control] = (await connection) as [Socket];
    this.control = control;
    this.hear(control);
    await this.ready();
  }

  /** Hangs up the tty channel and takes the agent's next connection. */
  async ttyAgain(): Promise<void> {
    const connection = once(this.#servers[1] as Server, "connection");
    this.tty.destroy();
    const [tty] = (await connection) as [Socket];
    this.tty = tty;
    this.hearTty(tty);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // First: an agent that ends before it has read the last frame resets the connection.
    this.hangUp();
    const exited = this.process.exitCode === null ? once(this.process, "exit") : undefined;
    this.process.kill("SIGTERM");
    await exited;
    for (const server of this.#servers) server.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
