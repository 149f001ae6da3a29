/** What the command line of hypervisor/argv/argv.ts says to a QEMU, as far as it matters here. */
export interface CommandLine {
  /** Begins stopped (-S). */
  readonly paused: boolean;
  readonly pidFile: string | undefined;
  /** Paths of the listening sockets by the chardevs' ids, in their order. */
  readonly sockets: ReadonlyMap<string, string>;
  /** Chardevs with a QMP monitor on them. */
  readonly monitors: readonly string[];
  /** Devices with an id: id → driver, bus. */
  readonly devices: readonly Device[];
  readonly memoryMib: number;
  readonly processors: number;
  /** What it may have at most, where that was given. */
  readonly room: { readonly processors: number; readonly memoryMib: number } | undefined;
  /** The chardev of the serial console. */
  readonly console: string | undefined;
  readonly cmdline: string;
  readonly version: boolean;
}

export interface Device {
  readonly id: string;
  readonly driver: string;
  readonly bus: string;
  /** Its place on the bus, where it was given one. */
  readonly slot?: number;
}

/** Options podnet gives QEMU whose value has no meaning for a stand-in. */
const passedOver = new Set(
  "-name -machine -accel -cpu -display -object -add-fd -blockdev -kernel -initrd -boot".split(" "),
);
const understood = new Set([
  "-pidfile",
  "-chardev",
  "-mon",
  "-device",
  "-serial",
  "-append",
  "-smp",
  "-m",
]);
const flags = new Set(["-nodefaults", "-no-user-config", "-S", "--version", "-version"]);

/** Throws for what QEMU would not take, or a stand-in does not know. */
export function readCommandLine(args: readonly string[]): CommandLine {
  const given: [string, string][] = [];
  for (let at = 0; at < args.length; at++) {
    const option = args[at] as string;
    if (flags.has(option)) given.push([option, ""]);
    else if (!passedOver.has(option) && !understood.has(option)) fail(`${option}: invalid option`);
    else given.push([option, args[++at] ?? fail(`${option}: requires an argument`)]);
  }
  const values = (option: string): string[] =>
    given.filter(([name]) => name === option).map(([, value]) => value);
  const one = (option: string): string | undefined => values(option).at(-1);
  return {
    paused: values("-S").length > 0,
    pidFile: one("-pidfile"),
    sockets: new Map(values("-chardev").map(socketOf)),
    monitors: values("-mon").map((text) => properties(text).get("chardev") ?? ""),
    devices: values("-device").flatMap(deviceOf),
    ...sizeOf(properties(one("-m") ?? ""), properties(one("-smp") ?? "1")),
    console: one("-serial")?.replace(/^chardev:/, ""),
    cmdline: one("-append") ?? "",
    version: given.some(([option]) => option.endsWith("-version")),
  };
}

type Properties = ReadonlyMap<string, string>;

function sizeOf(
  memory: Properties,
  smp: Properties,
): Pick<CommandLine, "memoryMib" | "processors" | "room"> {
  const mib = (name: string, otherwise: number): number =>
    Number(memory.get(name)?.replace("M", "") ?? otherwise);
  const memoryMib = mib("size", 128);
  const processors = Number(smp.get(""));
  const maxcpus = smp.get("maxcpus");
  const room =
    maxcpus === undefined
      ? undefined
      : { processors: Number(maxcpus), memoryMib: mib("maxmem", memoryMib) };
  return { memoryMib, processors, room };
}

/** `a,b=c`: a is given the name `""`. */
function properties(text: string): ReadonlyMap<string, string> {
  return new Map(
    text.split(",").map((part) => {
      const at = part.indexOf("=");
      return at < 0 ? ["", part] : [part.slice(0, at), part.slice(at + 1)];
    }),
  );
}

function socketOf(text: string): [string, string] {
  const of = properties(text);
  if (of.get("") !== "socket" || of.get("server") !== "on" || of.get("wait") !== "off")
    fail(`-chardev ${text}: not known here`);
  return [of.get("id") ?? "", of.get("path") ?? ""];
}

function deviceOf(text: string): Device[] {
  const of = properties(text);
  const id = of.get("id");
  const place = of.get("addr");
  return id === undefined
    ? []
    : [
        {
          id,
          driver: of.get("") ?? "",
          bus: of.get("bus") ?? "",
          ...(place === undefined ? {} : { slot: Number(place) }),
        },
      ];
}

function fail(why: string): never {
  throw new Error(why);
}
