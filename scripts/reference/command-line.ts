import { Writable } from "node:stream";
import type { Command } from "commander";
import { contextOf } from "../../cli/context.ts";
import { buildProgram } from "../../cli/program.ts";
import { podnetdProgram } from "../../daemon/main/command.ts";

/** The pages of the command line, and the commands that each of them shows. */
export const commandPages: readonly {
  readonly file: string;
  readonly title: string;
  readonly commands: readonly string[];
}[] = [
  {
    file: "pods",
    title: "Pods",
    commands: ["create", "get", "list", "update", "label", "apply", "delete"],
  },
  {
    file: "lifecycle",
    title: "Start, stop and pause pods",
    commands: ["start", "stop", "restart", "pause", "resume", "wait"],
  },
  {
    file: "guests",
    title: "Guests, and VMs that other programs run",
    commands: ["console", "logs", "cp", "attach", "detach"],
  },
  {
    file: "programs",
    title: "Programs in pods",
    commands: ["run", "attach-output", "exec", "shell", "execs"],
  },
  {
    file: "interfaces",
    title: "Interfaces, disks and published ports",
    commands: ["interface", "disk", "limit", "publish", "unpublish", "ports"],
  },
  { file: "images", title: "Images", commands: ["image"] },
  { file: "networks", title: "Networks", commands: ["network"] },
  { file: "services", title: "Services", commands: ["service"] },
  { file: "overlays", title: "Overlays and their hosts", commands: ["overlay", "nodes"] },
  { file: "policies", title: "Policies and the guard", commands: ["policy", "guard", "trace"] },
  {
    file: "observe",
    title: "Watch, measure and verify",
    commands: [
      "watch",
      "stats",
      "top",
      "capture",
      "verify",
      "diff",
      "info",
      "explain",
      "doctor",
      "bugreport",
      "ui",
    ],
  },
  {
    file: "node",
    title: "The node, its pool of machines, and the CNI plugin",
    commands: ["pool", "cni", "log-level", "down", "version", "completion"],
  },
];

/** Options that every command has, which the first page describes once. */
const common = /^ {2}(?:--socket <path>|--url <url>|-h, --help) .*\n/gm;

/** Runs `print` with a program whose output is kept, 100 columns wide. */
function shown(command: Command): string {
  const text: string[] = [];
  command.configureOutput({
    writeOut: (part) => text.push(part),
    getOutHelpWidth: () => 100,
    getOutHasColors: () => false,
  });
  command.outputHelp();
  return text
    .join("")
    .replaceAll(common, "")
    .replaceAll(/\n{3,}/g, "\n\n")
    .trim();
}

/** A command and all below it, as sections with their help. */
function* sections(command: Command, path: string): Generator<string> {
  // A group's own help only lists its commands, whose sections follow.
  if (command.commands.length === 0) yield `## ${path}\n\n\`\`\`text\n${shown(command)}\n\`\`\`\n`;
  for (const each of command.commands) yield* sections(each, `${path} ${each.name()}`);
}

/** One line for each command that does something, linked to its section. */
function* index(command: Command, path: string, file: string): Generator<string> {
  if (command.commands.length === 0) {
    const anchor = path.replaceAll(" ", "-");
    yield `| [\`${path}\`](command-line/${file}.md#${anchor}) | ${command.description()} |`;
  }
  for (const each of command.commands) yield* index(each, `${path} ${each.name()}`, file);
}

/** The pages of the command line, by their path below docs/reference. */
export function commandLinePages(): ReadonlyMap<string, string> {
  const nothing = new Writable({ write: (_chunk, _encoding, done) => done() });
  const io = { stdout: nothing, stderr: nothing } as never;
  const program = buildProgram(contextOf(io));
  const find = (name: string): Command => {
    const found = program.commands.find((command) => command.name() === name);
    if (found === undefined) throw new Error(`There is no command "${name}"`);
    return found;
  };
  const shownNames = new Set(commandPages.flatMap(({ commands }) => commands));
  const left = program
    .createHelp()
    .visibleCommands(program)
    .map((each) => each.name())
    // (Commander's own.)
    .filter((each) => !shownNames.has(each) && each !== "help");
  if (left.length > 0)
    throw new Error(`No page shows ${left.join()}: name them in ${import.meta.filename}`);

  const made = new Map<string, string>();
  for (const { file, title, commands } of commandPages) {
    const text = commands.flatMap((name) => [...sections(find(name), `podnet ${name}`)]).join("\n");
    made.set(
      `command-line/${file}.md`,
      `# ${title}\n\nEach command also has [the options of all commands](../command-line.md).\n\n${text}`,
    );
  }
  const rows = commandPages.flatMap(({ file, commands }) =>
    commands.flatMap((name) => [...index(find(name), `podnet ${name}`, file)]),
  );
  made.set(
    "command-line.md",
    `# Command line

\`podnet\` sends commands to podnetd. \`podnetd\` is the daemon; [its flags](configuration.md) are its
configuration.

Every command of \`podnet\` has these options:

| option | meaning |
|---|---|
| \`--socket PATH\` | podnetd's unix socket; else \`PODNET_SOCKET\`, else \`/run/podnet/podnet.sock\` |
| \`--url URL\` | \`https://HOST:PORT\` of a podnetd on TCP; else \`PODNET_URL\`. The PEM files are named by \`PODNET_TLS_CA\`, \`PODNET_TLS_CERT\` and \`PODNET_TLS_KEY\` |
| \`-h\`, \`--help\` | show help |

[The exit codes](errors.md#exit-codes) are those of the errors. \`-o json\` prints
[what the API answers](api.md#the-command-lines-json).

| command | what it does |
|---|---|
${rows.join("\n")}
| \`podnetd\` | runs the daemon in the foreground |
${podnetdProgram()
  .commands.map((each) => `| \`podnetd ${each.name()}\` | ${each.description()} |`)
  .join("\n")}
`,
  );
  return made;
}
