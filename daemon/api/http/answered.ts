import { createContextKey } from "@connectrpc/connect";

/**
 * Runs what is to come after the answer to this very request: once it has been sent, or its caller
 * has gone.
 */
export type WhenAnswered = (then: () => void) => void;

export const answeredKey = createContextKey<WhenAnswered>((then) => then(), {
  description: "what follows the answer",
});
