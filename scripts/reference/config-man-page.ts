import { type ConfigKey, configKeys } from "../../daemon/config/schema.ts";
import { defaultOf, typeOf } from "./configuration.ts";
import { bold, heading, roff, section, seeAlso, verbatim } from "./roff.ts";

/** Where podnetd looks for its configuration, and how the file is written. */
const description = [
  // Names of variables stay whole.
  ".nh",
  ".ad l",
  ".PP",
  `podnetd reads ${bold("/etc/podnet/config.toml")}, or the file that ${bold("--config")} or ${bold("PODNET_CONFIG")} names.`,
  "The file is TOML. Each key may be left out, and so may the file.",
  roff("A key that podnetd does not know is an error; podnetd then does not start."),
  ".PP",
  "An environment variable overrides the file, and a flag overrides both.",
  "A list in a variable or a flag is written with commas: a,b.",
  ".PP",
  "podnetd reads its configuration at its start only.",
  `${bold("podnetd config --resolved")} prints the value of each key and where the value comes from.`,
];

/** Prose of the schema: its code has no marks of Markdown in a manual page. */
const plain = (text: string): string => roff(text.replaceAll("`", ""));

function entry(each: ConfigKey, prefix: string): string[] {
  return [
    ".TP",
    `${bold(each.key.slice(prefix.length))} = \\fI${plain(typeOf(each))}\\fR`,
    `${plain(each.help)}.`,
    ".br",
    `Default: ${plain(defaultOf(each).words)}. Flag: ${bold(each.flag)}. Variable: ${bold(each.env)}.`,
  ];
}

/** The manual page of podnetd's configuration: every key of the schema, by table. */
export function configManPage(): string {
  const name = "podnet-config.toml";
  const tables = Map.groupBy(configKeys, ({ key }) => key.slice(0, key.lastIndexOf(".") + 1));
  return [
    heading(name, 5, "the schema of the configuration"),
    section("NAME", [`${roff(name)} \\- configuration of podnetd`]),
    section("SYNOPSIS", ["/etc/podnet/config.toml"]),
    section("DESCRIPTION", description),
    ...[...tables].map(([prefix, keys]) =>
      section(
        prefix === "" ? "KEYS OUTSIDE OF TABLES" : `TABLE [${roff(prefix.slice(0, -1))}]`,
        keys.flatMap((each) => entry(each, prefix)),
      ),
    ),
    section(
      "EXAMPLES",
      verbatim(['log_level = "debug"', "", "[network]", 'cidr = "10.20.0.0/16"', "mtu = 1400"]),
    ),
    section("SEE ALSO", seeAlso(["podnet(1)", "podnetd(8)"])),
  ].join("");
}
