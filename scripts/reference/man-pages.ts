import type { EventEmitter } from "node:events";
import type { Command, Help, Option } from "commander";
import { contextOf } from "../../cli/context.ts";
import { buildProgram } from "../../cli/program.ts";
import { podnetdProgram } from "../../daemon/main/command.ts";
import { commandPages } from "./command-line.ts";
import { configManPage } from "./config-man-page.ts";
import { bold, heading, roff, section, seeAlso, verbatim } from "./roff.ts";

/** Options that every command has, which podnet(1) describes once. */
const common: ReadonlySet<string> = new Set(["--socket", "--url", "--help"]);

/** What the pages of programs are made from. */
const commands = "the tree of commands";

/** What stands below a command's options: prose, and examples. */
interface More {
  readonly prose: readonly string[];
  readonly examples: readonly string[];
}

function moreOf(command: Command): More {
  const texts: string[] = [];
  const write = (text: string): void => void texts.push(text);
  // (Commander's types do not say that it emits; its help does so.)
  (command as unknown as EventEmitter).emit("afterHelp", { error: false, command, write });
  const lines = texts.join("\n").split("\n");
  const at = lines.indexOf("Examples:");
  if (at < 0) return { prose: lines, examples: [] };
  const end = lines.findIndex((line, i) => i > at && line.trim() === "");
  const last = end < 0 ? lines.length : end;
  return {
    prose: [...lines.slice(0, at), ...lines.slice(last)],
    examples: lines.slice(at + 1, last).map((line) => line.replace(/^ {2}/, "")),
  };
}

/** Paragraphs; lines that are indented stay as they are. */
function paragraphs(lines: readonly string[]): string[] {
  const text = lines.join("\n").trim();
  if (text === "") return [];
  return text.split(/\n{2,}/).flatMap((paragraph) => {
    const parts = paragraph.split("\n");
    const isTable = parts.some((line) => line.startsWith("  "));
    return [".PP", ...(isTable ? verbatim(parts) : parts.map(roff))];
  });
}

function optionLines(help: Help, options: readonly Option[]): string[] {
  return options.flatMap((option) => [
    ".TP",
    bold(help.optionTerm(option)),
    roff(help.optionDescription(option)),
  ]);
}

/** Arguments and options of one command, without those of all. */
function termsOf(command: Command): string[] {
  const help = command.createHelp();
  const options = help
    .visibleOptions(command)
    .filter(({ long }) => long === null || long === undefined || !common.has(long));
  const args = help.visibleArguments(command);
  return [
    ...args.flatMap((each) => [
      ".TP",
      `\\fI${roff(help.argumentTerm(each))}\\fR`,
      roff(help.argumentDescription(each)),
    ]),
    ...optionLines(help, options),
  ];
}

const usageOf = (command: Command): string =>
  roff(command.createHelp().commandUsage(command).replace(/\|\S+/, ""));

/** The commands below a group, or the command itself. */
const leaves = (command: Command): readonly Command[] =>
  command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);

const sentence = (text: string): string => roff(`${text.charAt(0).toUpperCase()}${text.slice(1)}.`);

/** The page of a command, or of a group with all its commands. */
function commandPage(command: Command, related: readonly string[]): string {
  const name = `podnet-${command.name()}`;
  const parts = leaves(command);
  const isGroup = command.commands.length > 0;
  const examples = parts.flatMap((each) => moreOf(each).examples);
  return [
    heading(name, 1, commands),
    section("NAME", [`${roff(name)} \\- ${roff(command.description())}`]),
    section(
      "SYNOPSIS",
      parts.flatMap((each) => [".PP", usageOf(each)]),
    ),
    ...(isGroup
      ? [section("COMMANDS", parts.flatMap(groupEntry))]
      : [
          section("DESCRIPTION", [
            sentence(command.description()),
            ...paragraphs(moreOf(command).prose),
          ]),
          section("OPTIONS", termsOf(command)),
        ]),
    section("EXAMPLES", examples.length === 0 ? [] : verbatim(examples)),
    section("SEE ALSO", seeAlso(["podnet(1)", ...related.filter((each) => each !== `${name}(1)`)])),
  ].join("");
}

