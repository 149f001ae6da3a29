/** Words of our own that the field has a term for: instead of the left the right. HOUSE.md's table. */
const replaced: Readonly<Record<string, string>> = {
  "bury|buries|buried|burying|burials?|graveyards?": "deferred deletion, pending-delete group",
  "departures?": "teardown queue",
  "conversations?": "connections, conntrack entries, flows",
  "witness(?:es|ed)?|testimon(?:y|ies)": "independent check, source",
  "crossings?": "effect, failpoint, boundary call",
  "wish(?:es|ed)?|drafts?": "request, plan, temporary file",
  doomed: "owned, to be deleted",
  patience: "backoff, deadline",
  "ail(?:s|ing|ments?)": "condition, degraded",
  "refit(?:s|ted|ting)?": "apply a network update",
  "strangers?": "orphan, foreign",
  "unsettled|settl(?:es?|ed|ing)(?! ?\\()": "converge, reconcile, complete",
  news: "delta, update, event",
  "last words": "console tail, last message",
  "(?:told|tells?|telling)(?!(?: \\S+){0,5} apart)": "report, notify, send",
  "nobody|no one|somebody|anybody": "none, foreign, a named actor",
  "beside(?! the point)": "alongside, next to, in addition to",
  "netns join": "tc redirect",
  "lanes?|deeds?": "worker, operation",
};

/** All of them, in text whose camelCase is split. */
export const bannedWords = new RegExp(
  `(?<![a-z])(?<!all )(?:${Object.keys(replaced).join("|")})(?![a-z])`,
  "gi",
);

/** What no comment begins with: its subject has a name. */
export const bannedStarts = /^(?:The same|Those|That one|These)\b/;

/** What to write instead of a word. */
export function insteadOf(word: string): string | undefined {
  return Object.entries(replaced).find(([pattern]) =>
    new RegExp(`^(?:${pattern})$`, "i").test(word),
  )?.[1];
}
