import type { Command } from "commander";
import type { GivenFlags } from "./given.ts";

/** What people typed for a field of a request. */
export type Typed =
  | { readonly kind: "flag"; readonly text: string }
  /** An argument, by its name in the command's help. */
  | { readonly kind: "argument"; readonly text: string };

/**
 * Fields whose flag or argument has another name, by the last word of the field. All others are
 * found by their own name.
 */
export const otherNames: Readonly<Record<string, readonly string[]>> = {
  address: ["destination"],
  args: ["program", "command"],
  condition: ["for"],
  document: ["file"],
  exec_id: ["id"],
  guest_name: ["interface", "name"],
  id_or_name: ["pod", "pods"],
  interface: ["parts"],
  labels: ["change"],
  last_only: ["last"],
  max_packets: ["packets", "count"],
  memory_mib: ["memory"],
  path: ["image"],
  port: ["spec"],
  ports: ["spec"],
  process: ["program"],
  public_ips: ["public-ip"],
  reference: ["image"],
  remove: ["change"],
  runtime: ["for"],
  set: ["change"],
  snap_bytes: ["snaplen"],
  subnets: ["subnet", "cidr"],
};

/** Units at the end of a field's name, which flags leave to their value: `timeout_ms`, `for_s`. */
const unit = /_(?:ms|s|mib|bytes|lines)$/;

/**
 * The flag or argument that gave an error's field its value: what the command recorded for the
 * field, else what the command's tree has for its name, from its last word to its first. Undefined
 * when nothing of that was typed.
 */
export function typedFor(
  field: string,
  given: GivenFlags,
  command: Command | undefined,
): Typed | undefined {
  if (field.startsWith("--")) return { kind: "flag", text: field };
  const recorded = given.flagOf(field);
  if (recorded !== undefined)
    return inPlaceOf(recorded, command) ?? { kind: "flag", text: recorded };
  if (command === undefined) return undefined;
  // Where flags are recorded, a field without one came out of the file.
  const isOfFile = !given.isEmpty && command.getOptionValueSource("file") === "cli";
  const words = field.replaceAll(/\[[^\]]*\]/g, "").split(".");
  for (const word of words.toReversed())
    for (const name of namesOf(word)) {
      const flag = isOfFile ? undefined : flagOf(command, name);
      const found = flag ?? argumentOf(command, name);
      if (found !== undefined) return found;
    }
  return undefined;
}

/** The argument that was typed in the place of a flag of its name: `create NAME`. */
function inPlaceOf(flag: string, command: Command | undefined): Typed | undefined {
  const name = flag.slice("--".length);
  if (command === undefined || flagOf(command, name) !== undefined) return undefined;
  return argumentOf(command, name);
}

/** `dns_servers` may be `--dns-servers` or `--dns-server`, `timeout_ms` is `--timeout`. */
function namesOf(word: string): readonly string[] {
  const kebab = word.replaceAll("_", "-");
  const bare = word.replace(unit, "").replaceAll("_", "-");
  return [
    ...new Set([
      kebab,
      bare,
      kebab.replace(/s$/, ""),
      ...(Object.hasOwn(otherNames, word) ? (otherNames[word] ?? []) : []),
    ]),
  ];
}

function flagOf(command: Command, name: string): Typed | undefined {
  const option = command.options.find(
    (each) =>
      each.long === `--${name}` && command.getOptionValueSource(each.attributeName()) === "cli",
  );
  return option === undefined ? undefined : { kind: "flag", text: `--${name}` };
}

function argumentOf(command: Command, name: string): Typed | undefined {
  const at = command.registeredArguments.findIndex((each) => each.name() === name);
  const value: unknown = command.processedArgs[at];
  if (at < 0 || value === undefined || (Array.isArray(value) && value.length === 0))
    return undefined;
  return { kind: "argument", text: name.toUpperCase() };
}
