import type { Socket } from "node:net";
import { closeSync } from "node:fs";
import { descriptorOf } from "../../linux/sockets/unix-socket.ts";
import { checkArguments, isObject, type Json } from "./arguments.ts";
import type { Behaviour } from "./behaviour.ts";
import { Chardev } from "./chardev.ts";
import { type CommandContext, runCommand, version } from "./commands.ts";
import { JsonStream, type Parsed } from "./json-stream.ts";
import { noise } from "./noise.ts";
import { QmpError } from "./qmp-error.ts";
import { receive } from "./receive-rights.ts";

export interface MonitorOptions {
  readonly id: string;
  readonly path: string;
  /** The one podnetd speaks to: it alone misbehaves. */
  readonly behaviour: Behaviour;
  readonly context: Omit<CommandContext, "takeFd">;
  /** A command has come, before it is run. */
  readonly commandCame: (name: string) => void;
}

/** What no QEMU would say: a terminal's commands, a forged line of a log, the rest of a MiB. */
const illMessages = `\u001b]0;owned\u0007\r\n{"level":"error","msg":"forged"}\n\u202e${"\u001b[2J".repeat(1 << 18)}`;

/** One QMP monitor. */
export class Monitor {
  readonly chardev: Chardev;
  readonly #options: MonitorOptions;
  #fds: number[] = [];
  /** Whether whoever is connected has left capabilities negotiation. */
  #ready = false;

  constructor(options: MonitorOptions) {
    this.#options = options;
    this.chardev = new Chardev(options.id, options.path, {
      connected: (socket) => this.#connected(socket),
    });
  }

  event(name: string, data?: Json): void {
    if (!this.#ready) return;
    const now = Date.now() * 1000;
    const timestamp = { seconds: Math.floor(now / 1e6), microseconds: now % 1e6 };
    this.#say({ timestamp, event: name, ...(data === undefined ? {} : { data }) });
  }

  #connected(socket: Socket): void {
    const { behaviour } = this.#options;
    const stream = new JsonStream();
    this.#ready = false;
    const stop = receive(descriptorOf(socket) as number, {
      received: ({ bytes, fds }) => {
        // Descriptors that were not taken are replaced by later ones.
        if (fds.length > 0) for (const fd of this.#fds.splice(0, Infinity, ...fds)) closeSync(fd);
        for (const parsed of stream.push(bytes)) this.#obey(parsed);
      },
      ended: () => socket.destroy(),
    });
    socket.once("close", () => {
      this.#ready = false;
      stop();
    });
    if (behaviour.has("hangup")) socket.destroy();
    else if (behaviour.has("garbage")) this.chardev.send(noise(4096));
    else if (behaviour.has("huge")) this.#sayWithoutEnd();
    else if (!behaviour.has("mute")) this.#say({ QMP: { version, capabilities: ["oob"] } });
  }

  #obey(parsed: Parsed): void {
    const id = parsed.kind === "value" && isObject(parsed.value) ? parsed.value["id"] : undefined;
    const withId = id === undefined ? {} : { id };
    try {
      if (parsed.kind === "error") throw new QmpError(parsed.description);
      const { name, args } = commandOf(parsed.value);
      const { behaviour } = this.#options;
      this.#options.commandCame(name);
      if (behaviour.is("hang", name)) return;
      if (behaviour.is("refuse", name)) throw new QmpError(`No "${name}" today`);
      if (behaviour.is("ill-refuse", name)) {
        this.#say({ ...withId, error: { class: illMessages.slice(0, 200), desc: illMessages } });
        return;
      }
      const value = this.#run(name, args);
      this.#say({ return: value, ...withId });
      this.#misbehaveAfter(name);
    } catch (error) {
      if (!(error instanceof QmpError)) throw error;
      this.#say({ ...withId, error: { class: error.errorClass, desc: error.message } });
    }
  }

  #run(name: string, args: Json): unknown {
    if (name === "qmp_capabilities") return this.#negotiate(args);
    if (!this.#ready)
      throw new QmpError(
        "Expecting capabilities negotiation with 'qmp_capabilities'",
        "CommandNotFound",
      );
    return runCommand(name, args, {
      ...this.#options.context,
      takeFd: () => this.#fds.shift(),
    });
  }

  #negotiate(args: Json): unknown {
    if (this.#ready)
      throw new QmpError(
        "Capabilities negotiation is already complete, command ignored",
        "CommandNotFound",
      );
    checkArguments({ enable: "array?" }, args);
    const strange = ((args["enable"] as string[] | undefined) ?? []).find((one) => one !== "oob");
    if (strange !== undefined)
      throw new QmpError(`Parameter 'null' does not accept value '${strange}'`);
    this.#ready = true;
    return {};
  }

  /** `garbage-after:COMMAND` and its like: the answer is the last good thing said. */
  #misbehaveAfter(name: string): void {
    const { behaviour } = this.#options;
    if (behaviour.is("garbage-after", name)) this.chardev.send(noise(4096));
    if (behaviour.is("huge-after", name)) this.#sayWithoutEnd();
    if (behaviour.is("hangup-after", name))
      void this.chardev.flush().then(() => this.chardev.hangUp());
    if (behaviour.is("events", name))
      for (let n = 0; n < 100; n++) this.event("X_STANDIN_UNKNOWN", { n, deep: [{ a: [null] }] });
  }

  /** A line that never ends, as fast as it is read. */
  #sayWithoutEnd(): void {
    const more = (): void => {
      if (!this.chardev.connected) return;
      this.chardev.send("x".repeat(65_536));
      void this.chardev.flush().then(() => setImmediate(more));
    };
    more();
  }

  #say(message: Json): void {
    this.chardev.send(`${JSON.stringify(message)}\r\n`);
  }
}

/** Takes a message apart, complaining as QEMU's qmp_dispatch_check_obj does. */
function commandOf(message: unknown): { readonly name: string; readonly args: Json } {
  if (!isObject(message)) throw new QmpError("QMP input must be a JSON object");
  for (const [key, value] of Object.entries(message)) {
    if (key === "execute" && typeof value !== "string")
      throw new QmpError("QMP input member 'execute' must be a string");
    if (key === "arguments" && !isObject(value))
      throw new QmpError("QMP input member 'arguments' must be an object");
    if (!["execute", "arguments", "id"].includes(key))
      throw new QmpError(`QMP input member '${key}' is unexpected`);
  }
  const name = message["execute"];
  if (typeof name !== "string") throw new QmpError("QMP input lacks member 'execute'");
  return { name, args: (message["arguments"] ?? {}) as Json };
}
