import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { faults } from "../planted/faults.ts";

const top = path.resolve(import.meta.dirname, "../..");

test("each fault has a name of its own", (t) => {
  t.is(new Set(faults.map(({ name }) => name)).size, faults.length);
});

test("each fault stands where it is to be planted, once", (t) => {
  const places = faults.map(({ name, file, find }) => {
    const source = path.join(top, file);
    const found = existsSync(source) ? readFileSync(source, "utf8").split(find).length - 1 : 0;
    return { name, file, found };
  });
  t.deepEqual(
    places.filter(({ found }) => found !== 1),
    [],
  );
});

test("each fault is noticed by a test file that exists, and changes something", (t) => {
  const wrong = faults.filter(
    ({ find, put, noticedBy }) => find === put || !existsSync(path.join(top, noticedBy.file)),
  );
  t.deepEqual(wrong, []);
});

test("each fault names its test word for word", (t) => {
  const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const isTitle = ({ file, title }: (typeof faults)[number]["noticedBy"]): boolean => {
    const source = readFileSync(path.join(top, file), "utf8");
    if (source.includes(title)) return true;
    // What stands for a value in promises would find no test here.
    if (title.includes("…")) return false;
    return [...source.matchAll(/`([^`\n]+)`/g)].some(([, template = ""]) => {
      const fixed = template.split(/\$\{[^}]*\}/).map(escape);
      return fixed.length > 1 && new RegExp(`^${fixed.join(".+")}$`, "u").test(title);
    });
  };
  t.deepEqual(
    faults.filter(({ noticedBy }) => !isTitle(noticedBy)).map(({ noticedBy }) => noticedBy),
    [],
  );
});
