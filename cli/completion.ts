import { Argument, type Command } from "commander";
import type { Context } from "./context.ts";

interface Words {
  readonly name: string;
  readonly options: readonly string[];
  readonly takesPods: boolean;
}

function wordsOf(program: Command): Words[] {
  return program.commands.flatMap((command) => {
    const all = [command, ...command.commands].flatMap(({ options }) => options);
    const options = [...new Set(all.flatMap(({ long }) => long ?? []))];
    const below = command.commands.map((each) => each.name());
    const takesPods = command.registeredArguments.some((each) => /^pods?$/.test(each.name()));
    return [command.name(), ...command.aliases()].map((name) => ({
      name,
      options: [...below, ...options, "--help"],
      takesPods,
    }));
  });
}

/**
 * bash and, through its bashcompinit, zsh. Pods' names come from the daemon at the moment of
 * asking.
 */
function bash(words: readonly Words[]): string {
  const cases = words.map(({ name, options, takesPods }) => {
    const pods = takesPods ? " $(_podnet_pods)" : "";
    return `    ${name}) words="${options.join(" ")}${pods}" ;;`;
  });
  return `_podnet_pods() { podnet list 2>/dev/null | awk 'NR > 1 { print $1 }'; }
_podnet() {
  local words
  case "\${COMP_WORDS[1]}" in
${cases.join("\n")}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="${words.map(({ name }) => name).join(" ")}"; fi
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _podnet podnet
`;
}

function fish(words: readonly Words[]): string {
  const lines = words.flatMap(({ name, options, takesPods }) => [
    `complete -c podnet -n __fish_use_subcommand -a ${name}`,
    ...options.map((option) => {
      const word = option.startsWith("--") ? `-l ${option.slice(2)}` : `-a ${option}`;
      return `complete -c podnet -n "__fish_seen_subcommand_from ${name}" ${word}`;
    }),
    ...(takesPods
      ? [`complete -c podnet -n "__fish_seen_subcommand_from ${name}" -a "(__podnet_pods)"`]
      : []),
  ]);
  return `function __podnet_pods; podnet list 2>/dev/null | awk 'NR > 1 { print $1 }'; end
complete -c podnet -f
${lines.join("\n")}
`;
}

const more = `
  bash:  source <(podnet completion bash)
  zsh:   source <(podnet completion zsh)
  fish:  podnet completion fish | source`;

export function addCompletion(program: Command, { io }: Context): void {
  program
    .command("completion")
    .description("print a completion script for a shell")
    .addArgument(new Argument("<shell>").choices(["bash", "zsh", "fish"]))
    .addHelpText("after", more)
    .action((shell: string) => {
      const words = wordsOf(program);
      const zsh = "autoload -U +X bashcompinit && bashcompinit\n";
      io.stdout.write(
        shell === "fish" ? fish(words) : `${shell === "zsh" ? zsh : ""}${bash(words)}`,
      );
    });
}
