import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Podnet } from "../../api/client.ts";
import type { ExecRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { usage } from "../usage.ts";
import type { Found } from "./endpoint.ts";

type Message = MessageInitShape<typeof ExecRequestSchema>;

/** A pod, and how long its caller waits. */
export interface Guest {
  readonly podnet: Podnet;
  readonly idOrName: string;
  readonly signal: AbortSignal;
  /** Instead of a minute: how long a program may neither send nor take anything, milliseconds. */
  readonly silenceMs?: number;
}

export interface GuestProgram {
  readonly args: readonly string[];
  /** Its standard input; empty if absent. */
  readonly input?: AsyncIterable<Uint8Array>;
  /** Takes what it writes, as fast as it can. */
  readonly output?: (data: Uint8Array) => Promise<void>;
  /** Its name in messages; its first argument by default. */
  readonly name?: string;
}

/** Most of a program's complaints that is kept. */
const mostSaid = 4096;
/** How long a program may neither send nor take anything, milliseconds. */
const silence = 60_000;
/** Most bytes of a report about a path, which has a few letters. */
const mostLooked = 64;

/** Waits for a guest that neither sends nor takes anything. */
class Silence implements Disposable {
  readonly #ms: number;
  readonly #late: (error: PodnetError) => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(ms: number, late: (error: PodnetError) => void) {
    this.#ms = ms;
    this.#late = late;
  }

  begin(): void {
    this.stop();
    const error = new PodnetError("AGENT_TIMEOUT", `The guest was silent for ${this.#ms} ms`, {
      hint: "Nothing was kept; see what the guest does: podnet exec",
    });
    this.#timer = setTimeout(() => this.#late(error), this.#ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  [Symbol.dispose](): void {
    this.stop();
  }
}

/**
 * Runs a program to its end. A failure on this host ends the program in the guest, and so does its
 * silence: `AGENT_TIMEOUT`.
 */
export async function runInGuest(
  { podnet, idOrName, signal, silenceMs = silence }: Guest,
  { args, input, output }: GuestProgram,
): Promise<{ readonly code: number; readonly said: string }> {
  const stop = new AbortController();
  using quiet = new Silence(silenceMs, (error) => stop.abort(error));
  async function* requests(): AsyncGenerator<Message> {
    yield { input: { case: "start", value: { idOrName, args: [...args] } } };
    try {
      for await (const value of input ?? []) {
        // It is the guest's turn until it has taken this; before, it was the caller's to bring it.
        quiet.begin();
        yield { input: { case: "stdin", value } };
        quiet.stop();
      }
      quiet.begin();
    } catch (thrown) {
      stop.abort(thrown);
      throw thrown;
    }
  }
  let said = "";
  const both = AbortSignal.any([signal, stop.signal]);
  try {
    for await (const answer of podnet.pods.exec(requests(), { signal: both })) {
      const event = answer.output;
      if (event.case === "stdout") {
        quiet.stop();
        await output?.(event.value);
        quiet.begin();
      } else if (event.case === "stderr" && said.length < mostSaid) {
        said += Buffer.from(event.value).toString();
      } else if (event.case === "exit") return { code: event.value.code, said: said.trim() };
    }
  } catch (thrown) {
    throw stop.signal.aborted ? stop.signal.reason : thrown;
  }
  throw new PodnetError("AGENT_DISCONNECTED", "The program's end was not reported", {
    hint: "See whether the pod still runs: podnet get",
  });
}

/** A program that has to succeed. */
export interface NeededProgram extends GuestProgram {
  /** The program's whole output, written once it has done everything: `output` is not called. */
  readonly lastWord?: string;
}

/** Runs a program that has to succeed. Throws `COMMAND_FAILED` with what it said. */
export async function mustRun(
  guest: Guest,
  { lastWord, ...program }: NeededProgram,
): Promise<void> {
  let last = "";
  const keep = async (data: Uint8Array): Promise<void> => {
    last = (last + Buffer.from(data).toString("latin1")).slice(-mostLooked);
  };
  const { code, said } = await runInGuest(
    guest,
    lastWord === undefined ? program : { ...program, output: keep },
  );
  const whole = lastWord === undefined || last.trim() === lastWord;
  if (code === 0 && whole) return;
  const [first = ""] = program.args;
  const { name = first } = program;
  const how = code === 0 ? "before it had done everything" : `with ${code}`;
  throw new PodnetError("COMMAND_FAILED", `"${name}" in the guest ended ${how}: ${said}`, {
    hint: "See what the guest says about it: podnet exec",
    details: { args: program.args.join(" "), exitCode: code, stderr: said },
  });
}

const words = { d: "directory", f: "file", a: "absent", o: "other", l: "link" } as const;
// One letter each for the path itself, its target, and its parent; then whether there is a tar
// program: busybox's shell has a tar of its own, other shells do not.
const look = `k() {
if [ -d "$1" ]; then echo d; elif [ -f "$1" ]; then echo f; elif [ -e "$1" ]; then echo o; elif [ -L "$1" ]; then echo l; else echo a; fi
}
if [ -L "$1" ]; then echo l; else k "$1"; fi
k "$1"
k "$2"
t=n
IFS=:
for d in $PATH; do [ -x "$d/tar" ] && t=t; done
echo $t`;

/** Kind of a path in a guest, as the guest reports it. */
export interface GuestPath {
  readonly itself: Found;
  readonly leadsTo: Found;
  readonly parent: Found;
  readonly hasTar: boolean;
}

/** Looks at a path in the guest. Throws `UNSUPPORTED` for a guest without a shell. */
export async function lookInGuest(guest: Guest, path: string, parent: string): Promise<GuestPath> {
  let text = "";
  const { code, said } = await runInGuest(guest, {
    args: ["sh", "-c", look, "sh", path, parent],
    output: async (data) => {
      text += Buffer.from(data).toString("latin1");
      if (text.length > mostLooked)
        throw new PodnetError("AGENT_PROTOCOL", `The guest's answer about "${path}" is too long`);
    },
  });
  const [, itself, leadsTo, above, tar] =
    /^([adflo])\n([adflo])\n([adflo])\n([tn])\n$/.exec(text) ?? [];
  if (code !== 0 || itself === undefined) {
    throw new PodnetError("UNSUPPORTED", `The guest has no shell to look at files: ${said}`, {
      hint: "Copying needs sh in the guest, and tar for more than a single file",
    });
  }
  const word = (letter: string | undefined): Found => words[letter as keyof typeof words];
  return {
    itself: word(itself),
    leadsTo: word(leadsTo),
    parent: word(above),
    hasTar: tar === "t",
  };
}

export const withoutTar = (what: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `The guest has no tar, and ${what} needs it`, {
    hint: "Put tar into the image (busybox has one), or copy single files",
  });

export const nothingThere = (path: string, where: "on this host" | "in the pod"): PodnetError =>
  usage(`"${path}" is not there ${where}`, "Name a file or a directory", "source");
