import { PodnetError } from "../../../core/errors.ts";
import { PublicAPI } from "../gen/hyperd_pb.ts";

type Call = (request: unknown, context: unknown) => unknown;

/**
 * Methods that refuse a message with a field by a number that podnet does not know. Go's decoder
 * would pass over it, and what its caller asked for would be missing in silence.
 */
export const refusingUnknown = <Methods extends object>(methods: Methods): Methods =>
  Object.fromEntries(
    Object.entries(methods as Readonly<Record<string, Call>>).map(([name, call]) => [
      name,
      isStreamed(name)
        ? (requests: unknown, context: unknown) =>
            call(checkedEach(requests as AsyncIterable<unknown>), context)
        : (request: unknown, context: unknown) => {
            refuseUnknown(request);
            return call(request, context);
          },
    ]),
  ) as Methods;

const isStreamed = (name: string): boolean =>
  PublicAPI.methods.some(
    ({ localName, methodKind }) => localName === name && methodKind === "bidi_streaming",
  );

async function* checkedEach<Message>(requests: AsyncIterable<Message>): AsyncGenerator<Message> {
  for await (const request of requests) {
    refuseUnknown(request);
    yield request;
  }
}

function refuseUnknown(message: unknown): void {
  const found = unknownField(message, []);
  if (found === undefined) return;
  const { number, path } = found;
  const where = path.length === 0 ? "the request" : path.join(".");
  throw new PodnetError("INVALID_ARGUMENT", `podnet does not know field ${number} of ${where}`, {
    field: path.length === 0 ? String(number) : path.join("."),
    hint: "See daemon/hyperd/proto/hyperd.proto for the fields that it reads",
  });
}

/** The first unknown field of a message, or of one within it, with the names of those around it. */
function unknownField(
  value: unknown,
  path: readonly string[],
): { readonly number: number; readonly path: readonly string[] } | undefined {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return undefined;
  const { $unknown: [first] = [] } = value as { readonly $unknown?: readonly { no: number }[] };
  if (first !== undefined) return { number: first.no, path };
  for (const [name, each] of Object.entries(value)) {
    const found = unknownField(each, Array.isArray(value) ? path : [...path, name]);
    if (found !== undefined) return found;
  }
  return undefined;
}
