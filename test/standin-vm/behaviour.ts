/**
 * What a stand-in does otherwise than a good QEMU with a good guest. Chosen by words on the
 * kernel's command line: `standin.qemu=WORD[:VALUE],…` and `standin.agent=WORD[:VALUE],…`.
 * README.md lists them.
 */
export class Behaviour {
  readonly #words: ReadonlyMap<string, string>;

  constructor(words: ReadonlyMap<string, string>) {
    this.#words = words;
  }

  has(word: string): boolean {
    return this.#words.has(word);
  }

  /** The number behind a word; undefined without the word. */
  number(word: string): number | undefined {
    const value = this.#words.get(word);
    return value === undefined ? undefined : Number(value);
  }

  /** Whether the word stands there with this value: `hang:cont`. */
  is(word: string, value: string): boolean {
    return this.#words.get(word) === value;
  }
}

const known = {
  qemu: [
    "mute",
    "garbage",
    "garbage-after",
    "huge",
    "huge-after",
    "hangup",
    "hangup-after",
    "events",
    "storm",
    "ill-refuse",
    "refuse",
    "hang",
    "die",
    "die-after",
    "exit",
    "keep-nics",
  ],
  agent: [
    "silent",
    "mute",
    "wedge-after",
    "slow",
    "drip",
    "garbage",
    "garbage-after",
    "huge",
    "huge-after",
    "restart",
    "die-after",
    "wrong-answer",
    "refuse",
    "ill-spoken",
    "ill-version",
    "ill-refusal",
    "poweroff-after",
    "power-button",
    "reset-after",
    "flood",
    "flood-next",
    "flood-events",
    "flood-ends",
    "flood-ready",
    "chatter",
    "hyperstart",
    "applets",
    "lies",
  ],
} as const;

/**
 * Reads the words of one side. Throws for one that is not known: a test would wait for it in vain.
 */
export function readBehaviour(cmdline: string, side: keyof typeof known): Behaviour {
  const words = new Map<string, string>();
  const key = `standin.${side}=`;
  for (const word of cmdline.split(" ").filter((one) => one.startsWith(key))) {
    for (const each of word.slice(key.length).split(",")) {
      const [name = "", value = ""] = each.split(":");
      if (!(known[side] as readonly string[]).includes(name))
        throw new Error(`There is no behaviour "${name}" of the ${side}`);
      words.set(name, value);
    }
  }
  return new Behaviour(words);
}
