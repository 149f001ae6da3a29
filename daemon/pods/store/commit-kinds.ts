import type { CommitOptions } from "../../events/journal.ts";

/** Writes that end, stop or start an existing pod may use the store's reserve. */
export const essential = { need: "essential" } as const satisfies CommitOptions;

/** Writes that concern only a machine need no flush: a power loss ends the machine too. */
export const ofMachine = { lasting: "boot", need: "essential" } as const satisfies CommitOptions;

/** Writes whose caller waits for `flushed` before what relies on them, while others go on. */
export const flushedLater = { lasting: "boot" } as const satisfies CommitOptions;
