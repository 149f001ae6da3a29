import { Argument, type Command } from "commander";
import type { Context } from "../context.ts";
import { type Candidate, ownCandidates, typedOf } from "./typed.ts";
import { sourceOf } from "./values.ts";

/** The longest that podnetd is waited for, while people wait for a word. */
const longestMs = 1000;

/**
 * Shells ask the command itself for each word, so that the script is right for the command that is
 * installed. bash splits words at `:` and `=`, and replaces the last part alone.
 */
const bash = `_podnet() {
  local line word found
  local -a words
  line=\${COMP_LINE:0:COMP_POINT}
  line=\${COMP_WORDS[0]}\${line#*"\${COMP_WORDS[0]}"}
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  word=\${words[\${#words[@]}-1]}
  word=\${word%"\${word##*[:=]}"}
  COMPREPLY=()
  while IFS=$'\\t' read -r found _; do
    COMPREPLY+=("\${found#"$word"}")
    [[ $found == *[:=] ]] && compopt -o nospace 2>/dev/null
  done < <("\${words[0]}" __complete -- "\${words[@]:1}" 2>/dev/null)
}
complete -o default -F _podnet podnet
`;

const zsh = `#compdef podnet
_podnet() {
  local -a found
  found=("\${(@f)$("\${words[1]}" __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=("\${(@)found%%$'\\t'*}")
  if [[ -n "\${found[1]}" ]]; then compadd -- "\${found[@]}"; else _files; fi
}
compdef _podnet podnet
# The file is the function itself where zsh loads it when it is needed.
if [[ "\${funcstack[1]}" = _podnet ]]; then _podnet "$@"; fi
`;

const fish = `function __podnet_complete
  set -l words (commandline -opc)
  $words[1] __complete -- $words[2..] (commandline -ct) 2>/dev/null
end
complete -c podnet -a "(__podnet_complete)"
`;

const scripts: Readonly<Record<string, string>> = { bash, zsh, fish };

const more = `
  bash:  source <(podnet completion bash)
  zsh:   source <(podnet completion zsh)
  fish:  podnet completion fish | source`;

export function addCompletion(program: Command, context: Context): void {
  const { io } = context;
  program
    .command("completion")
    .description("print a completion script for a shell")
    .addArgument(new Argument("<shell>").choices(Object.keys(scripts)))
    .addHelpText("after", more)
    .action((shell: string) => void io.stdout.write(scripts[shell] ?? ""));
  program
    .command("__complete", { hidden: true })
    .argument("[words...]", "a command line, of which the last word is being typed")
    .action(async (words: readonly string[]) => {
      const found = await candidatesFor(program, context, words);
      const lines = found.map(({ word, about }) =>
        about === undefined ? word : `${word}\t${about}`,
      );
      io.stdout.write(lines.map((line) => `${line}\n`).join(""));
    });
}

/** The words that may stand where one is being typed; none when something fails. */
async function candidatesFor(
  program: Command,
  context: Context,
  words: readonly string[],
): Promise<readonly Candidate[]> {
  const typed = typedOf(program, words);
  if (typed === undefined) return [];
  const own = ownCandidates(typed);
  const values = own.length > 0 ? [] : await valuesFor(context, typed);
  const { word, before, args } = typed;
  return [...own, ...values]
    .filter((each) => each.word.startsWith(word) && isPlain(each.word))
    .filter((each) => typed.option !== undefined || !args.includes(each.word))
    .map((each) => ({ ...each, word: `${before}${each.word}` }));
}

/** A shell is to find nothing in a word that it would obey. */
const isPlain = (word: string): boolean => /^[\w.:/@=+-]+$/.test(word);

async function valuesFor(
  { io }: Context,
  typed: NonNullable<ReturnType<typeof typedOf>>,
): Promise<readonly Candidate[]> {
  const source = sourceOf(typed);
  if (source === undefined) return [];
  try {
    using podnet = await io.connect(typed.target);
    const found = await source(podnet, typed, AbortSignal.timeout(longestMs));
    return [...new Set(found)].map((word) => ({ word }));
  } catch {
    // People see it when they run the command.
    return [];
  }
}
