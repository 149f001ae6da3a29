import { PodnetError } from "../../../core/errors.ts";
import type { OpenStream } from "../routes.ts";
import { encoded } from "../stdcopy.ts";

export interface Exchange<Request> {
  /** The first message of the caller. */
  readonly first: Request;
  /** The messages after it. */
  readonly others: AsyncIterator<Request>;
  readonly signal: AbortSignal;
  inputOf(request: Request): Uint8Array;
  /** Whether the end of the caller's messages is the end of the input. */
  readonly endsInput: boolean;
  /** Begins what the first message asks for; `signal` ends it. */
  open(signal: AbortSignal): Promise<OpenStream>;
}

/** The first message of a caller, and those that follow. */
export async function begun<Request>(
  requests: AsyncIterable<Request>,
): Promise<Pick<Exchange<Request>, "first" | "others">> {
  const others = requests[Symbol.asyncIterator]();
  const first = await others.next();
  if (first.done !== true) return { first: first.value, others };
  throw new PodnetError("INVALID_ARGUMENT", "The call has no first message", {
    hint: "Say first what is to run",
  });
}

/** A program whose input are a caller's messages; answers pieces of its output. */
export async function* exchange<Request>({
  first,
  others,
  signal,
  inputOf,
  endsInput,
  open,
}: Exchange<Request>): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const stop = new AbortController();
  const stream = await open(AbortSignal.any([signal, stop.signal]));
  const pump = async (): Promise<void> => {
    for (let message: IteratorResult<Request> = { value: first }; message.done !== true; ) {
      const input = inputOf(message.value);
      if (input.length > 0) await stream.write(input);
      message = await others.next();
    }
    if (endsInput) await stream.closeInput();
  };
  // A program may wait in silence for the very input that fails: the failure has to end it.
  pump().catch((thrown: unknown) => stop.abort(thrown));
  try {
    for await (const written of stream.output)
      yield encoded(written, stream.terminal) as Uint8Array<ArrayBuffer>;
  } catch (thrown) {
    throw stop.signal.aborted ? stop.signal.reason : thrown;
  } finally {
    stop.abort();
  }
}
