import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { perform } from "../../../core/effect.ts";
import { type LogLine, encodeMark, encodeOutput, linesOf } from "./log-lines.ts";

/** A pod's log is two files of at most so many bytes, about. */
const fileBytes = 8 * 1024 * 1024;
/** Bytes of the file between two marks: so much is read to go on with a log. */
const markEvery = 64 * 1024;
/** The last mark is not further from the end: one piece of output, all empty lines, is between. */
const tailBytes = markEvery + 2 * 1024 * 1024;

const current = "main.log";
const earlier = "main.log.1";

/** The directory of a pod's log. */
export const logDirectory = (logsDir: string, podId: string): string => join(logsDir, podId);

/** Removes a pod's log. */
export function removeLog(directory: string): void {
  perform("file", "remove process log", () => {
    rmSync(directory, { recursive: true, force: true });
    try {
      rmdirSync(dirname(directory));
    } catch {
      // Other pods have logs in it, or nothing was there.
    }
  });
}

/** The lines that are kept of a pod's main process, the earliest first. */
export function readLog(directory: string): LogLine[] {
  return [earlier, current].flatMap((name) => {
    const path = join(directory, name);
    return existsSync(path) ? [...linesOf(readFileSync(path))] : [];
  });
}

/**
 * The log of one start of a main process, which podnetd appends to. A write that fails costs the
 * output it had, and nothing else.
 */
export class ProcessLog {
  readonly #directory: string;
  readonly #run: number;
  #fd: number;
  #size: number;
  #marked: number;
  #position: number;
  #lost = 0;
  /** Output was not written: the next mark says where the log goes on. */
  #broken = false;

  /** Goes on with the log of this start of the process, or begins it. Throws errors of files. */
  constructor(directory: string, run: number) {
    this.#directory = directory;
    this.#run = run;
    this.#fd = perform("file", "open process log", () => {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      return openSync(join(directory, current), "a+", 0o600);
    });
    const found = endOf(this.#fd);
    // A podnetd that was killed may have left a part of a line.
    if (found.size < fstatSync(this.#fd).size)
      perform("file", "cut process log", () => ftruncateSync(this.#fd, found.size));
    this.#size = found.size;
    this.#position = found.run === run ? found.at : 0;
    this.#marked = this.#size;
    this.#mark();
  }

  /** Bytes of the process's output that are in the log, or were lost on the way. */
  get position(): number {
    return this.#position;
  }

  /** Bytes of output that this podnetd could not write, or got no more. */
  get lost(): number {
    return this.#lost;
  }

  /** Writes output that begins at a position. Answers the bytes that this took of the log. */
  write(ms: number, stderr: boolean, data: Uint8Array, at: number): number {
    const gap = at - this.#position;
    this.#lost += Math.max(0, gap);
    this.#position = at + data.length;
    const bytes = encodeOutput(new Date(ms).toISOString(), stderr, data);
    try {
      if (this.#size + bytes.length > fileBytes && this.#size > 0) this.#rotate(at);
      else if (gap > 0 || this.#broken || this.#size - this.#marked >= markEvery) this.#mark(at);
      this.#append(bytes);
      this.#broken = false;
    } catch {
      this.#broken = true;
      this.#lost += data.length;
    }
    return bytes.length;
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }

  #rotate(at: number): void {
    perform("file", "rotate process log", () => {
      renameSync(join(this.#directory, current), join(this.#directory, earlier));
      const next = openSync(join(this.#directory, current), "a+", 0o600);
      closeSync(this.#fd);
      this.#fd = next;
    });
    this.#size = 0;
    this.#mark(at);
  }

  #mark(at = this.#position): void {
    this.#append(encodeMark(this.#run, at));
    this.#marked = this.#size;
  }

  #append(bytes: Uint8Array): void {
    const written = perform("file", "write process log", () => writeSync(this.#fd, bytes));
    this.#size += written;
    if (written === bytes.length) return;
    // A full disk takes a part: half a line would be taken for another.
    this.#size -= written;
    perform("file", "cut process log", () => ftruncateSync(this.#fd, this.#size));
    throw new Error("The log's file system is full");
  }
}

/** Where a log ends: the end of its last complete line, and what the last mark and it say. */
function endOf(fd: number): { readonly size: number; readonly run: number; readonly at: number } {
  const { size } = fstatSync(fd);
  const from = Math.max(0, size - tailBytes);
  const bytes = Buffer.alloc(size - from);
  readSync(fd, bytes, 0, bytes.length, from);
  const end = bytes.lastIndexOf(10) + 1;
  let run = 0;
  let at = 0;
  // The end of a line could be taken for a mark.
  const first = from === 0 ? 0 : bytes.indexOf(10) + 1;
  for (const line of linesOf(bytes.subarray(first, end))) {
    if (line.kind === "mark") ({ run, at } = line);
    else at += line.data.length;
  }
  return { size: from + end, run, at };
}
