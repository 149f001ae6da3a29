import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { perform } from "../../../core/effect.ts";
import { linesOf } from "../../pods/process/log-lines.ts";
import type { Output } from "../../api/process/process-stream.ts";

/** A log is two files of so many bytes, and of what comes until podnetd looks at them. */
const mostBytes = 8 * 1024 * 1024;

/** Where the logs of containers are: a directory for each pod. */
export class LogFiles {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
    perform("file", "make directory of logs", () =>
      mkdirSync(root, { recursive: true, mode: 0o700 }),
    );
  }

  of(podId: string): string {
    return join(this.root, podId);
  }

  /** The lines that are kept, the earliest first. */
  read(file: string): Output[] {
    return [earlier(file), file].flatMap((path) =>
      existsSync(path)
        ? [...linesOf(perform("file", "read log", () => readFileSync(path)))].flatMap((line) =>
            line.kind === "output" ? [line] : [],
          )
        : [],
    );
  }

  /** Makes room where a log has become long. Answers whether it goes on in a new file. */
  rotate(file: string): boolean {
    if (!existsSync(file) || statSync(file).size <= mostBytes) return false;
    perform("file", "rotate log", () => renameSync(file, earlier(file)));
    return true;
  }

  remove(file: string): void {
    perform("file", "remove log", () => {
      for (const path of [file, earlier(file)]) rmSync(path, { force: true });
    });
  }

  /** Removes the logs of pods that are gone. */
  sweep(pods: ReadonlySet<string>): void {
    for (const podId of readdirSync(this.root))
      if (!pods.has(podId))
        perform("file", "remove logs", () =>
          rmSync(this.of(podId), { recursive: true, force: true }),
        );
  }
}

const earlier = (file: string): string => `${file}.1`;
