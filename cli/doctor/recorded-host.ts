import type { JsonValue } from "@bufbuild/protobuf";
import { usage } from "../usage.ts";
import { type Host, questions } from "./host.ts";

/** A host's answers, by question: `read ["/proc/version"]`. */
export type Answers = { [question: string]: JsonValue };

const key = (name: string, args: readonly unknown[]): string => `${name} ${JSON.stringify(args)}`;

type Ask = (...args: unknown[]) => Promise<JsonValue>;

const hostOf = (ask: (name: (typeof questions)[number], args: unknown[]) => Promise<JsonValue>) =>
  Object.fromEntries(
    questions.map((name) => [name, (...args: unknown[]) => ask(name, args)]),
  ) as unknown as Host;

/** A host that also keeps what it answers. */
export function recording(host: Host): { readonly host: Host; readonly answers: Answers } {
  const answers: Answers = {};
  const kept = hostOf(async (name, args) => {
    const answer = await (host[name] as unknown as Ask).apply(host, args);
    answers[key(name, args)] = answer;
    return answer;
  });
  return { host: kept, answers };
}

/** A host as its answers have it. Questions without an answer get null: nothing is there. */
export function recorded(answers: Answers): Host {
  const self = key("self", []);
  if (typeof answers[self] !== "object" || answers[self] === null)
    throw usage("These are no answers of a host", "Take host.json of a podnet bugreport", "from");
  return hostOf((name, args) => Promise.resolve(answers[key(name, args)] ?? null));
}
