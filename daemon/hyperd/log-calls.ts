import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { invalid } from "../../api/fields.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ServiceParts } from "../api/context.ts";
import { type Answer, errorText, plain } from "./answers.ts";
import type { Container } from "./containers/container.ts";
import { type KnownPods } from "./known-pods.ts";
import { type Call, parameter, type Route } from "./routes.ts";
import { encoded, type Written } from "./stdcopy.ts";

/** Which part of a container's output is wanted. */
export interface WantedLogs {
  readonly kinds: readonly string[];
  readonly follow: boolean;
  readonly timestamps: boolean;
  readonly since: string;
  readonly tail: string;
}

/** What containers have written. */
export const logCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/container/logs",
    parameters: ["container", "stdout", "stderr", "follow", "since", "tail", "timestamps"],
    role: "operator",
    answer(call): Answer {
      const wanted: WantedLogs = {
        kinds: ["stdout", "stderr"].filter((kind) => isSet(call, kind)),
        follow: isSet(call, "follow"),
        timestamps: isSet(call, "timestamps"),
        since: parameter(call, "since"),
        tail: parameter(call, "tail"),
      };
      if (wanted.kinds.length === 0)
        return plain("Bad parameters: you must choose at least one stream\n", 400);
      const container = known.container(parameter(call, "container"));
      return {
        status: 200,
        type: "application/vnd.docker.raw-stream",
        body: piecesOf(logsOf(container, wanted, parts, call.context.signal)),
      };
    },
  },
];

interface Line extends Written {
  readonly time: string;
}

/** docker's parameters say no by a word, or by being absent. */
const isSet = (call: Call, name: string): boolean =>
  !["", "0", "no", "false", "none"].includes(parameter(call, name).trim().toLowerCase());

/** The status has been sent: the output has the sentence of an error, as with hyperd. */
async function* piecesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* pieces;
  } catch (thrown) {
    if (!isPodnetError(thrown)) throw thrown;
    const data = Buffer.from(`Error running logs job: ${errorText(thrown)}`);
    yield encoded({ kind: "stderr", data }, false);
  }
}

/** A container's output, in frames unless it has a terminal. */
export function logsOf(
  container: Container,
  wanted: WantedLogs,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncIterable<Uint8Array> {
  const terminal = container.facts.terminal;
  const lines = linesOf(container, wanted, parts, signal);
  return (async function* () {
    for await (const line of lines)
      if (wanted.kinds.includes(line.kind)) yield encoded(line, terminal);
  })();
}

/** The kept lines, and with `follow` those that come until the container ends. */
function linesOf(
  container: Container,
  wanted: WantedLogs,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncIterable<Line> {
  const { timestamps: stamped, follow } = wanted;
  const process = follow && container.course.kind === "running" ? container.held() : undefined;
  // Attached before the log is read: the log has what comes meanwhile.
  const events = process?.attach(signal);
  const kept = container.kept({ latestStart: false, ...chosenOf(wanted) });
  return (async function* () {
    for (const { time, stderr, data } of kept)
      yield line(stamped, { kind: stderr ? "stderr" : "stdout", time, data });
    for await (const event of events ?? []) {
      if (event.kind === "end") return;
      yield line(stamped, { ...event, time: new Date(parts.host.clock.now()).toISOString() });
    }
    if (events !== undefined && !signal.aborted)
      throw new PodnetError("EVENTS_LOST", "The output was not read in time, or podnetd ends", {
        hint: "Ask again",
      });
  })();
}

/** A time as docker writes it, with nine digits of a second, stands before a line. */
const line = (stamped: boolean, { kind, time, data }: Line): Line => {
  const stamp = time.replace(/\.(\d+)Z$/, (_all, digits: string) => `.${digits.padEnd(9, "0")}Z`);
  return { kind, time, data: stamped ? Buffer.concat([Buffer.from(`${stamp} `), data]) : data };
};

/** Since when, and how many of the last lines; `all`, or what is no number, is all of them. */
function chosenOf({ since, tail }: Pick<WantedLogs, "since" | "tail">) {
  const ms = /^\d{1,12}(?:\.\d{1,9})?$/.test(since) ? Number(since) * 1000 : Date.parse(since);
  if (since !== "" && Number.isNaN(ms))
    throw invalid("since", `"${printable(since)}" is not a time`, "Write seconds since 1970");
  return {
    ...(since === "" ? {} : { since: timestampFromMs(Math.floor(ms)) }),
    ...(/^\d{1,9}$/.test(tail) ? { tailLines: Number(tail) } : {}),
  };
}
