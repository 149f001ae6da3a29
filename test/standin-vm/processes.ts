import { PodnetError } from "../../core/errors.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { agentContainer } from "../../guest-init/protocol/codes.ts";
import {
  type ProcessSpec,
  encodeProcessEvent,
  parseExecCmd,
  parseSignalProcess,
} from "../../guest-init/protocol/process-messages.ts";

export interface ProcessEvents {
  /** Output of a process; empty at its end. */
  output(stream: bigint, data: Uint8Array): void;
  /** A process has ended: the payload of PROCESSASYNCEVENT. */
  ended(event: Uint8Array): void;
}

interface Process {
  readonly spec: ProcessSpec;
  input(data: Uint8Array): void;
  exit(status: number): void;
}

/** Programs a stand-in has: true, false, echo, cat, sleep and `exit CODE`. */
export class Processes {
  readonly #events: ProcessEvents;
  readonly #running = new Map<string, Process>();

  constructor(events: ProcessEvents) {
    this.#events = events;
  }

  exec(payload: Uint8Array): void {
    const { container, process: spec } = parseExecCmd(payload);
    if (container !== agentContainer) throw noSuch("container");
    const [program = "", ...args] = spec.args;
    const begin = programs[program.replace(/^.*\//, "")] ?? missing;
    const key = spec.id;
    const process: Process = {
      spec,
      input: () => {},
      exit: (status) => {
        if (!this.#running.delete(key)) return;
        this.#events.output(spec.stdio, new Uint8Array());
        this.#events.ended(
          encodeProcessEvent({ container, process: spec.id, event: "finished", status }),
        );
      },
    };
    this.#running.set(key, process);
    // After the answer to EXECCMD.
    const output = (data: Uint8Array): void => this.#events.output(spec.stdio, data);
    const complain = (text: string): void =>
      this.#events.output(spec.terminal ? spec.stdio : spec.stderr, encodeUtf8(text));
    setImmediate(() => begin(process, args, output, complain));
  }

  signal(payload: Uint8Array): void {
    const { container, process: id, signal } = parseSignalProcess(payload);
    if (container !== agentContainer) throw noSuch("container");
    const process = this.#running.get(id);
    if (process === undefined) throw noSuch("process");
    setImmediate(() => process.exit(128 + signal));
  }

  input(stream: bigint, data: Uint8Array): void {
    for (const process of this.#running.values())
      if (process.spec.stdio === stream) process.input(data);
  }

  /** The machine starts anew. */
  forget(): void {
    this.#running.clear();
  }
}

type Program = (
  process: Process,
  args: readonly string[],
  output: (data: Uint8Array) => void,
  complain: (text: string) => void,
) => void;

/** What the agent does for a program that is not there. */
const missing: Program = (process, _, __, complain) => {
  complain(`podnet-guest: ${process.spec.args[0]}: No such file or directory\n`);
  process.exit(127);
};

const programs: Readonly<Record<string, Program>> = {
  true: (process) => process.exit(0),
  false: (process) => process.exit(1),
  exit: (process, [code = "0"]) => process.exit(Number(code)),
  sleep: (process, [seconds = "0"]) => {
    setTimeout(() => process.exit(0), Number(seconds) * 1000).unref();
  },
  echo: (process, args, output) => {
    output(encodeUtf8(`${args.join(" ")}\n`));
    process.exit(0);
  },
  cat: (process, _, output) => {
    process.input = (data) => (data.length === 0 ? process.exit(0) : output(data));
  },
};

export const noSuch = (what: "container" | "process"): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `no such ${what}`);
