import type { IfName } from "../../core/names.ts";
import { parseIfName, printable } from "../../core/names.ts";
import { parseArgs } from "./args.ts";
import type { CniConfig } from "./config.ts";
import { decodeConfig, isCniName, parseConfig } from "./config-read.ts";
import { read } from "./json.ts";
import { cniError, refusal } from "./refusal.ts";
import { type CniCommand, type CniRequest, cniCommands } from "./request.ts";
import { atLeast, type CniVersion } from "./version.ts";

type Environment = Readonly<Record<string, string>>;

interface Verb {
  /** The oldest version whose configuration allows it. */
  readonly since: CniVersion;
  /** Which variables must be there and not be empty. */
  readonly needs: readonly string[];
}

/**
 * The specification calls CNI_PATH optional; runtimes always set it, the reference plugins demand
 * it, podnet has no use for it.
 */
const verbs: Readonly<Record<Exclude<CniCommand, "VERSION">, Verb>> = {
  ADD: { since: "0.1.0", needs: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] },
  DEL: { since: "0.1.0", needs: ["CNI_CONTAINERID", "CNI_IFNAME"] },
  CHECK: { since: "0.4.0", needs: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] },
  GC: { since: "1.1.0", needs: [] },
  STATUS: { since: "1.1.0", needs: [] },
};

/**
 * Reads one call of a plugin: its environment and its standard input. Throws a `PodnetError` whose
 * `details.cni` is CNI's number: 1 version, 4 environment, 6 decoding, 7 configuration.
 */
export function parseRequest(env: Environment, stdin: Uint8Array): CniRequest {
  const command = parseCommand(env["CNI_COMMAND"]);
  if (command === "VERSION") return { command };
  const verb = verbs[command];
  const missing = verb.needs.filter((name) => (env[name] ?? "") === "");
  if (missing.length > 0)
    throw refusal(`required env variables [${missing.join(",")}] missing`, {
      cni: cniError.environment,
      field: missing[0] as string,
      hint: `Set ${missing.join(", ")} for ${command}`,
    });
  const adds = command === "ADD" || command === "CHECK";
  const config = parseConfig(decodeConfig(stdin), !adds);
  checkVerb(command, verb, config);
  const ofNetwork = {
    path: (env["CNI_PATH"] ?? "").split(":").filter((directory) => directory !== ""),
    args: parseArgs(env["CNI_ARGS"] ?? "", adds),
    config,
  };
  if (command === "GC" || command === "STATUS") return { command, ...ofNetwork };
  const ofAttachment = {
    ...ofNetwork,
    containerId: parseContainerId(env["CNI_CONTAINERID"] as string),
    ifName: parseInterface(env["CNI_IFNAME"] as string),
  };
  const netns = env["CNI_NETNS"] ?? "";
  if (command !== "DEL") return { command, ...ofAttachment, netns };
  return { command, ...ofAttachment, ...(netns === "" ? {} : { netns }) };
}

function parseCommand(text: string | undefined): CniCommand {
  const command = cniCommands.find((name) => name === text);
  if (command !== undefined) return command;
  throw refusal(
    text === undefined || text === ""
      ? "required env variables [CNI_COMMAND] missing"
      : `unknown CNI_COMMAND: ${printable(text)}`,
    {
      cni: cniError.environment,
      field: "CNI_COMMAND",
      hint: `Set CNI_COMMAND to one of ${cniCommands.join(", ")}`,
    },
  );
}

/** Whether the configuration allows the verb, and has what it needs. */
function checkVerb(command: CniCommand, { since }: Verb, config: CniConfig): void {
  if (!atLeast(config.version, since))
    throw refusal(`config version does not allow ${command}`, {
      cni: cniError.version,
      code: "UNSUPPORTED",
      field: "cniVersion",
      hint: `The configuration says ${config.version}; ${command} is of ${since} and newer`,
    });
  if (command === "CHECK" && config.prevResult === undefined)
    throw refusal("Required prevResult missing", {
      cni: cniError.config,
      field: "prevResult",
      hint: "Hand CHECK the result of the last ADD",
    });
  // An absent list is a runtime that does not say, not one that has nothing: everything would be
  // taken away.
  if (command === "GC" && config.validAttachments === undefined)
    throw refusal("cni.dev/valid-attachments missing", {
      cni: cniError.config,
      field: "cni.dev/valid-attachments",
      hint: "Hand GC the attachments that are in use, an empty list if there are none",
    });
}

function parseContainerId(text: string): string {
  if (isCniName(text)) return text;
  throw refusal("invalid characters in containerID", {
    cni: cniError.environment,
    field: "CNI_CONTAINERID",
    hint: `"${printable(text)}": use A-Z a-z 0-9 _ . -, a letter or a digit first`,
  });
}

const parseInterface = (text: string): IfName =>
  read(text, "CNI_IFNAME", parseIfName, cniError.environment);
