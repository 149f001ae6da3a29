import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";

const top = path.resolve(import.meta.dirname, "../..");

/** Questions which kind it is, and where the modules of the kinds are, which may ask. */
const questions: readonly { readonly asks: RegExp; readonly within: RegExp }[] = [
  {
    asks: /\b(?:agent|guestKind|guest|name|kind)\b(?:\(\w*\))? [!=]== "(?:hyperstart|none|podnet)"/g,
    within: /^daemon\/pods\/guest\//,
  },
  { asks: /case "(?:hyperstart|podnet)":/g, within: /^daemon\/pods\/guest\// },
  { asks: /\battached [!=]== undefined/g, within: /^daemon\/pods\/(?:guest|machine)\// },
  {
    // What a kind of guest refuses depends on the kind of the interface.
    asks: /\bkind [!=]== "(?:bridge|tap|loopback|cni)"/g,
    within: /^daemon\/pods\/(?:guest|interfaces\/kinds)\//,
  },
  {
    // The parts of a planned interface that only one kind has; `store/` says what they are.
    asks: /\.tapKept\b|\{[^{}\n]*\btapKept\b(?!:)[^{}\n]*\}|\b(?:each|was|at|nic|plan|interface)\??\.cni\b|\(\{[^(){}\n]*\bcni\b[^(){}\n]*\}(?:: \w*Interface\w*)?\) =>/g,
    within:
      /^daemon\/(?:pods\/(?:store|interfaces\/kinds)\/|pods\/interfaces\/(?:plan-taken|act-sandboxes)\.ts|store\/plans-of-decisions\.ts)/,
  },
];

/** The places of a file that ask which kind it is, where only the modules of the kinds may. */
const asking = (file: string, source: string): string[] =>
  questions.flatMap(({ asks, within }) =>
    within.test(file) ? [] : (source.match(asks) ?? []).map((found) => `${file}: ${found}`),
  );

test("only their modules ask which kind a guest, a machine or an interface is", (t) => {
  const files = globSync("daemon/**/*.ts", { cwd: top });
  t.true(files.length > 200);
  t.deepEqual(
    files.flatMap((file) => asking(file, readFileSync(path.join(top, file), "utf8"))),
    [],
  );
});

test("the rule sees a question", (t) => {
  const found = (source: string): number => asking("daemon/pods/plan/x.ts", source).length;
  t.is(found('if (plan.agent === "hyperstart") return;'), 1);
  t.is(found('const asks = agent !== "none";'), 1);
  t.is(found('  case "hyperstart":\n'), 1);
  t.is(found("return plan.vm.attached === undefined ? a : b;"), 1);
  t.is(found('if (place.kind !== "loopback") return;'), 1);
  t.is(found('netns: each.cni?.netns ?? "",'), 1);
  t.is(found("withNic(all).map(({ nic, cni }) => cni?.netns);"), 1);
  t.is(found("const openTapOf = ({ nic, tapKept }: NicInterface) => open(nic, tapKept);"), 1);
  t.is(found("if (each.tapKept === true) return [];"), 1);
  t.is(found("return plannedKind(each).replaced?.netns;"), 0);
  t.is(found("return guestOf(plan).hasAgent;"), 0);
  t.deepEqual(asking("daemon/pods/guest/x.ts", 'agent === "none"'), []);
  t.deepEqual(asking("daemon/pods/machine/x.ts", "attached === undefined"), []);
});
