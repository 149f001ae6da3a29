import { harmless } from "./text.ts";

/** Details that quote what another program or the guest printed, to which hints refer. */
const quotes = ["console", "stderr", "nft"] as const;

export interface Quote {
  /** The key in the error's details. */
  readonly name: string;
  /** Harmless to a terminal, at least one. */
  readonly lines: readonly string[];
}

/**
 * Quotes from an error's details, for people, without those already in the message. An empty
 * console is named too: the hint refers to it, and a guest that printed nothing is a finding.
 */
export function quotesOf(
  details: Readonly<Record<string, string | number | boolean>>,
  message: string,
): readonly Quote[] {
  return quotes.flatMap((name) => {
    const said = details[name];
    if (typeof said !== "string") return [];
    const text = said.trim();
    if (text === "") return name === "console" ? [{ name, lines: ["(nothing was printed)"] }] : [];
    if (message.includes(text)) return [];
    return [{ name, lines: text.split("\n").map(harmless) }];
  });
}
