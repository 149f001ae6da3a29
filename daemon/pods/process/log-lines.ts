/**
 * The lines of the log of a main process, in the format of Kubernetes' runtimes (CRI): time,
 * stream, `F` or `P` for a line that goes on, and the text. A line that begins with # is podnetd's
 * own: which start of the process the lines are of, and at which byte of its output.
 */
export type LogLine =
  | {
      readonly kind: "output";
      /** As in the log. */
      readonly time: string;
      readonly stderr: boolean;
      /** With its line feed, where it has one. */
      readonly data: Uint8Array;
    }
  | { readonly kind: "mark"; readonly run: number; readonly at: number };

const lineFeed = 10;

/** The lines that a piece of output becomes. */
export function encodeOutput(time: string, stderr: boolean, data: Uint8Array): Uint8Array {
  const parts: Uint8Array[] = [];
  const head = (full: boolean): Uint8Array =>
    Buffer.from(`${time} ${stderr ? "stderr" : "stdout"} ${full ? "F" : "P"} `);
  for (let from = 0; from < data.length; ) {
    const end = data.indexOf(lineFeed, from);
    if (end === -1) {
      parts.push(head(false), data.subarray(from), Uint8Array.of(lineFeed));
      break;
    }
    parts.push(head(true), data.subarray(from, end + 1));
    from = end + 1;
  }
  return Buffer.concat(parts);
}

export const encodeMark = (run: number, at: number): Uint8Array =>
  Buffer.from(`# podnet run=${run} at=${at}\n`);

const markPattern = /^# podnet run=(\d{1,15}) at=(\d{1,15})$/;
const headPattern = /^(\S{1,40}) (stdout|stderr) ([FP]) $/;
/** Longest head of a line. */
const headBytes = 60;

/** One line without its line feed; undefined when it is none of podnetd's. */
function decodeLine(line: Uint8Array): LogLine | undefined {
  const text = Buffer.from(line.subarray(0, headBytes)).toString("latin1");
  if (text.startsWith("#")) {
    const [, run, at] = markPattern.exec(text) ?? [];
    return run === undefined ? undefined : { kind: "mark", run: Number(run), at: Number(at) };
  }
  const third = nthSpace(text, 3);
  const [, time, stream, how] = headPattern.exec(text.slice(0, third + 1)) ?? [];
  if (time === undefined) return undefined;
  const rest = line.subarray(third + 1);
  const data = new Uint8Array(rest.length + (how === "F" ? 1 : 0));
  data.set(rest);
  if (how === "F") data[rest.length] = lineFeed;
  return { kind: "output", time, stderr: stream === "stderr", data };
}

function nthSpace(text: string, n: number): number {
  let at = -1;
  for (let i = 0; i < n; i++) {
    at = text.indexOf(" ", at + 1);
    if (at === -1) return text.length;
  }
  return at;
}

/** The complete lines of a part of a log. */
export function* linesOf(bytes: Uint8Array): Generator<LogLine> {
  for (let from = 0; from < bytes.length; ) {
    const end = bytes.indexOf(lineFeed, from);
    if (end === -1) return;
    const line = decodeLine(bytes.subarray(from, end));
    if (line !== undefined) yield line;
    from = end + 1;
  }
}
