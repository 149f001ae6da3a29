import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { readDocuments, readPodFile, readText } from "../../../cli/pod-file.ts";
import { isPodnetError } from "../../../core/errors.ts";

const folder = mkdtempSync(path.join(tmpdir(), "podnet-file-"));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
const file = (content: string | Uint8Array): string => {
  const name = path.join(folder, `${++files}.yaml`);
  writeFileSync(name, content);
  return name;
};

const refusal = async (content: string | Uint8Array): Promise<string> => {
  try {
    await readDocuments(file(content));
  } catch (thrown) {
    if (isPodnetError(thrown, "INVALID_ARGUMENT")) return thrown.message;
    throw thrown;
  }
  return "no refusal";
};

/** Each line has the one before it nine times. */
const bomb = Array.from({ length: 6 }, (_, i) => {
  const each = i === 0 ? "x" : `*a${i - 1}`;
  return `k${i}: &a${i} [${Array.from({ length: 9 }, () => each).join(",")}]\n`;
}).join("");

test("documents that JSON cannot hold are refused, and the reason is named", async (t) => {
  for (const [content, why] of [
    ["kind: Policy\nrules: &a [*a]\n", /contains itself/],
    [`rules: ${"[".repeat(50_000)}`, /nested|call stack/],
    [`rules: ${"[".repeat(200)}${"]".repeat(200)}`, /nested more than 100 times/],
    ["rules: .nan\n", /NaN is not of JSON/],
    ["rules: -.inf\n", /-Infinity is not of JSON/],
    ["name: !!binary aGVsbG8=\n", /tagged value is not of JSON/],
    ["name: a\nname: b\n", /key "name" is there twice/],
    ["name: a\n---\nlabels: { x: 1, 'x': 2 }\n", /key "x" is there twice/],
    [bomb, /alias/],
    ["kind: Pod\n  name: [a\n", /compact mappings at line 1, column 7$/m],
    ["{", /neither YAML nor JSON/],
  ] as const)
    t.regex(await refusal(content), why, content.slice(0, 40));
});

test("30,000 keys of a map are read without comparing each with each", async (t) => {
  const keys = Array.from({ length: 30_000 }, (_, i) => `k${i}: 1`);
  const [value] = await readDocuments(file(`{${keys.join(",")}}`));
  t.is(Object.keys(value as object).length, 30_000);
});

test("3,000 documents are read, and empty ones left out", async (t) => {
  const text = Array.from({ length: 3_000 }, (_, i) => `kind: Pod\nname: p${i}\n---\n`).join("");
  t.is((await readDocuments(file(`---\n${text}# the end\n`))).length, 3_000);
});

test("a key named __proto__ stays a key", async (t) => {
  const [value] = await readDocuments(file('{ "__proto__": { "x": 1 } }'));
  t.true(Object.hasOwn(value as object, "__proto__"));
  t.is(({} as { x?: number }).x, undefined);
});

test("a file that never ends, that is too long or no text is refused", (t) => {
  t.throws(() => readText("/dev/zero"), { message: /larger than 1 MiB/ });
  t.throws(() => readText(file("x".repeat((1 << 20) + 1))), { message: /larger than 1 MiB/ });
  t.is(readText(file("x".repeat(1 << 20))).length, 1 << 20);
  t.throws(() => readText(file(Uint8Array.of(0x61, 0xff))), { message: /not text in UTF-8/ });
  t.throws(() => readText(path.join(folder, "nosuch")), { message: /cannot be read \(ENOENT\)/ });
  t.throws(() => readText(folder), { message: /cannot be read \(EISDIR\)/ });
  const fifo = path.join(folder, "fifo");
  execFileSync("mkfifo", [fifo]);
  execFileSync("sh", ["-c", `(printf a; printf b) > ${fifo} &`], { stdio: "ignore" });
  t.is(readText(fifo), "ab");
});

test("a pod file has one pod", async (t) => {
  t.is((await readPodFile(file("name: a\n"))).name, "a");
  await t.throwsAsync(readPodFile(file("")), { message: /has no document/ });
  await t.throwsAsync(readPodFile(file("name: a\n---\nname: b\n")), {
    message: /more than one document/,
  });
});
