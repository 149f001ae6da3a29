import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Podnet } from "../api/client.ts";
import type { ExecRequestSchema } from "../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../core/errors.ts";

export interface ProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Working directory, absolute; `/` when left out. */
  readonly workdir?: string;
  /** Standard input; empty when left out. */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>;
  readonly signal?: AbortSignal;
  /** Most bytes of standard output, and of standard error, that are kept; 16 MiB when left out. */
  readonly maxOutput?: number;
  /** Throw `COMMAND_FAILED` unless the program ends with 0. */
  readonly check?: boolean;
}

export interface ProgramResult {
  /** The program's own; 128 + n if signal n ended it. */
  readonly exitCode: number;
  /** Standard output and standard error as UTF-8. */
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as it was. */
  readonly stdoutBytes: Uint8Array;
}

/** Most bytes of input in one message. */
const chunk = 64 * 1024;

async function* inputOf(stdin: ProgramOptions["stdin"]): AsyncGenerator<Uint8Array> {
  if (stdin === undefined) return;
  if (typeof stdin !== "string" && !(stdin instanceof Uint8Array)) {
    yield* stdin;
    return;
  }
  const bytes = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin;
  for (let at = 0; at < bytes.length; at += chunk) yield bytes.subarray(at, at + chunk);
}

/** What a program wrote, up to a limit. */
class Output {
  readonly #most: number;
  readonly #parts: Uint8Array[] = [];
  #bytes = 0;

  constructor(most: number) {
    this.#most = most;
  }

  add(part: Uint8Array): void {
    this.#bytes += part.length;
    if (this.#bytes > this.#most)
      throw new PodnetError("LIMIT_REACHED", `The program wrote more than ${this.#most} bytes`, {
        field: "maxOutput",
        hint: "Raise maxOutput, or write to a file in the pod",
      });
    this.#parts.push(part);
  }

  whole(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}

/**
 * Runs a program in a pod to its end. Throws `LIMIT_REACHED` when it writes more than is kept (it
 * is ended then), `COMMAND_FAILED` with `check`, and what Exec throws.
 */
export async function runProgram(
  services: Podnet,
  idOrName: string,
  args: string[],
  options: ProgramOptions,
): Promise<ProgramResult> {
  const { env = {}, workdir = "", stdin, signal, maxOutput = 16 << 20, check = false } = options;
  async function* requests(): AsyncGenerator<MessageInitShape<typeof ExecRequestSchema>> {
    yield { input: { case: "start", value: { idOrName, args, env, workdir } } };
    for await (const value of inputOf(stdin)) yield { input: { case: "stdin", value } };
    yield { input: { case: "closeStdin", value: {} } };
  }
  const [stdout, stderr] = [new Output(maxOutput), new Output(maxOutput)];
  for await (const { output } of services.pods.exec(
    requests(),
    signal === undefined ? {} : { signal },
  )) {
    if (output.case === "stdout") stdout.add(output.value);
    if (output.case === "stderr") stderr.add(output.value);
    if (output.case === "exit") return resultOf(args, output.value.code, stdout, stderr, check);
  }
  throw new PodnetError("AGENT_DISCONNECTED", "The program's end was not reported", {
    hint: "See whether the pod still runs",
  });
}

function resultOf(
  args: readonly string[],
  exitCode: number,
  stdout: Output,
  stderr: Output,
  check: boolean,
): ProgramResult {
  const utf8 = new TextDecoder();
  const stdoutBytes = stdout.whole();
  const result = {
    exitCode,
    stdout: utf8.decode(stdoutBytes),
    stderr: utf8.decode(stderr.whole()),
    stdoutBytes,
  };
  if (!check || exitCode === 0) return result;
  throw new PodnetError("COMMAND_FAILED", `"${args[0]}" in the pod ended with ${exitCode}`, {
    hint: "See what the program wrote to standard error, in the details",
    details: { args: args.join(" "), exitCode, stderr: result.stderr.slice(-4096) },
  });
}
