/**
 * What the doctor asks a host. Each answer is JSON, so that a report can keep it, and so that the
 * same checks judge a host of elsewhere by its answers (`recorded-host.ts`).
 */
export interface Host {
  /** The text of a file, cut at 1 MiB; null: there is none, or it may not be read. */
  read(path: string): Promise<string | null>;
  /** Opens a file for reading and writing. The error's name, such as `EACCES`; null: it opened. */
  openError(path: string): Promise<string | null>;
  /** null: there is no such file. */
  stat(path: string): Promise<FileFacts | null>;
  /** What is free where a path is; null: there is no such path. */
  room(path: string): Promise<{ readonly freeMib: number; readonly totalMib: number } | null>;
  /** Runs a program to its end, ten seconds at most; null: there is no such program. */
  run(argv: readonly string[]): Promise<Ran | null>;
  /** Connects by TCP. The error's name; null: it was accepted. */
  connectError(host: string, port: number): Promise<string | null>;
  /** Who asks, what time it is, and where the caller says that podnetd is. */
  self(): Promise<{
    readonly uid: number;
    readonly groups: readonly number[];
    readonly nowMs: number;
    readonly socket?: string;
  }>;
}

interface FileFacts {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly kind: "file" | "directory" | "socket" | "other";
}

interface Ran {
  /** null: it was ended, after its time or by a signal. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** All questions, by name. */
export const questions = [
  "read",
  "openError",
  "stat",
  "room",
  "run",
  "connectError",
  "self",
] as const satisfies readonly (keyof Host)[];
