import { parseAnswer, parsePluginError } from "../../../cni/runtime/answer.ts";
import { parseConflist, parsePlugin, parseSinglePlugin } from "../../../cni/runtime/list.ts";
import { json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT", "UNSUPPORTED", "ADDRESS_INVALID"] as const;
const plugin = { type: "bridge", capabilities: { portMappings: true, mac: "false" } };
const list = { cniVersion: "1.0.0", name: "net", plugins: [plugin] };

const lists: Target = {
  name: "cni-lists",
  files: ["cni/runtime/list.ts"],
  apart: ["cni/protocol/nesting.ts"],
  seeds: [
    json(list),
    json({ ...list, cniVersions: ["0.4.0", "1.1.0", "7"], loadOnlyInlinedPlugins: "true" }),
    json({ ...list, cniVersion: undefined, disableCheck: true }),
    json({ ...list, plugins: [{}] }),
    json({ ...list, plugins: [{ type: "../sh" }] }),
    json({ plugins: [plugin] }),
    json({ name: "one", ...plugin }),
    json({ name: "a/b", ...plugin }),
    json({ ...list, cniVersion: "7" }),
  ],
  words: ["cniVersion", "cniVersions", "plugins", "capabilities", '"type":', "disableCheck"],
  run: (bytes) => {
    for (const parse of [parseConflist, parseSinglePlugin]) {
      const found = valueOf(refusals, () => parse(bytes));
      if (found?.plugins.some(({ type }) => type.includes("/")) === true)
        throw new Error("A plugin's name is a path");
    }
    valueOf(refusals, () => parsePlugin(bytes));
  },
};

const answers: Target = {
  name: "cni-answers",
  files: ["cni/runtime/answer.ts"],
  seeds: [
    json({ cniVersion: "1.0.0", ips: [{ address: "10.0.0.2/24" }] }),
    json({ ips: [{ version: "4", address: "10.0.0.2/24" }] }),
    json({ code: 7, msg: "no", details: "why" }),
    json({ code: 7, msg: "no" }),
    json({ code: "7", msg: "no" }),
    json({ code: 7 }),
    json([]),
    json(null),
    utf8("panic: runtime error"),
  ],
  words: ["cniVersion", "interfaces", "ips", "routes", "code", "msg", "details"],
  run: (bytes) => {
    const text = textOf(bytes);
    const answer = valueOf(refusals, () => parseAnswer(text, "1.0.0"));
    if (answer !== undefined && answer.written["cniVersion"] === undefined)
      throw new Error("A result without a version");
    const error = parsePluginError(text);
    if (error !== undefined && typeof error.message !== "string") throw new Error("No words");
  },
};

export const cniRuntime = [lists, answers];
