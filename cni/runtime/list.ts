import { decodeConfig, isCniName } from "../protocol/config-read.ts";
import {
  asObject,
  flagAt,
  type JsonObject,
  listAt,
  objectAt,
  textAt,
  textsAt,
} from "../protocol/json.ts";
import { cniError, refusal } from "../protocol/refusal.ts";
import { type CniVersion, cniVersions, isCniVersion, parseVersion } from "../protocol/version.ts";

/** One plugin of a list: the name of its program, and its unchanged configuration. */
export interface ListedPlugin {
  readonly type: string;
  /** Names of the capabilities whose values the plugin receives. */
  readonly capabilities: ReadonlySet<string>;
  readonly config: JsonObject;
}

/** A network as a runtime finds it: plugins that are run one after the other. */
export interface PluginList {
  readonly version: CniVersion;
  readonly name: string;
  readonly plugins: readonly ListedPlugin[];
  /** Whether CHECK is disabled. */
  readonly disableCheck: boolean;
  /** No files alongside the list have more plugins for it. */
  readonly inlinedOnly: boolean;
}

/**
 * Reads a `.conflist`. Throws a `PodnetError` that says what is wrong with it; a list without
 * plugins is not.
 */
export function parseConflist(bytes: Uint8Array): PluginList {
  const object = decodeConfig(bytes);
  return {
    ...identity(object),
    plugins: listAt(object, "plugins", "plugins").map((value, i) =>
      pluginOf(value, `plugins[${i}]`),
    ),
    disableCheck: flagAt(object, "disableCheck", "disableCheck"),
    inlinedOnly: flagAt(object, "loadOnlyInlinedPlugins", "loadOnlyInlinedPlugins"),
  };
}

/**
 * A list as a `.conflist` of its own says it, with all of its plugins: `parseConflist` makes the
 * same of it.
 */
export const conflistOf = ({ version, name, plugins, disableCheck }: PluginList): JsonObject => ({
  cniVersion: version,
  name,
  plugins: plugins.map(({ config }) => config),
  disableCheck,
  loadOnlyInlinedPlugins: true,
});

/**
 * Reads a `.conf` or `.json`, which has one plugin, and makes a list of it. Throws as
 * `parseConflist` does.
 */
export function parseSinglePlugin(bytes: Uint8Array): PluginList {
  const object = decodeConfig(bytes);
  return {
    ...identity(object),
    plugins: [pluginOf(object, "stdin")],
    disableCheck: false,
    inlinedOnly: true,
  };
}

/**
 * Reads one plugin's own file, `NETWORK/*.conf` alongside a list: it has neither name nor version.
 */
export const parsePlugin = (bytes: Uint8Array): ListedPlugin =>
  pluginOf(decodeConfig(bytes), "stdin");

function identity(object: JsonObject): Pick<PluginList, "version" | "name"> {
  const name = textAt(object, "name", "name");
  if (name === undefined || !isCniName(name))
    throw refusal("The list has no name that CNI allows", {
      cni: cniError.config,
      field: "name",
      hint: "Give it a name from A-Z a-z 0-9 _ . - that starts with a letter or a digit",
    });
  return { version: versionOf(object), name };
}

/** The newest that we know of those it allows; without a choice the one it names. */
function versionOf(object: JsonObject): CniVersion {
  const named = textAt(object, "cniVersion", "cniVersion");
  const allowed = textsAt(object, "cniVersions", "cniVersions").filter(isCniVersion);
  if (isCniVersion(named)) allowed.push(named);
  return cniVersions.findLast((version) => allowed.includes(version)) ?? parseVersion(named);
}

function pluginOf(value: unknown, field: string): ListedPlugin {
  const config = asObject(value, field);
  const capabilities = objectAt(config, "capabilities", `${field}.capabilities`);
  return {
    type: typeOf(config, `${field}.type`),
    capabilities: new Set(
      Object.keys(capabilities).filter((name) =>
        flagAt(capabilities, name, `${field}.capabilities.${name}`),
      ),
    ),
    config,
  };
}

/** The name of a program; never a path, which would lead out of the directories of plugins. */
function typeOf(config: JsonObject, field: string): string {
  const type = textAt(config, "type", field);
  if (type !== undefined && isCniName(type)) return type;
  throw refusal(type === undefined ? "A plugin has no type" : "A plugin's type is no file name", {
    cni: cniError.config,
    field,
    hint: "Write the name of the plugin's program, such as bridge",
  });
}
