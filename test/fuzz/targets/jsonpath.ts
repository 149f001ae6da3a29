import { parseTemplate } from "../../../cli/jsonpath/parse.ts";
import { type Target, textOf, utf8, valueOf } from "../engine/target.ts";

/** What people type behind `-o jsonpath=`. */
export const jsonpath: Target = {
  name: "cli-jsonpath",
  files: ["cli/jsonpath/parse.ts"],
  seeds: [
    "{.items[*].name}",
    "{range .items[*]}{.name}{'\\t'}{.ports[0:2]}{\"\\n\"}{end}",
    "{.items[?(@.on==true)].labels['a.b/c']} {.items[?(@.n!=-1.5)]} {.items[?(@.a)]}",
    "{..name} and {$.items[-1].labels.a\\.b/c}",
    "{range .items[*]}{range @.ports[*]}{.}{end}{end}",
    "{end}",
    "no path",
  ].map(utf8),
  words: ["{range .items[*]}", "{end}", "{.}", "[?(", "==", "..", "['", "__proto__", "[-1]", "}"],
  longest: 400,
  run: (bytes) => {
    const parts = valueOf(["INVALID_ARGUMENT"], () => parseTemplate(textOf(bytes)));
    if (parts?.length === 0) throw new Error("A template with a brace has no part");
  },
};
