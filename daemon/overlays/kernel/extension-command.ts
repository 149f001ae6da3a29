import type { Cidr, Ip } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";

/** The data for an extension's commands: about a host of the overlay, or about this one. */
export interface ExtensionValues {
  /** The overlay's network; only for commands after the start. */
  readonly network?: Cidr;
  readonly network6?: Cidr;
  readonly subnet?: Cidr;
  readonly subnet6?: Cidr;
  readonly publicIp?: Ip;
  readonly publicIp6?: Ip;
}

/**
 * The environment variables for these values: flannel's, and podnet's own for the second family.
 */
export const extensionVariables = (values: ExtensionValues): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries({
      NETWORK: values.network,
      SUBNET: values.subnet,
      PUBLIC_IP: values.publicIp,
      IPV6_NETWORK: values.network6,
      IPV6_SUBNET: values.subnet6,
      PUBLIC_IPV6: values.publicIp6,
    }).filter((entry): entry is [string, Cidr & Ip] => entry[1] !== undefined),
  );

const variable = /\$(?:\{(\w+)\}|(\w+))/g;

/**
 * The program and arguments of a command of the configuration, as flannel computes them: split at
 * blanks, then `$NAME` and `${NAME}` replaced; an unknown variable is empty. No shell is involved:
 * a value is never split and runs nothing. Throws `OVERLAY_CONFIG_INVALID` if there is no program.
 */
export function extensionArgv(
  command: string,
  variables: Readonly<Record<string, string>>,
): readonly [string, ...string[]] {
  const words = command.split(/\s+/).filter((word) => word !== "");
  const [program, ...rest] = words.map((word) =>
    word.replaceAll(variable, (_, braced: string | undefined, bare: string | undefined) => {
      const name = braced ?? bare ?? "";
      return Object.hasOwn(variables, name) ? (variables[name] ?? "") : "";
    }),
  );
  if (program === undefined || program === "" || command.includes("\0"))
    throw new PodnetError("OVERLAY_CONFIG_INVALID", "A command of the extension names no program", {
      field: "Backend",
      hint: "Write a program and its arguments, such as /usr/local/bin/add-route $SUBNET $PUBLIC_IP",
      details: { rule: "extension-command" },
    });
  return [program, ...rest];
}