function groupEntry(command: Command): string[] {
  return [
    `.SS ${usageOf(command)}`,
    sentence(command.description()),
    ...paragraphs(moreOf(command).prose),
    ...termsOf(command),
  ];
}

const environment = [
  ["PODNET_SOCKET", "podnetd's unix socket, unless --socket names one."],
  ["PODNET_URL", "https://HOST:PORT of a podnetd on TCP, unless --url names one."],
  ["PODNET_TLS_CA, PODNET_TLS_CERT, PODNET_TLS_KEY", "PEM files for a podnetd on TCP."],
  ["NO_COLOR", "No colours, if it is not empty."],
] as const;

/** The page of the program, which names all others. */
function programPage(program: Command): string {
  const [about = "", ...more] = program.description().split("\n");
  const byName = (name: string) => program.commands.find((each) => each.name() === name);
  const help = program.commands[0]?.createHelp();
  const options = program.commands[0]?.options.filter(({ long }) => common.has(long ?? "")) ?? [];
  return [
    heading("podnet", 1, commands),
    section("NAME", ["podnet \\- network of microVM pods"]),
    section("SYNOPSIS", ["podnet command [options] [arguments]"]),
    section("DESCRIPTION", [roff(about), ...paragraphs(more)]),
    ...commandPages.map(({ title, commands }) =>
      section(
        roff(title.toUpperCase()),
        commands.flatMap((name) => [
          ".TP",
          `.BR podnet\\-${roff(name)} (1)`,
          sentence(byName(name)?.description() ?? ""),
        ]),
      ),
    ),
    section("OPTIONS", help === undefined ? [] : optionLines(help, options)),
    section(
      "ENVIRONMENT",
      environment.flatMap(([name, text]) => [".TP", bold(name), roff(text)]),
    ),
    section("EXIT STATUS", paragraphs(exitStatus(program))),
    section("SEE ALSO", seeAlso(["podnet-config.toml(5)", "podnetd(8)"])),
  ].join("");
}

const exitStatus = (program: Command): readonly string[] => {
  const { prose } = moreOf(program);
  const at = prose.findIndex((line) => line.startsWith("Exit codes: "));
  return prose.slice(at).map((line) => line.replace(/^Exit codes: /, ""));
};

/** The page of the daemon. */
function daemonPage(program: Command): string {
  return [
    heading("podnetd", 8, commands),
    section("NAME", ["podnetd \\- daemon that gives microVM pods their network"]),
    section(
      "SYNOPSIS",
      [program, ...program.commands].flatMap((each) => [".PP", usageOf(each)]),
    ),
    section("DESCRIPTION", paragraphs([program.description(), ...moreOf(program).prose])),
    section(
      "COMMANDS",
      program.commands.flatMap((each) => [".TP", bold(each.name()), sentence(each.description())]),
    ),
    section("OPTIONS", termsOf(program)),
    section("FILES", [
      ".TP",
      roff("/etc/podnet/config.toml"),
      `Its configuration; ${bold("podnet-config.toml")}(5) explains each key.`,
    ]),
    section("SEE ALSO", seeAlso(["podnet(1)", "podnet-config.toml(5)"])),
  ].join("");
}

/** The manual pages, by their path in the checkout. */
export function manPages(): ReadonlyMap<string, string> {
  const nothing = { write: () => true };
  const program = buildProgram(contextOf({ stdout: nothing, stderr: nothing } as never));
  const pages = new Map([
    ["man/podnet.1", programPage(program)],
    ["man/podnetd.8", daemonPage(podnetdProgram())],
    ["man/podnet-config.toml.5", configManPage()],
  ]);
  for (const { file, commands } of commandPages) {
    const related = commands.map((name) => `podnet-${name}(1)`);
    for (const command of program.commands)
      if (commands.includes(command.name()))
        pages.set(`man/${file}/podnet-${command.name()}.1`, commandPage(command, related));
  }
  return pages;
}
