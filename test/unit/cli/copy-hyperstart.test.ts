import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import type { Podnet } from "../../../api/client.ts";
import { copyToPod } from "../../../cli/copy/to-pod.ts";

// `podnet cp` into a guest whose programs are real ones here, with few of them linked by name, and
// which loses what does not fit into a pipe: as a hyperstart's own image does.

interface Start {
  readonly input: {
    readonly case: string;
    readonly value: { readonly args: readonly string[] } & Uint8Array;
  };
}

interface Behaviour {
  readonly kind?: string;
  /** Bytes of input that a program gets; the others are lost without a word. */
  readonly room?: number;
  /** Bytes of input after which the program is killed, which counts as success. */
  readonly killsAfter?: number;
}

/**
 * A guest with a directory of programs: `sh` and `tar` by their names, and a busybox that has all
 * others.
 */
class FakeGuest {
  readonly root = mkdtempSync(path.join(tmpdir(), "podnet-copy-"));
  readonly #programs = mkdtempSync(path.join(tmpdir(), "podnet-programs-"));
  readonly #behaviour: Behaviour;

  constructor(behaviour: Behaviour = {}) {
    this.#behaviour = behaviour;
    for (const name of ["sh", "tar"])
      symlinkSync(path.join("/bin", name), path.join(this.#programs, name));
    const busybox = path.join(this.#programs, "busybox");
    writeFileSync(busybox, '#!/bin/sh\nPATH=/usr/bin:/bin exec "$@"\n');
    chmodSync(busybox, 0o755);
  }

  async copy(source: string, target: string): Promise<void> {
    const { kind = "hyperstart" } = this.#behaviour;
    const podnet = {
      pods: {
        exec: this.#exec.bind(this),
        get: () => Promise.resolve({ pod: { guest: { kind } } }),
      },
    };
    const guest = {
      podnet: podnet as unknown as Podnet,
      idOrName: "old",
      signal: new AbortController().signal,
    };
    await copyToPod(guest, { source, target: path.join(this.root, target), followLinks: false });
  }

  async *#exec(requests: AsyncIterable<Start>): AsyncGenerator<object> {
    const { room = Infinity, killsAfter = Infinity } = this.#behaviour;
    const given = requests[Symbol.asyncIterator]();
    const first = (await given.next()) as { value: Start };
    const [program = "", ...args] = first.value.input.value.args;
    const child = spawn(program, args, { env: { PATH: this.#programs } });
    child.stdin.on("error", () => {});
    const feed = async (): Promise<void> => {
      let taken = 0;
      for (let next = await given.next(); next.done !== true; next = await given.next()) {
        const data: Uint8Array = next.value.input.value;
        child.stdin.write(data.subarray(0, Math.max(0, room - taken)));
        taken += data.length;
        if (taken >= killsAfter) child.kill("SIGKILL");
      }
      child.stdin.end();
    };
    void feed();
    const collect = async (stream: NodeJS.ReadableStream): Promise<Buffer> => {
      const parts: Buffer[] = [];
      for await (const part of stream) parts.push(Buffer.from(part));
      return Buffer.concat(parts);
    };
    const [stdout, stderr] = await Promise.all([
      collect(child.stdout),
      collect(child.stderr),
      once(child, "close"),
    ]);
    yield { output: { case: "stdout", value: stdout } };
    yield { output: { case: "stderr", value: stderr } };
    // As a hyperstart says it: 0 for a program that a signal killed.
    yield { output: { case: "exit", value: { code: child.exitCode ?? 0 } } };
  }
}

const here = mkdtempSync(path.join(tmpdir(), "podnet-source-"));
const data = Buffer.from(Uint8Array.from({ length: 200_000 }, (_, i) => (i * 7) & 255));
const big = path.join(here, "big");
writeFileSync(big, data, { mode: 0o640 });
mkdirSync(path.join(here, "tree/inner"), { recursive: true });
writeFileSync(path.join(here, "tree/inner/data"), data);
const names = (guest: FakeGuest): string[] => readdirSync(guest.root);

test("200 KB go into a hyperstart whole, in blocks, with the few programs that it links", async (t) => {
  const guest = new FakeGuest({ room: 57_344 });
  await guest.copy(big, "copy");
  t.deepEqual(readFileSync(path.join(guest.root, "copy")), data);
  t.is(statSync(path.join(guest.root, "copy")).mode & 0o777, 0o640);
  await guest.copy(path.join(here, "tree"), "");
  t.deepEqual(readFileSync(path.join(guest.root, "tree/inner/data")), data);
  // Into a directory that is there, and over what is in it.
  await guest.copy(path.join(here, "tree"), "");
  await guest.copy(path.join(here, "tree/."), "tree");
  t.deepEqual(names(guest).toSorted(), ["copy", "tree"], "nothing else is left");
});

test("a guest that loses input is found out, and what was there stays", async (t) => {
  for (const behaviour of [{ room: 10_000 }, { killsAfter: 20_000 }]) {
    const guest = new FakeGuest(behaviour);
    writeFileSync(path.join(guest.root, "copy"), "before");
    await t.throwsAsync(guest.copy(big, "copy"), {
      code: "COMMAND_FAILED",
      message: /^Of 49152 bytes \d+ arrived in the guest/,
    });
    t.is(readFileSync(path.join(guest.root, "copy"), "utf8"), "before");
  }
});

test("a copy that breaks off on its way leaves what was there, with podnet's agent too", async (t) => {
  const guest = new FakeGuest({ kind: "podnet", room: 100_000 });
  writeFileSync(path.join(guest.root, "copy"), "before");
  const error = await t.throwsAsync(guest.copy(big, "copy"), { code: "COMMAND_FAILED" });
  t.regex(error?.message ?? "", /^"tar" in the guest ended with/);
  t.is(readFileSync(path.join(guest.root, "copy"), "utf8"), "before");
  await t.throwsAsync(guest.copy(path.join(here, "tree"), "new"), { code: "COMMAND_FAILED" });
  t.deepEqual(names(guest), ["copy"], "no half of a new directory either");
});

test("a copy whose script is killed is no success, though the guest says that it ended with 0", async (t) => {
  const guest = new FakeGuest({ kind: "podnet", killsAfter: 100_000 });
  writeFileSync(path.join(guest.root, "copy"), "before");
  await t.throwsAsync(guest.copy(big, "copy"), {
    code: "COMMAND_FAILED",
    message: /ended before it had done everything/,
  });
  t.is(readFileSync(path.join(guest.root, "copy"), "utf8"), "before");
});

test("a file or link of that name is replaced; what a link leads to is not touched", async (t) => {
  const guest = new FakeGuest({ kind: "podnet" });
  writeFileSync(path.join(guest.root, "other"), "other's");
  symlinkSync("other", path.join(guest.root, "big"));
  await guest.copy(big, "");
  t.deepEqual(readFileSync(path.join(guest.root, "big")), data);
  t.is(readFileSync(path.join(guest.root, "other"), "utf8"), "other's");
});
