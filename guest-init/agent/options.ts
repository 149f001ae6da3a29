/** How the agent was started. */
export interface Options {
  readonly kind: "run";
  /** PID 1 of the guest: mounts, modules, power-off are its own. */
  readonly isInit: boolean;
  /** Name of a virtio serial port, or a path. */
  readonly channel: string;
  readonly tty: string;
}

export type Parsed =
  | Options
  | { readonly kind: "version" }
  | { readonly kind: "usage"; readonly message: string };

export const usage = `usage: podnet-guest [--channel NAME|PATH] [--tty NAME|PATH]
  --channel  control channel: a virtio serial port's name, or the path of a device or unix socket
  --tty      channel of standard input and output, likewise
  --version  prints the version`;

/**
 * Reads the command line. The kernel hands PID 1 the words of its own that it does not know: they
 * are ignored.
 */
export function parseOptions(
  args: readonly string[],
  isInit: boolean,
  names: { readonly control: string; readonly tty: string },
): Parsed {
  let channel: string = names.control;
  let tty: string = names.tty;
  for (let i = 0; i < args.length; i++) {
    const word = args[i] as string;
    const value = args[i + 1];
    if (word === "--version") return { kind: "version" };
    if ((word === "--channel" || word === "--tty") && value !== undefined && value !== "") {
      if (word === "--channel") channel = value;
      else tty = value;
      i++;
    } else if (!isInit) {
      return { kind: "usage", message: `"${word}" is not an option, or lacks its value` };
    }
  }
  return { kind: "run", isInit, channel, tty };
}
