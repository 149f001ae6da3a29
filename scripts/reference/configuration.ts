import * as z from "zod";
import { configKeys, type ConfigKey } from "../../daemon/config/schema.ts";
import { resolveConfig } from "../../daemon/config/config.ts";

/** Defaults that depend on other keys or on the host, in words. */
const derived: Readonly<Record<string, string>> = {
  disks_dir: "`disks` in `state_dir`",
  socket: "`podnet.sock` in `run_dir`",
  "access.operator": "the members of `socket_group`",
  "access.image_paths":
    "the directory of the default image, `images` in `state_dir`, `/usr/share/podnet`",
  "cni.socket": "`cni.sock` in `run_dir`",
  "cni.pending_dir": "`cni-pending` in `state_dir`",
  "qemu.arch": "the host's",
  "image.kernel": "`build/image/vmlinux` of the checkout, else `/usr/share/podnet/vmlinux`",
  "image.initrd":
    "`build/image/initramfs.gz` of the checkout, else `/usr/share/podnet/initramfs.gz`",
};

const code = (text: string): string => `\`${text}\``;

/** A cell of a Markdown table. */
const cell = (text: string): string => text.replaceAll("|", "\\|");

function bounds(schema: z.ZodType): string {
  if (!(schema instanceof z.ZodNumber)) return "";
  const { minValue, maxValue } = schema;
  return minValue === null || maxValue === null ? "" : `, ${minValue} to ${maxValue}`;
}

/** A key's type in words, with its bounds; values are code. */
export function typeOf({ kind, choices, schema }: ConfigKey): string {
  if (kind === "choice") return choices.map((choice) => code(`"${choice}"`)).join(" or ");
  if (kind === "list") return schema.safeParse(["x"]).success ? "list of texts" : "list of paths";
  if (kind === "text" && !schema.safeParse("x").success && schema.safeParse("/x").success)
    return "absolute path";
  return `${kind}${bounds(schema)}`;
}

/** An empty file and no variables: what is left are the defaults. */
const defaults = new Map(
  resolveConfig({
    env: {},
    flags: new Map(),
    file: "/dev/null",
    checkout: "/nonexistent",
  }).settings.map(([{ key }, { value }]) => [key, value]),
);

/** A key's default: its value, or in words where it depends on the host or on other keys. */
export function defaultOf({ key }: ConfigKey): {
  readonly value?: unknown;
  readonly words: string;
} {
  const words = derived[key];
  if (words !== undefined) return { words };
  const value = defaults.get(key);
  return value === undefined ? { words: "none" } : { value, words: code(JSON.stringify(value)) };
}

/** The page of every key that podnetd's configuration has. */
export function configurationPage(): string {
  const row = (each: ConfigKey): string => {
    const cells = [code(each.key), typeOf(each), defaultOf(each).words, each.help];
    return `| ${[...cells, `${code(each.flag)}, ${code(each.env)}`].map(cell).join(" | ")} |`;
  };
  const tables = Map.groupBy(configKeys, ({ key }) => key.slice(0, key.lastIndexOf(".") + 1));
  const sections = [...tables].map(([prefix, keys]) =>
    [
      `## ${prefix === "" ? "Keys outside of tables" : code(`[${prefix.slice(0, -1)}]`)}`,
      "",
      "| key | type | default | meaning | flag, variable |",
      "|---|---|---|---|---|",
      ...keys.map(row),
      "",
    ].join("\n"),
  );
  return `# Configuration

podnetd reads \`/etc/podnet/config.toml\`, or the file that \`--config\` or \`PODNET_CONFIG\` names.
An environment variable overrides the file, and a flag overrides both. A list in a variable or flag
is written with commas: \`a,b\`. podnetd reads its configuration at its start only.

\`podnetd config --resolved\` prints the value of each key and where the value comes from.
[How to configure podnetd](../how-to/configure.md) explains the choices.

${sections.join("\n")}`;
}
