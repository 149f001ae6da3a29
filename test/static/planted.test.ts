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
