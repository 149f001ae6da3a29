import type { ProgramOptions, ProgramResult } from "./run-program.ts";

/** Writes standard input to a file next to the one that is meant, and renames it when complete. */
const writeWhole = `set -e
part="$1.part-$$"
trap 'rm -f "$part"' EXIT
cat >"$part"
chmod "$2" "$part"
mv "$part" "$1"
trap - EXIT`;

/** Where programs run. */
interface Programs {
  exec(program: readonly string[], options: ProgramOptions): Promise<ProgramResult>;
}

/** Files of a pod. The pod needs the programs `sh`, `cat`, `chmod` and `mv`. */
export class Files {
  readonly #pod: Programs;

  constructor(pod: Programs) {
    this.#pod = pod;
  }

  /** The bytes of a file. Throws `COMMAND_FAILED` when it cannot be read. */
  async read(
    path: string,
    { maxOutput }: Pick<ProgramOptions, "maxOutput"> = {},
  ): Promise<Uint8Array> {
    const { stdoutBytes } = await this.#pod.exec(["cat", "--", path], {
      check: true,
      ...(maxOutput === undefined ? {} : { maxOutput }),
    });
    return stdoutBytes;
  }

  /** A file as UTF-8. */
  async readText(path: string): Promise<string> {
    return new TextDecoder().decode(await this.read(path));
  }

  /**
   * Writes a file, whole or not at all. `mode` is octal as chmod takes it: `644` when left out.
   * Throws `COMMAND_FAILED`.
   */
  async write(
    path: string,
    contents: NonNullable<ProgramOptions["stdin"]>,
    { mode = "644" }: { readonly mode?: string } = {},
  ): Promise<void> {
    await this.#pod.exec(["sh", "-c", writeWhole, "sh", path, mode], {
      stdin: contents,
      check: true,
    });
  }
}
