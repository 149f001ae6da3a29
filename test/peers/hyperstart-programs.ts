import { setTimeout as sleep } from "node:timers/promises";
import type { GuestNetwork } from "./hyperstart-network.ts";
import { type IpFlavour, ip, kernelFile } from "./hyperstart-text.ts";

export interface ProgramIo {
  /** Some of stdin; undefined at its end. */
  read(): Promise<Buffer | undefined>;
  stdout(data: Buffer | string): void;
  stderr(data: Buffer | string): void;
}

/** Takes its arguments, name first; its result is the exit status. */
export type Program = (args: readonly string[], io: ProgramIo) => number | Promise<number>;

/** What programs see of the machine: the agent's own namespaces, or a container's. */
export interface Surroundings {
  readonly network: GuestNetwork;
  readonly ip: IpFlavour;
  readonly applets: "all" | "few";
  /** The kernel's, for all programs. */
  readonly clock: { behindMs: number };
  readonly files: ReadonlyMap<string, Buffer>;
  readonly hostname: string;
}

/** Status of what cannot be run; recorded of a missing ipvsadm. */
export const notFound = 127;

/** What hyperstart's own image links to its busybox. */
const linked: readonly string[] = ["busybox", "sh", "tar", "hwclock", "modprobe", "depmod"];

/** Runs what `args` names, by path or name, or as an applet of busybox. */
export function programOf(around: Surroundings): Program {
  const programs = programsOf(around);
  return (args, io) => {
    const [name, ...rest] = args;
    const base = (name ?? "").replace(/^.*\//, "");
    if (base === "busybox" && rest.length > 0)
      return programOf({ ...around, applets: "all" })(rest, io);
    if (around.applets === "few" && !linked.includes(base)) return notFound;
    return Object.hasOwn(programs, base) ? (programs[base] as Program)(args, io) : notFound;
  };
}

function programsOf(around: Surroundings): Readonly<Record<string, Program>> {
  return {
    true: () => 0,
    false: () => 1,
    echo: ([, ...words], io) => {
      const bare = words[0] === "-n";
      io.stdout(words.slice(bare ? 1 : 0).join(" ") + (bare ? "" : "\n"));
      return 0;
    },
    async sleep([, seconds = "0"]) {
      await sleep(Number(seconds) * 1000, undefined, { ref: false });
      return 0;
    },
    date: ([, ...args], io) => {
      const set = /^@(\d+)$/.exec(args[args.indexOf("-s") + 1] ?? "");
      if (set !== null) around.clock.behindMs = Date.now() - Number(set[1]) * 1000;
      io.stdout(`${Math.floor((Date.now() - around.clock.behindMs) / 1000)}\n`);
      return 0;
    },
    hostname: (_args, io) => {
      io.stdout(`${around.hostname}\n`);
      return 0;
    },
    ip: ([, ...args], io) => {
      const { stdout = "", stderr = "", status } = ip(args, around.network, around.ip);
      io.stdout(stdout);
      io.stderr(stderr);
      return status;
    },
    ls: ([, path = "/"], io) => {
      if (path.replace(/\/$/, "") !== "/sys/class/net") {
        io.stderr(`ls: ${path}: No such file or directory\n`);
        return 1;
      }
      io.stdout(
        around.network.links
          .map(({ name }) => `${name}\n`)
          .toSorted()
          .join(""),
      );
      return 0;
    },
    cat: ([, ...paths], io) => cat(paths, io, around),
    wc: async (args, io) => {
      let count = 0;
      for (let data = await io.read(); data; data = await io.read()) count += data.length;
      io.stdout(`${count}\n`);
      return args[1] === "-c" ? 0 : 1;
    },
    sh: (args, io) => {
      if (args[1] !== "-c" || args[2] === undefined) return 2;
      return shell(args[2], io, programOf(around));
    },
  };
}

async function cat(paths: readonly string[], io: ProgramIo, around: Surroundings): Promise<number> {
  if (paths.length === 0)
    for (let data = await io.read(); data; data = await io.read()) io.stdout(data);
  let status = 0;
  for (const path of paths) {
    const content = kernelFile(path, around.network) ?? around.files.get(path);
    if (content === undefined) {
      io.stderr(`cat: can't open '${path}': No such file or directory\n`);
      status = 1;
    } else io.stdout(content);
  }
  return status;
}

/** As much of a shell as a check in a guest uses: words, quotes, `;`, `&&`, `||`, `>&2`, `exit`. */
async function shell(script: string, io: ProgramIo, run: Program): Promise<number> {
  const tokens = script.match(/'[^']*'|"[^"]*"|&&|\|\||[;|\n]|[0-9]?>&[0-9]|[^\s;&|'"]+/g) ?? [];
  let status = 0;
  let skip = false;
  let words: string[] = [];
  for (const token of [...tokens, ";"]) {
    if (!/^(?:;|\n|&&|\|\|)$/.test(token)) {
      words.push(/^['"]/.test(token) ? token.slice(1, -1) : token);
      continue;
    }
    if (words.length > 0 && !skip) {
      if (words[0] === "exit") return Number(words[1] ?? status);
      const toStderr = words.includes(">&2");
      const args = words.filter((word) => !/^[0-9]?>&[0-9]$/.test(word));
      status = await run(args, toStderr ? { ...io, stdout: io.stderr } : io);
      if (status === notFound) io.stderr(`sh: ${args[0]}: not found\n`);
    }
    skip = (token === "&&" && status !== 0) || (token === "||" && status === 0);
    words = [];
  }
  return status;
}
