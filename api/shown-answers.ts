import type { DescField, DescMessage } from "@bufbuild/protobuf";
import type { Interceptor } from "@connectrpc/connect";
import { shown, shownLines } from "../core/shown.ts";

/** Longest text of an answer, characters. */
const textLimit = 65_536;

type Fields = Record<string, unknown>;

/**
 * Makes every text of every answer one that may be shown (`shown`), whoever said it: a guest's
 * agent, QEMU, a command. Bytes — a console, a program's output — travel as they are, to callers
 * who ask for them.
 */
export const shownAnswers: Interceptor = (next) => async (request) => {
  const response = await next(request);
  if (!hasText(response.method.output)) return response;
  if (!response.stream) {
    show(response.method.output, response.message);
    return response;
  }
  const { message, method } = response;
  async function* texts(): AsyncGenerator {
    for await (const each of message) {
      show(method.output, each);
      yield each;
    }
  }
  return { ...response, message: texts() as typeof message };
};

const known = new Map<DescMessage, boolean>();

/** Whether a message can hold text, at whatever depth. */
function hasText(desc: DescMessage): boolean {
  const answer = known.get(desc);
  if (answer !== undefined) return answer;
  // A message within itself adds nothing.
  known.set(desc, false);
  const found = desc.fields.some(
    (field) =>
      isText(field) || (messageOf(field) !== undefined && hasText(messageOf(field) as DescMessage)),
  );
  known.set(desc, found);
  return found;
}

// protobuf.dev: scalar type 9 is string.
const textType = 9;

const isText = (field: DescField): boolean =>
  "scalar" in field && (field.scalar as number | undefined) === textType
    ? true
    : field.fieldKind === "map";

const messageOf = (field: DescField): DescMessage | undefined => field.message;

function show(desc: DescMessage, message: Fields): void {
  for (const member of desc.members) {
    const value = message[member.localName];
    if (value === undefined) continue;
    if (member.kind === "field") {
      message[member.localName] = shownValue(member, value);
      continue;
    }
    const chosen = value as { readonly case?: string; readonly value?: unknown };
    const field = member.fields.find(({ localName }) => localName === chosen.case);
    if (field !== undefined)
      message[member.localName] = { case: chosen.case, value: shownValue(field, chosen.value) };
  }
}

function shownValue(field: DescField, value: unknown): unknown {
  switch (field.fieldKind) {
    case "scalar":
      return typeof value === "string" ? shown(value, textLimit) : value;
    case "message":
      show(field.message, value as Fields);
      return value;
    case "list":
      return (value as unknown[]).map((each) => shownItem(field.message, each));
    case "map":
      return Object.fromEntries(
        Object.entries(value as Fields).map(([key, each]) => [
          shown(key, textLimit),
          shownItem(field.message, each),
        ]),
      );
    default:
      return value;
  }
}

function shownItem(desc: DescMessage | undefined, item: unknown): unknown {
  if (desc !== undefined) show(desc, item as Fields);
  // The end of a console, among an error's details, has lines.
  return typeof item === "string" ? shownLines(item, textLimit) : item;
}
