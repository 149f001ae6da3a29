import test from "ava";
import { FollowedOutput, keptBytes } from "../../../../daemon/pods/execs/followed-output.ts";

const never = new AbortController().signal;

async function all(output: FollowedOutput, follow = true): Promise<string[]> {
  const seen: string[] = [];
  for await (const part of output.read({ follow, signal: never })) {
    if (part.kind === "skipped") seen.push(`skipped ${part.bytes}`);
    else seen.push(`${part.kind} ${Buffer.from(part.data).toString("latin1")}`);
  }
  return seen;
}

/** Bytes in a reader's parts, those it was said to have missed included. */
const sum = (seen: readonly string[]): number =>
  seen.reduce((all, text) => {
    const missed = /^skipped (\d+)$/.exec(text)?.[1];
    return all + (missed === undefined ? text.length - "stdout ".length : Number(missed));
  }, 0);

test("what is kept comes first, then what follows, each in its order", async (t) => {
  const output = new FollowedOutput();
  output.push("stdout", Buffer.from("a"));
  output.push("stdout", Buffer.from("b"));
  output.push("stderr", Buffer.from("c"));
  t.deepEqual(await all(output, false), ["stdout ab", "stderr c"]);
  const reading = all(output);
  await Promise.resolve();
  output.push("stderr", Buffer.from("d"));
  output.end();
  t.deepEqual((await reading).join("").replaceAll("stderr ", ""), "stdout abcd");
  t.is(output.written, 4);
});

for (const [how, sizes] of [
  ["in large pieces", [30_000, 30_000]],
  ["byte by byte", [1]],
  ["in one piece that is larger than all", [3 * keptBytes]],
] as const) {
  test(`a flood ${how} is kept in bounded memory, and its reader learns what is missing`, async (t) => {
    const output = new FollowedOutput();
    for (let i = 0; i < 20_000 && output.written < 2_000_000; i++) {
      const kind = i % 2 === 0 ? "stdout" : "stderr";
      output.push(kind, new Uint8Array(sizes[i % sizes.length] as number).fill(120));
    }
    output.end();
    const seen = await all(output);
    t.regex(seen[0] ?? "", /^skipped \d+$/);
    t.is(sum(seen), output.written);
    t.true(sum(seen.slice(1)) <= keptBytes, `${sum(seen.slice(1))} bytes are kept`);
    t.true(seen.length * 128 <= keptBytes + 256, `in ${seen.length} pieces`);
  });
}

test("a reader that leaves while it waits stops waiting", async (t) => {
  const output = new FollowedOutput();
  const left = new AbortController();
  const reading = output.read({ follow: true, signal: left.signal }).next();
  left.abort();
  t.true((await reading).done);
});
