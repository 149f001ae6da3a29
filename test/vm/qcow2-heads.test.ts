import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import test from "ava";
import { lookAtDisk } from "../../hypervisor/disks/image-file.ts";
import { emptyQcow2 } from "../../hypervisor/disks/qcow2-copy.ts";
import { Random } from "../sim/random.ts";

const complete = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const heads = complete ? 20_000 : 500;

/** Where the header's fields begin, by their widths in bytes (QEMU's docs/interop/qcow2.txt). */
const fields = {
  4: [4, 16, 20, 32, 36, 56, 60, 96, 100, 104, 108, 112, 116],
  8: [8, 24, 40, 48, 64, 72, 80, 88],
} as const;
const edges = [0n, 1n, 2n, 3n, 4n, 8n, 16n, 104n, 112n, 512n, 65_535n, 65_536n, 131_072n, 262_144n];
const farEdges = [2n ** 31n, 2n ** 32n - 1n, 2n ** 63n, 2n ** 64n - 1n];

/** podnet leaves the entries of a snapshot table to QEMU, which then refuses the start. */
const leftToQemu = /snapshot table entry/;

/** A QEMU without a machine, which opens images and says what it finds. */
class Opener implements Disposable {
  readonly #qemu = spawn(
    "qemu-system-x86_64",
    "-machine none -nodefaults -display none -S -qmp stdio".split(" "),
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  readonly #lines = createInterface({ input: this.#qemu.stdout })[Symbol.asyncIterator]();

  async begin(): Promise<void> {
    await this.#lines.next();
    await this.#ask("qmp_capabilities", {});
  }

  /** Why QEMU does not open an image; undefined when it does. */
  async refusal(filename: string): Promise<string | undefined> {
    const file = { driver: "file", filename };
    const name = "image";
    const image = { driver: "qcow2", "node-name": name, "read-only": true, backing: null, file };
    const refused = await this.#ask("blockdev-add", image);
    if (refused === undefined) await this.#ask("blockdev-del", { "node-name": name });
    return refused;
  }

  async #ask(execute: string, given: object): Promise<string | undefined> {
    this.#qemu.stdin.write(`${JSON.stringify({ execute, arguments: given })}\n`);
    for (;;) {
      const { value, done } = await this.#lines.next();
      if (done === true) throw new Error("QEMU has ended");
      const answer = JSON.parse(value) as { return?: object; error?: { desc: string } };
      if (answer.error !== undefined) return answer.error.desc;
      if (answer.return !== undefined) return undefined;
    }
  }

  [Symbol.dispose](): void {
    this.#qemu.kill("SIGKILL");
  }
}

/**
 * Changes one to two fields, or single bytes, of an image's head. Returns what was changed, for
 * messages.
 */
function damage(head: Buffer, random: Random): string {
  const changes: string[] = [];
  for (let i = random.below(2); i >= 0; i--) {
    const width = random.pick([4, 8] as const);
    const at = random.chance(0.3) ? random.below(120) : random.pick(fields[width]);
    if (random.chance(0.4)) head[at] = random.below(256);
    else if (width === 8) head.writeBigUInt64BE(random.pick([...edges, ...farEdges]), at);
    else head.writeUInt32BE(Number(random.pick([...edges, ...farEdges]) & 0xffff_ffffn), at);
    changes.push(`${at}: ${head.subarray(at, at + width).toString("hex")}`);
  }
  return changes.join(", ");
}

test("podnet refuses every qcow2 head that QEMU refuses, before anything is made", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-heads-"));
  const path = join(directory, "image.qcow2");
  const { pieces, length } = emptyQcow2(64 << 20);
  const whole = Buffer.alloc(length);
  for (const { at, data } of pieces) data.copy(whole, at);
  writeFileSync(path, whole);
  const file = openSync(path, "r+");
  using qemu = new Opener();
  await qemu.begin();
  const random = new Random(seed);
  const seen = { opened: 0, refused: 0 };
  try {
    for (let i = 0; i < heads; i++) {
      const head = Buffer.from(whole.subarray(0, 128));
      const changed = damage(head, random);
      writeSync(file, head, 0, head.length, 0);
      const why = await qemu.refusal(path);
      const { kind } = lookAtDisk(path, "qcow2");
      seen[why === undefined ? "opened" : "refused"]++;
      if (why === undefined || leftToQemu.test(why)) continue;
      if (kind === "disk") t.fail(`QEMU: ${why}; changed ${changed} (seed ${seed})`);
    }
  } finally {
    closeSync(file);
    rmSync(directory, { recursive: true });
  }
  // Both kinds were there: neither did QEMU refuse all, nor did it open all.
  t.true(seen.opened > heads / 10 && seen.refused > heads / 10, JSON.stringify(seen));
});
