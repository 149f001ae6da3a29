import type { Call, Outcome } from "./history.ts";

/** A create that was asked for under a request id, maybe by several callers, maybe again later. */
export interface Asked {
  readonly requestId: string;
  readonly invoked: number;
  readonly returned: number;
  readonly name: string;
  readonly by: string;
  readonly outcome: Outcome;
}

/** What the history says of requests: the creates there really were, and what cannot be. */
export interface MergedRequests {
  readonly calls: readonly Call[];
  readonly wrong: readonly string[];
}

/**
 * A request id is one create with one answer, however often it is asked for (promise 17). It
 * begins with the first who asks and is done when the first has an answer. What was refused before
 * anything was taken is no part of it: asking again then begins anew.
 */
export function mergeRequests(asked: readonly Asked[]): MergedRequests {
  const calls: Call[] = [];
  const wrong: string[] = [];
  for (const [id, all] of Map.groupBy(asked, ({ requestId }) => requestId)) {
    const refused = all.filter(({ outcome }) => ["taken", "exhausted"].includes(outcome.kind));
    calls.push(...refused);
    const answers = all.filter(({ outcome }) => ["created", "cut"].includes(outcome.kind));
    const kinds = new Set(answers.map(({ outcome }) => JSON.stringify(outcome)));
    if (kinds.size > 1) wrong.push(`Request ${id} has the answers ${[...kinds].join(" and ")}`);
    const [first] = answers;
    const gone = all.filter(({ outcome }) => outcome.kind === "absent");
    if (first === undefined) {
      if (gone.length > 0) wrong.push(`Request ${id} was of a pod that no answer has named`);
      continue;
    }
    const answered = Math.min(...answers.map(({ returned }) => returned));
    calls.push({
      ...first,
      by: `request ${id} of ${answers.length}`,
      invoked: Math.min(...answers.map(({ invoked }) => invoked)),
      returned: answered,
    });
    // From its first answer on it is remembered, and nothing else is said of it.
    for (const late of refused.filter(({ invoked }) => invoked >= answered))
      wrong.push(`Request ${id} was answered, and then ${late.outcome.kind}`);
    // Asked for again after its pod was deleted; that it was there no more at some moment is a look
    // like any other's.
    if (first.outcome.kind === "cut" && gone.length > 0)
      wrong.push(`Request ${id} was cut short, and found again`);
  }
  return { calls, wrong };
}
