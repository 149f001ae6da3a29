import { join } from "node:path";
import { tmpdir } from "node:os";
import { mkdtempSync } from "node:fs";
import { PodnetError } from "../../../../core/errors.ts";
import { Queue } from "../../../../core/queue.ts";
import type { Host } from "../../../../daemon/pods/lifecycle/host.ts";
import type { ExecEvent, ExecSession, Guest } from "../../../../guest-init/channel/guest.ts";
import type {
  MainProcessAccess,
  MainProcessListener,
} from "../../../../guest-init/channel/main-process.ts";
import type { MainProcessSpec, ProcessEnd } from "../../../../guest-init/protocol/main-process.ts";
import type { Node } from "../fixtures/node.ts";

interface Program {
  readonly args: readonly string[];
  readonly user: string;
  /** Empty: none. */
  readonly container: string;
}

/** What the agent of a guest would do, as far as programs go: each word of it is a test's. */
export interface PlayedGuest {
  /** Main processes that were started, in order. */
  readonly started: MainProcessSpec[];
  /** What came in to the main process, and the signals and sizes it got. */
  readonly got: string[];
  /** Programs that were started, in order. */
  readonly programs: readonly Program[];
  /** The main process writes. */
  say(text: string, stderr?: boolean): void;
  end(end: ProcessEnd): void;
  /** The next start is refused. */
  refuses: boolean;
  /** Signal 15 ends the main process. */
  obeys: boolean;
}

/**
 * Has the guest of a played host run programs: `cat`, `fail CODE`, `both`, `flood` and `sleep`.
 */
export function playGuest(node: Node): PlayedGuest {
  let listener: MainProcessListener | undefined;
  let at = 0;
  const early: { readonly text: string; readonly stderr: boolean }[] = [];
  const programs: Program[] = [];
  const played: PlayedGuest = {
    started: [],
    got: [],
    programs,
    refuses: false,
    obeys: false,
    say(text, stderr = false) {
      const data = Buffer.from(text);
      if (listener === undefined) early.push({ text, stderr });
      else listener.output(stderr, data, at);
      at += data.length;
    },
    end: (end) => listener?.ended(end),
  };
  const note = (what: string): Promise<void> => {
    played.got.push(what);
    return Promise.resolve();
  };
  const access: MainProcessAccess = {
    at: 0,
    write: (data) => note(Buffer.from(data).toString()),
    closeInput: () => note("(end)"),
    async signal(signal) {
      await note(`signal ${signal}`);
      if (played.obeys && signal === 15) played.end({ signal });
    },
    resize: (rows, columns) => note(`${rows}x${columns}`),
  };
  const guest: Partial<Guest> = {
    startMain(spec) {
      if (played.refuses)
        return Promise.reject(
          new PodnetError("AGENT_REFUSED", "There is no such file", {
            field: "args[0]",
            details: { errno: "ENOENT" },
          }),
        );
      played.started.push(spec);
      return Promise.resolve();
    },
    followMain(_id, _from, next) {
      listener = next;
      at = 0;
      for (const { text, stderr } of early.splice(0)) played.say(text, stderr);
      return Promise.resolve(access);
    },
    exec(request, signal) {
      const { args, user, container = "" } = request;
      programs.push({ args, user: user?.user ?? "", container });
      return Promise.resolve(session(request.args, signal));
    },
  };
  Object.assign(node.host.openGuest({} as Parameters<Host["openGuest"]>[0]), guest);
  const { records } = node;
  const processes: Host["processes"] = {
    logsDir: mkdtempSync(join(tmpdir(), "podnet-logs-")),
    starts: (plan) => records.processes.starts(plan),
    ended: (plan, end) => records.processes.set(plan, { end, endedMs: Date.now() }, "ended"),
  };
  Object.assign(node.host, { processes });
  return played;
}

let sessions = 0;

function session(args: readonly string[], signal: AbortSignal): ExecSession {
  const events = new Queue<ExecEvent>();
  const exit = (code: number): void => {
    events.push({ kind: "exit", code });
    events.end();
  };
  signal.addEventListener("abort", () => events.end(), { once: true });
  const [program, first = ""] = args;
  if (program === "fail") exit(Number(first));
  if (program === "both") {
    events.push({ kind: "stdout", data: Buffer.from("out") });
    events.push({ kind: "stderr", data: Buffer.from("err") });
    exit(0);
  }
  if (program === "flood")
    for (let i = 0; i < 256; i++) events.push({ kind: "stdout", data: Buffer.alloc(65_536) });
  return {
    id: (++sessions).toString(16).padStart(16, "0"),
    events: (async function* () {
      yield* events;
      signal.throwIfAborted();
    })(),
    write(data) {
      if (program === "cat") events.push({ kind: "stdout", data });
      return Promise.resolve();
    },
    closeInput() {
      if (program === "cat") exit(0);
      return Promise.resolve();
    },
    resize: () => Promise.resolve(),
    signal: () => Promise.resolve(),
  };
}
