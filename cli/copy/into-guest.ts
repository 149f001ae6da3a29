import { randomBytes } from "node:crypto";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import type { Landing } from "./endpoint.ts";
import { type Guest, mustRun, runInGuest } from "./in-guest.ts";

/**
 * Most bytes of one block to a hyperstart: it loses input that the program has not read, behind
 * what a pipe and its own buffer hold. podnetd refuses more than 56 KiB to one program.
 */
const blockSize = 48 * 1024;
/**
 * The last word of a script that has done everything: a hyperstart calls a program that was killed
 * a success.
 */
const lastWord = "done";

/**
 * hyperstart's own image links few applets to its busybox; the others are there by `busybox NAME`.
 */
const applets = `b() { if command -v "$1" >/dev/null 2>&1; then "$@"; else busybox "$@"; fi; }`;

/** Adds its input to the file $1, and prints how long that is now. */
const append = `${applets}
umask 077
b cat >>"$1" && b wc -c <"$1"`;

/** The content comes from the file $4 where one is named, else from standard input. */
const begin = `${applets}
[ -z "$4" ] || exec <"$4" || exit`;
const end = `s=$?
b rm -rf "$2" "$4"
[ "$s" = 0 ] && echo ${lastWord}
exit "$s"`;

/**
 * Unpacks an archive into the directory $1. Its one entry $3 is unpacked in the directory $2 first
 * and moved into place: a failure on the way leaves the old content. Content of an existing
 * directory is unpacked in that directory.
 */
const unpack = `${begin}
put() {
  if [ -z "$3" ] || { [ -d "$1/$3" ] && [ ! -L "$1/$3" ]; }; then tar -xpf - -C "$1"; return; fi
  b mkdir -m 700 "$2" && tar -xpf - -C "$2" || return
  if [ -L "$1/$3" ]; then b rm -f "$1/$3" || return; fi
  b mv -f "$2/$3" "$1/$3"
}
put "$@"
${end}`;

/** Makes the file $3 in the directory $1, with the mode $5, without tar. */
const write = `${begin}
put() {
  b cat >"$2" && b chmod "$5" "$2" || return
  if [ -L "$1/$3" ]; then b rm -f "$1/$3" || return; fi
  b mv -f "$2" "$1/$3"
}
put "$@"
${end}`;

type Bytes = AsyncIterable<Uint8Array>;

/** Unpacks a tar archive in a guest. Throws `COMMAND_FAILED`. */
export const unpackThere = (guest: Guest, landing: Landing, archive: Bytes): Promise<void> =>
  place(guest, landing, { script: unpack, name: "tar", input: archive });

/** Writes one file in a guest without tar; `mode` is octal. Throws `COMMAND_FAILED`. */
export const writeThere = (
  guest: Guest,
  landing: Landing,
  { mode, content }: { readonly mode: string; readonly content: Bytes },
): Promise<void> => place(guest, landing, { script: write, name: "cat", input: content, mode });

interface Placing {
  readonly script: string;
  /** The program that does the work, for messages. */
  readonly name: string;
  readonly input: Bytes;
  readonly mode?: string;
}

async function place(
  guest: Guest,
  { directory, name = "" }: Landing,
  { script, name: what, input, mode = "" }: Placing,
): Promise<void> {
  const own = path.posix.join(directory, `.podnet-cp-${randomBytes(6).toString("hex")}`);
  const file = (await losesInput(guest)) ? `${own}.in` : "";
  const args = ["sh", "-c", script, "sh", directory, own, name, file, mode];
  if (file === "") return mustRun(guest, { args, name: what, input, lastWord });
  try {
    await bring(guest, file, input);
  } catch (thrown) {
    const remove = ["sh", "-c", `${applets}\nb rm -f "$1"`, "sh", file];
    await runInGuest(guest, { args: remove }).catch(() => {});
    throw thrown;
  }
  await mustRun(guest, { args, name: what, lastWord });
}

/** A plain hyperstart drops input that a program has not read in time. */
async function losesInput({ podnet, idOrName, signal }: Guest): Promise<boolean> {
  const { pod } = await podnet.pods.get({ idOrName }, { signal });
  return pod?.guest?.kind === "hyperstart";
}

/**
 * Brings bytes into a file in the guest, block by block; the guest says after each how much it has.
 */
async function bring(guest: Guest, file: string, input: Bytes): Promise<void> {
  let sent = 0;
  for await (const block of blocksOf(input)) {
    sent += block.length;
    const arrived = await appendBlock(guest, file, block);
    if (arrived === sent) continue;
    throw new PodnetError("COMMAND_FAILED", `Of ${sent} bytes ${arrived} arrived in the guest`, {
      hint: "Nothing was put into place; see that the guest has room, and try again",
      details: { sent, arrived },
    });
  }
}

async function appendBlock(guest: Guest, file: string, block: Uint8Array): Promise<number> {
  let said = "";
  async function* once(): AsyncGenerator<Uint8Array> {
    if (block.length > 0) yield block;
  }
  await mustRun(guest, {
    args: ["sh", "-c", append, "sh", file],
    name: "cat",
    input: once(),
    output: async (data) => {
      said = (said + Buffer.from(data).toString("latin1")).slice(0, 64);
    },
  });
  return Number(/^\s*(\d{1,15})\s*$/.exec(said)?.[1] ?? 0);
}

/** Cuts bytes into blocks of equal size except for the last; no bytes make one empty block. */
async function* blocksOf(input: Bytes): AsyncGenerator<Uint8Array> {
  const block = new Uint8Array(blockSize);
  let used = 0;
  let any = false;
  for await (const data of input) {
    for (let at = 0; at < data.length; ) {
      const part = data.subarray(at, at + blockSize - used);
      block.set(part, used);
      used += part.length;
      at += part.length;
      if (used < blockSize) continue;
      yield block.slice();
      any = true;
      used = 0;
    }
  }
  if (used > 0 || !any) yield block.slice(0, used);
}
