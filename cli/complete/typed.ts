import type { Argument, Command, Option } from "commander";

/** What stands on a command line up to the word that is being typed. */
export interface Typed {
  /** The command that the words name, or the group. */
  readonly command: Command;
  /** Its name with those of its groups: `network get`. */
  readonly path: string;
  /** Arguments before the word. */
  readonly args: readonly string[];
  /** The option whose value the word is. */
  readonly option: Option | undefined;
  /** The word. */
  readonly word: string;
  /** What of the word is not its value: `--output=`. */
  readonly before: string;
  /** The values of options that say where podnetd is. */
  readonly target: { readonly socket?: string; readonly url?: string };
}

/** The commands whose arguments behind the first one are a guest's. */
const foreign: ReadonlySet<string> = new Set(["exec", "run"]);

/** Options that commander adds by itself. */
const ownHelp = ["--help"];

/** Reads a command line of which the last word is being typed; undefined where it leads nowhere. */
export function typedOf(program: Command, words: readonly string[]): Typed | undefined {
  const word = words.at(-1) ?? "";
  const target: { socket?: string; url?: string } = {};
  const path: string[] = [];
  const args: string[] = [];
  let command = program;
  let option: Option | undefined;
  let onlyArguments = false;
  for (const each of words.slice(0, -1)) {
    if (option !== undefined) {
      keepTarget(target, option, each);
      option = undefined;
    } else if (each === "--") onlyArguments = true;
    else if (!onlyArguments && each.startsWith("-") && each !== "-") {
      const { found, value } = optionOf(command, each);
      if (found !== undefined && value !== undefined) keepTarget(target, found, value);
      else if (found?.required === true) option = found;
    } else if (command.commands.length > 0) {
      const next = command.commands.find(
        (one) => one.name() === each || one.aliases().includes(each),
      );
      if (next === undefined) return undefined;
      command = next;
      path.push(next.name());
    } else {
      args.push(each);
      if (foreign.has(command.name())) return undefined;
    }
  }
  const typed = { command, path: path.join(" "), args, option, word, before: "", target };
  if (option !== undefined || onlyArguments) return typed;
  const { found, value } = optionOf(command, word);
  if (found === undefined || value === undefined) return typed;
  return {
    ...typed,
    option: found,
    word: value,
    before: word.slice(0, -value.length || undefined),
  };
}

/** The option that a word names; with its value, if that stands in the same word. */
function optionOf(
  command: Command,
  word: string,
): { readonly found: Option | undefined; readonly value?: string } {
  const long = /^(--[^=]+)(?:=([^]*))?$/.exec(word);
  if (long !== null) {
    const [, name, value] = long;
    const found = command.options.find((each) => each.long === name);
    return value === undefined ? { found } : { found, value };
  }
  // Of `-it` the last one may have a value behind it.
  const last = /^-[^-]*([^-])$/.exec(word)?.[1];
  return { found: command.options.find(({ short }) => last !== undefined && short === `-${last}`) };
}

function keepTarget(
  target: { socket?: string; url?: string },
  option: Option,
  value: string,
): void {
  if (option.long === "--socket") target.socket = value;
  if (option.long === "--url") target.url = value;
}

/** The argument that comes next, unless it is an option's value or another option. */
export function nextArgument({ command, args }: Typed): Argument | undefined {
  const { registeredArguments: all } = command;
  const last = all.at(-1);
  return all[args.length] ?? (last?.variadic === true ? last : undefined);
}

/** A word that may come next, with what it is. */
export interface Candidate {
  readonly word: string;
  readonly about?: string;
}

/** What the program itself knows to come next: commands, options, values to choose from. */
export function ownCandidates(typed: Typed): readonly Candidate[] {
  const { command, option, word } = typed;
  if (option !== undefined) return (option.argChoices ?? []).map(choice);
  if (word.startsWith("-"))
    return [
      ...command.options
        .filter(({ long, hidden }) => long !== undefined && !hidden)
        .map(({ long, description }) => ({ word: long ?? "", about: description })),
      ...ownHelp.map((help) => ({ word: help, about: "show help" })),
    ];
  if (command.commands.length > 0)
    return command.commands
      .filter((each) => !each.name().startsWith("__"))
      .map((each) => ({ word: each.name(), about: each.description() }));
  return (nextArgument(typed)?.argChoices ?? []).map(choice);
}

/** `jsonpath=TEMPLATE` goes on behind the sign. */
const choice = (text: string): Candidate => ({ word: text.replace(/=[A-Z]+$/, "=") });
