import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DescMessage } from "@bufbuild/protobuf";
import test from "ava";
import { ImageService, RuntimeService } from "../../../../daemon/cri/gen/cri_pb.ts";

const read = (page: string): string =>
  readFileSync(join(import.meta.dirname, "../../../../docs/reference", page), "utf8");
const page = read("cri.md");

/** The fields of a message and of all messages in it, as `Message.field`. */
function fieldsOf(message: DescMessage, found: Set<string>): void {
  for (const field of message.fields) {
    const name = `${message.name}.${field.name}`;
    if (found.has(name)) continue;
    found.add(name);
    if (field.message !== undefined) fieldsOf(field.message, found);
  }
}

/** Values of the interface's own, which have no field that could be honoured. */
const isPlain = (field: string): boolean => /^U?Int64Value\./.test(field);

function askedFor(): string[] {
  const found = new Set<string>();
  for (const service of [RuntimeService, ImageService])
    for (const { input } of service.methods) fieldsOf(input, found);
  return [...found].filter((field) => !isPlain(field)).toSorted();
}

const wordsOf = (cell = ""): string[] =>
  [...cell.matchAll(/`(\w+)`/g)].map(([, word]) => word ?? "");

/** What the page has a row for. */
function written(): string[] {
  return read("cri-fields.md")
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .flatMap((line) => {
      const [, messages, fields] = line.split("|");
      return wordsOf(messages).flatMap((message) =>
        wordsOf(fields).map((field) => `${message}.${field}`),
      );
    });
}

test("each field that a client can send has one row on the page, and each row a field", (t) => {
  t.deepEqual(written().toSorted(), askedFor());
});

test("each call has its place on the page", (t) => {
  for (const { methods } of [RuntimeService, ImageService])
    for (const { name } of methods) t.true(page.includes(`\`${name}\``), name);
});
