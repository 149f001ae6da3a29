import type { Command } from "commander";
import { nearest } from "../core/nearest.ts";

/** Commands that users of other programs try first, and what podnet has for them. */
const elsewhere: Readonly<Record<string, string>> = {
  add: "podnet create, or podnet interface add",
  build: "podnet image import, with what podman or docker has built",
  compose: "podnet apply -f",
  config: "podnetd config --resolved",
  describe: "podnet get",
  destroy: "podnet delete",
  enter: "podnet shell",
  events: "podnet watch",
  forward: "podnet publish",
  import: "podnet image import",
  kill: "podnet stop --force",
  launch: "podnet create, or podnet run",
  load: "podnet image import",
  login: "podnet image pull --username",
  monitor: "podnet watch",
  pods: "podnet list",
  port: "podnet ports",
  prune: "podnet image prune",
  pull: "podnet image pull",
  remove: "podnet delete",
  rmi: "podnet image rm",
  show: "podnet get",
  ssh: "podnet shell",
  status: "podnet info",
  tag: "podnet image tag",
  unpause: "podnet resume",
  up: "podnet create, or podnet apply -f",
};

/** Words for one thing; a group has one or two of each. */
const synonyms = [
  ["rm", "delete", "remove", "del", "destroy"],
  ["list", "ls", "ps"],
  ["get", "inspect", "show", "describe", "info"],
  ["create", "add", "new", "make"],
  ["update", "set", "edit", "change"],
] as const;

/** Options of other programs, by name. `parts` are options that are parts of a word here. */
const options: Readonly<Record<string, string>> = {
  "--format": "-o json, -o yaml, or -o 'jsonpath={.items[*].name}'",
  "--ip": "--address",
  "--json": "-o json",
  "--no-trunc": "-o wide",
  "--subnet": "--cidr",
  "--yaml": "-o yaml",
  "-v": "-V",
};
const parts = /^--(network|bridge|address|mac|mtu|gateway|metric|name|tap|vlan)$/;

/** The command that the first words name, the options of podnetd's place before it left out. */
export function commandAt(
  program: Command,
  args: readonly string[],
): { readonly command: Command; readonly rest: readonly string[] } {
  let command = program;
  let at = 0;
  for (; at < args.length && command.commands.length > 0; at++) {
    const word = args[at] ?? "";
    if (word === "--socket" || word === "--url") at++;
    else if (!/^--(?:socket|url)=/.test(word)) {
      const next = command.commands.find(
        (each) => each.name() === word || each.aliases().includes(word),
      );
      if (next === undefined) break;
      command = next;
    }
  }
  return { command, rest: args.slice(at) };
}

/** `--help` before a command is about this command. */
export function helpBehind(program: Command, args: readonly string[]): readonly string[] {
  const [first = "", ...others] = args;
  if (!["-h", "--help"].includes(first) || others.length === 0) return args;
  const { command, rest } = commandAt(program, others);
  if (command === program) return args;
  return [...others.slice(0, others.length - rest.length), first];
}

/**
 * What is wrong with a word behind the name of a group, if it is none of its commands: such a group
 * lists what it has, and would complain of too many words.
 */
export function wrongInGroup(program: Command, args: readonly string[]): string | undefined {
  const { command, rest } = commandAt(program, args);
  const [word = "-"] = rest;
  if (command === program || command.commands.length === 0) return undefined;
  if (word.startsWith("-") || word === "help") return undefined;
  const list = command.commands.find((each) => each.name() === "list");
  const options = rest.findIndex((each) => each.startsWith("-"));
  const words = options < 0 ? rest.length : options;
  if (list === undefined || words <= list.registeredArguments.length) return undefined;
  const names = command.commands.flatMap((each) => [each.name(), ...each.aliases()]);
  const alike = synonyms.find((words) => (words as readonly string[]).includes(word)) ?? [];
  const meant = nearest(word, names) ?? alike.find((each) => names.includes(each));
  const about = meant === undefined ? "" : `(Did you mean ${meant}?)\n`;
  return `error: unknown command '${word}'\n${about}Try: podnet ${command.name()} --help\n`;
}

/** What commander says of a wrong word, with what podnet has for a word of another program. */
export function withHint(text: string, typing: Command | undefined): string {
  const [, kind, word = ""] = /^error: unknown (command|option) '([^']*)'/.exec(text) ?? [];
  const first = text.split("\n", 1)[0] ?? "";
  if (kind === "command" && Object.hasOwn(elsewhere, word) && typing?.parent === null)
    return `${first}\n(podnet has: ${elsewhere[word]})\n`;
  if (kind !== "option") return text;
  const isInterface = typing?.parent?.name() === "interface";
  if (isInterface && parts.test(word))
    return `${first}\n(Write it as a part of the interface: ${word.slice(2)}=…)\n`;
  const instead = Object.hasOwn(options, word) ? (options[word] ?? "") : "";
  const flag = /^--?[a-z]+/i.exec(instead)?.[0] ?? "";
  const has = typing?.options.some(({ long, short }) => [long, short].includes(flag)) === true;
  return has ? `${first}\n(Write ${instead})\n` : text;
}
