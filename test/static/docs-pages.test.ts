import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { WatchPodsResponse_Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { contextOf } from "../../cli/context.ts";
import { buildProgram } from "../../cli/program.ts";
import { podnetdProgram } from "../../daemon/main/command.ts";

const top = path.resolve(import.meta.dirname, "../..");
const read = (page: string): string => readFileSync(path.join(top, page), "utf8");
const pages = ["README.md", "CONTRIBUTING.md", ...globSync("docs/**/*.md", { cwd: top }).sort()];

/** A page longer than this is two subjects, or a list that belongs into a table. */
const mostLines = 250;

test("no page of docs is longer than a reader takes in at once", (t) => {
  for (const page of pages) t.true(read(page).split("\n").length <= mostLines + 1, page);
});

/** How GitHub makes an anchor of a heading. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\-_ ]/gu, "")
    .replaceAll(" ", "-");

const anchorsOf = (page: string): ReadonlySet<string> =>
  new Set(
    [...read(page).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
      anchorOf(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")),
    ),
  );

test("every link to a section of a page leads to a heading", (t) => {
  for (const page of [...pages, "CHANGELOG.md"]) {
    for (const [, file = "", anchor = ""] of read(page).matchAll(/\]\(([^):#]*)#([^)]+)\)/g)) {
      const target = file === "" ? page : path.join(path.dirname(page), file);
      if (target.endsWith(".md"))
        t.true(anchorsOf(target).has(anchor), `${page} links to ${target}#${anchor}`);
    }
  }
});

test("every page of docs is linked from docs/README.md or from a page that is", (t) => {
  const reached = new Set<string>();
  const follow = (page: string): void => {
    if (reached.has(page)) return;
    reached.add(page);
    for (const [, file = ""] of read(page).matchAll(/\]\(([^):#]+\.md)(?:#[^)]*)?\)/g)) {
      const target = path.join(path.dirname(page), file);
      if (pages.includes(target)) follow(target);
    }
  };
  follow("docs/README.md");
  t.deepEqual(
    pages.filter((page) => page.startsWith("docs/") && !reached.has(page)),
    [],
  );
});

test("every command that a page names is one", (t) => {
  const known = new Map(
    [buildProgram(contextOf({} as never)), podnetdProgram()].map((program) => [
      program.name(),
      new Set(program.commands.map((command) => command.name())),
    ]),
  );
  for (const page of pages) {
    if (page.startsWith("docs/decisions/")) continue;
    for (const [, name = "", command = ""] of read(page).matchAll(
      /`(podnetd?) ([a-z]+(?:-[a-z]+)*)\b/g,
    ))
      t.true(known.get(name)?.has(command), `${page}: ${name} ${command}`);
  }
});

test("docs/reference/events.md lists every kind of event, and no other", (t) => {
  const listed = [...read("docs/reference/events.md").matchAll(/^\| `KIND_([A-Z]+)` \|/gm)].map(
    ([, kind = ""]) => kind,
  );
  const kinds = Object.keys(WatchPodsResponse_Kind).filter((kind) => /^[A-Z]+$/.test(kind));
  t.deepEqual(
    listed,
    kinds.filter((kind) => kind !== "UNSPECIFIED"),
  );
});

/** The last number that was assigned before its record was written, and then not needed. */
const lastUnused = 79;

test("decisions have numbers without a gap from now on, and the index lists each", (t) => {
  const numberOf = (file: string): string => path.basename(file).slice(0, 4);
  const files = globSync("docs/decisions/[0-9]*.md", { cwd: top }).sort();
  const numbers = new Set(files.map(numberOf));
  t.is(numbers.size, files.length, "two decisions have one number");
  const index = read("docs/decisions/README.md");
  const highest = Math.max(...[...numbers].map(Number));
  for (let number = 1; number <= highest; number++) {
    const written = String(number).padStart(4, "0");
    if (numbers.has(written)) continue;
    t.true(number <= lastUnused, `${written} is missing: number the next decision so`);
    t.true(index.includes(written), `${written} is not named as unused`);
  }
  const rows = [...index.matchAll(/^\| \[(\d{4})\]\(([^)]+)\) \|/gm)];
  t.deepEqual(
    rows.map(([, , file = ""]) => file),
    files.map((file) => path.basename(file)),
  );
  for (const [, number = "", file = ""] of rows) t.is(number, numberOf(file));
});
