import { readdirSync } from "node:fs";
import path from "node:path";
import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { readRegular } from "../../linux/files/regular-file.ts";
import {
  type ListedPlugin,
  parseConflist,
  parsePlugin,
  parseSinglePlugin,
  type PluginList,
} from "./list.ts";

/** Bytes of a file; no list comes near. */
const fileLimit = 1024 * 1024;

export interface FoundList {
  readonly list: PluginList;
  readonly file: string;
  /** One for each earlier file that is unusable, with the reason. */
  readonly warnings: readonly string[];
}

/**
 * The network that a runtime uses: the first file, by name, that is a list of plugins (`.conflist`)
 * or one plugin (`.conf`, `.json`), as kubelet chooses it; with `network` the first of that name.
 * Throws `CONFIG_INVALID` when there is none; its message says why each file is unusable.
 */
export function findList(directory: string, network?: string): FoundList {
  const warnings: string[] = [];
  for (const name of namesIn(directory, /\.(?:conflist|conf|json)$/)) {
    const file = path.join(directory, name);
    try {
      const list = readList(directory, file);
      if (network === undefined || list.name === network) return { list, file, warnings };
    } catch (thrown) {
      warnings.push(`${printable(name)}: ${toPodnetError(thrown).message}`);
    }
  }
  throw new PodnetError(
    "CONFIG_INVALID",
    [
      `There is no list of CNI plugins${network === undefined ? "" : ` for a network "${printable(network)}"`}`,
      ...warnings,
    ].join("; "),
    {
      hint: `Put a .conflist with at least one plugin into ${directory}`,
      field: directory,
    },
  );
}

function readList(directory: string, file: string): PluginList {
  const bytes = readBounded(file);
  if (!file.endsWith(".conflist")) return parseSinglePlugin(bytes);
  const list = parseConflist(bytes);
  const plugins = [...list.plugins, ...(list.inlinedOnly ? [] : besides(directory, list.name))];
  if (plugins.length > 0) return { ...list, plugins };
  throw new PodnetError("CONFIG_INVALID", "The list has no plugins", {
    field: "plugins",
    hint: "Write at least one plugin with a type",
  });
}

/** A list's plugins that have files of their own (CNI 1.1.0), in the order of their names. */
const besides = (directory: string, network: string): readonly ListedPlugin[] =>
  namesIn(path.join(directory, network), /\.conf$/).map((name) =>
    parsePlugin(readBounded(path.join(directory, network, name))),
  );

/** A directory that is not there has no files. */
function namesIn(directory: string, pattern: RegExp): string[] {
  try {
    return readdirSync(directory)
      .filter((name) => pattern.test(name))
      .toSorted();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
    if (code === "ENOENT" || code === "ENOTDIR") return [];
    throw new PodnetError("CONFIG_INVALID", `${directory} cannot be read: ${String(code)}`, {
      hint: "Let podnetd's user read it",
      cause,
    });
  }
}

/** A pipe of such a name would block podnetd, and is not a list. */
function readBounded(file: string): Uint8Array {
  try {
    return readRegular(file, fileLimit, { follow: true });
  } catch (cause) {
    if (!isPodnetError(cause)) throw cause;
    throw new PodnetError("CONFIG_INVALID", cause.message, {
      hint: "Put a list of CNI plugins there",
      cause,
    });
  }
}
