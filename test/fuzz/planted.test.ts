import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import test from "ava";
import type * as assembler from "../../guest-init/protocol/assembler.ts";
import type * as lines from "../../hypervisor/qmp/lines.ts";
import type * as attributes from "../../linux/rtnetlink/attributes.ts";
import type * as saveFormat from "../../network/firewall/iptables/save-format.ts";
import { Coverage, top } from "./engine/coverage.ts";
import { type Exploration, explore } from "./engine/explore.ts";
import { type Growth, superlinear } from "./engine/growth.ts";
import { runSeed } from "./engine/random.ts";
import type { Target } from "./engine/target.ts";

/** What the engine gets in CI; each fault must be found within it. */
const inputs = 4_000;
const seed = runSeed();
const folder = path.join(top, "build/fuzz/planted");

/**
 * A product file with one thing in it changed, as a module of its own; unchanged when `to` is the
 * same.
 */
async function planted(
  name: string,
  file: string,
  from: string,
  to: string,
): Promise<{ readonly module: unknown; readonly file: string }> {
  const text = readFileSync(path.join(top, file), "utf8");
  if (!text.includes(from)) throw new Error(`${file} has no "${from}" any more`);
  const absolute = text
    .replace(from, to)
    .replaceAll(
      /from "(\.[^"]+)"/g,
      (_, where: string) =>
        `from "${pathToFileURL(path.resolve(top, path.dirname(file), where)).href}"`,
    );
  mkdirSync(folder, { recursive: true });
  const copy = path.join(folder, `${name}.ts`);
  writeFileSync(copy, absolute);
  return {
    module: (await import(pathToFileURL(copy).href)) as unknown,
    file: path.relative(top, copy),
  };
}

interface Plant {
  readonly name: string;
  readonly file: string;
  readonly from: string;
  readonly to: string;
  readonly target: (module: never) => Pick<Target, "seeds" | "run" | "lengths" | "words">;
}

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);

const plants: readonly Plant[] = [
  {
    name: "a frame's length is believed",
    file: "guest-init/protocol/assembler.ts",
    from: "if (length < headerSize || length > limit) {",
    to: "if (length < headerSize) {",
    target: ({ FrameAssembler }: typeof assembler) => ({
      seeds: [bytes(0, 0, 0, 1, 0, 0, 0, 12, 1, 2, 3, 4)],
      lengths: () => [{ at: 4, bytes: 4, littleEndian: false }],
      run: (input) => {
        const lengthOf = (header: Uint8Array, at: number): number =>
          new DataView(header.buffer, header.byteOffset + at).getUint32(4);
        const frames = new FrameAssembler({
          headerSize: 8,
          lengthOf,
          limit: 64,
          itemOf: (found) => found,
        });
        frames.push(input);
        if (frames.reserved > 64 + 8) throw new Error(`It holds ${frames.reserved} bytes`);
      },
    }),
  },
  {
    name: "a line has no limit",
    file: "hypervisor/qmp/lines.ts",
    from: "this.#held + piece.length > this.#limit",
    to: "piece.length > this.#limit",
    target: ({ LineSplitter }: typeof lines) => ({
      seeds: [Buffer.from('{"return":{}}\r\n'), Buffer.from("x".repeat(40))],
      words: ["\n", "{}"],
      run: (input) => {
        const splitter = new LineSplitter(64);
        for (let at = 0; at < input.length; at += 16)
          try {
            for (const line of splitter.push(input.subarray(at, at + 16)))
              if (line.length > 64) throw new TypeError(`A line of ${line.length}`);
          } catch (error) {
            if (error instanceof TypeError) throw error;
            return;
          }
      },
    }),
  },
  {
    name: "an attribute reaches beyond its message",
    file: "linux/rtnetlink/attributes.ts",
    from: "size < headerSize || at + size > length",
    to: "size < headerSize",
    target: ({ parseAttributes }: typeof attributes) => ({
      seeds: [bytes(8, 0, 3, 0, 1, 2, 3, 4, 5, 0, 4, 0, 9, 0, 0, 0)],
      lengths: () => [{ at: 0, bytes: 2, littleEndian: true }],
      run: (input) => {
        let read: ReturnType<typeof parseAttributes>;
        try {
          read = parseAttributes(input);
        } catch {
          return;
        }
        const { list } = read;
        const size = list.reduce((sum, { value }) => sum + ((4 + value.length + 3) & ~3), 0);
        const reported = list.length === 0 ? 0 : (input[0] as number) | ((input[1] as number) << 8);
        if (list[0] !== undefined && list[0].value.length !== reported - 4)
          throw new TypeError("Cut without a word");
        if (size > input.length + 3) throw new TypeError("More than there is");
      },
    }),
  },
  {
    name: "work grows with the square of the lines",
    file: "network/firewall/iptables/save-format.ts",
    from: 'if (!quoted && line !== "") lines.push(line);',
    to: 'for (const other of lines) if (other === undefined) break;\n    if (!quoted && line !== "") lines.push(line);',
    target: ({ parseSave }: typeof saveFormat) => ({
      seeds: [
        Buffer.from("*filter\n:A - [0:0]\n-A A -j B\nCOMMIT\n"),
        Buffer.from("*nat\na\nb\nc\nd\n"),
      ],
      words: ["\n", "*filter", "-A"],
      run: (input) => void parseSave(Buffer.from(input).toString("utf8")),
    }),
  },
];

/** Runs at most until a fault is found. */
const runs = 4;

async function hunt(
  plant: Plant,
  to: string,
  seed: number,
): Promise<{ readonly found: Exploration; readonly growth: Growth | undefined }> {
  using coverage = new Coverage();
  const name = `${plant.name.replaceAll(/\W+/g, "-")}-${seed}`;
  const { module, file } = await planted(
    to === plant.from ? `sound-${name}` : name,
    plant.file,
    plant.from,
    to,
  );
  const target: Target = {
    name: `planted ${name}`,
    files: [file],
    ...plant.target(module as never),
  };
  const loaded = coverage.take();
  const found = explore(target, { seed, inputs, coverage, loaded });
  const growth =
    found.crashes.length > 0
      ? undefined
      : superlinear(target, found.corpus, { seed, coverage, families: 40 });
  return { found, growth };
}

for (const plant of plants)
  test.serial(`the engine finds a planted fault: ${plant.name}`, async (t) => {
    t.timeout(120_000);
    t.log(`PODNET_SEED=${seed}`);
    const sound = await hunt(plant, plant.from, seed);
    t.is(sound.found.crashes.length, 0, String(sound.found.crashes[0]?.error));
    t.is(sound.growth, undefined);
    let { found, growth } = await hunt(plant, plant.to, seed);
    // In so few inputs chance has its part: a fault that the engine finds, it finds in one of a few
    // runs.
    for (let more = 1; more < runs && found.crashes.length === 0 && growth === undefined; more++)
      ({ found, growth } = await hunt(plant, plant.to, seed + more));
    t.true(found.crashes.length > 0 || growth !== undefined, `Not found with seed ${seed}`);
    t.log(
      found.crashes[0] === undefined
        ? `steps ${growth?.steps.join()}`
        : String(found.crashes[0].error),
    );
    t.log(`after ${found.inputs} inputs, ${found.corpus.length} kept`);
  });
