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
  "unsettled|settl(?:es?|ed|ing)": "converge, reconcile, complete",
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

/** A banned word that stays, because something outside of the sources has it. */
export interface Kept {
  readonly text: string;
  /** The only files that may have it; absent: any may. */
  readonly files?: readonly string[];
  readonly reason: string;
}

export const keptWords: readonly Kept[] = [
  { text: "witness.sock", reason: "a socket of VMs that run already" },
  { text: "besideForward", reason: "a stored field of network_memory" },
  { text: "besideIpv6Forward", reason: "a stored field of network_memory" },
  { text: "names_told", reason: "a key of the stored table meta" },
  {
    text: "settling",
    files: ["daemon/store/attachments-of-decisions.ts", "test/unit/daemon/store/upgrade.test.ts"],
    reason: "a field of plans of an earlier version, which a migration reads",
  },
  {
    text: "-draft`",
    files: ["daemon/store/good-copy.ts"],
    reason: "a file that a podnetd of before may have left, and that the next copy removes",
  },
  {
    text: "nobody",
    files: ["guest-init/image/root-files.ts", "test/fuzz/targets/host-files.ts"],
    reason: "the user without rights of Unix",
  },
  { text: "draft-ietf-", reason: "the title of a document" },
  { text: "udevadm trigger --action=add --subsystem-match=net --settle", reason: "an option" },
];
