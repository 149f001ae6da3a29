import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { parseAnswer, parsePluginError } from "../../../cni/runtime/answer.ts";
import { deriveConfig, environmentOf, type Sandbox } from "../../../cni/runtime/derive.ts";
import { findList } from "../../../cni/runtime/find-list.ts";
import { parseConflist, parseSinglePlugin, type PluginList } from "../../../cni/runtime/list.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { parseIfName } from "../../../core/names.ts";

const bytes = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));
const bridge = { type: "bridge", bridge: "cni0" };
const listOf = (...plugins: readonly object[]): object => ({
  cniVersion: "1.0.0",
  name: "net",
  plugins,
});

function directoryWith(files: Readonly<Record<string, unknown>>): string {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-cni-lists-"));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(directory, name)), { recursive: true });
    const text = typeof content === "string" ? content : JSON.stringify(content);
    writeFileSync(path.join(directory, name), text);
  }
  return directory;
}

test("the first good file by name wins, of whichever kind; what is no good is reported and passed over", (t) => {
  const { list, file, warnings } = findList(
    directoryWith({
      "00-broken.conflist": "{",
      "01-typeless.conf": { cniVersion: "1.0.0", name: "typeless" },
      "02-typeless.conflist": listOf({ bridge: "cni0" }),
      "03-empty.conflist": listOf(),
      "04-nameless.json": { cniVersion: "1.0.0", ...bridge },
      "05-path.conf": { name: "path", type: "../bin/sh" },
      "06-notes.txt": listOf(bridge),
      "10-good.json": { cniVersion: "0.4.0", name: "single", ...bridge },
      "20-later.conflist": listOf(bridge),
    }),
  );
  t.is(path.basename(file), "10-good.json");
  t.is(list.name, "single");
  t.is(list.version, "0.4.0");
  t.deepEqual(
    list.plugins.map(({ type }) => type),
    ["bridge"],
  );
  t.deepEqual(
    warnings.map((warning) => warning.split(":")[0]),
    ["00-broken.conflist", "01-typeless.conf", "02-typeless.conflist", "03-empty.conflist"].concat([
      "04-nameless.json",
      "05-path.conf",
    ]),
  );
});

test("without a good file, or a directory, the error names each bad one", (t) => {
  const refused = (directory: string): string => {
    const error = t.throws(() => findList(directory));
    t.true(isPodnetError(error, "CONFIG_INVALID"));
    return error?.message ?? "";
  };
  t.is(refused("/nowhere/at/all"), "There is no list of CNI plugins");
  t.regex(
    refused(directoryWith({ "1.conflist": "{", "2.conf": "[]" })),
    /1\.conflist: .*2\.conf: /,
  );
});

test("plugins in files of their own come after those of their list, unless it wants none", (t) => {
  const alongside = { "net/2.conf": { type: "tuning" }, "net/1.conf": { type: "portmap" } };
  const types = (list: object): string[] =>
    findList(directoryWith({ "1.conflist": list, ...alongside })).list.plugins.map(
      ({ type }) => type,
    );
  t.deepEqual(types(listOf(bridge)), ["bridge", "portmap", "tuning"]);
  t.deepEqual(types({ ...listOf(bridge), loadOnlyInlinedPlugins: true }), ["bridge"]);
  t.deepEqual(types({ ...listOf(bridge), loadOnlyInlinedPlugins: "true" }), ["bridge"]);
});

test("of the versions a list allows, the newest that is known counts", (t) => {
  const version = (own: object): string =>
    parseConflist(bytes({ ...listOf(bridge), cniVersion: undefined, ...own })).version;
  t.is(version({}), "0.1.0");
  t.is(version({ cniVersion: "0.3.1" }), "0.3.1");
  t.is(version({ cniVersion: "0.3.1", cniVersions: ["0.4.0", "1.0.0", "9.0.0"] }), "1.0.0");
  t.is(version({ cniVersion: "9.0.0", cniVersions: ["0.4.0"] }), "0.4.0");
  t.throws(() => version({ cniVersion: "9.0.0" }), { message: /incompatible CNI versions/ });
});

const sandbox: Sandbox = {
  containerId: "abc",
  netns: "/run/netns/x",
  ifName: parseIfName("eth0"),
  args: { K8S_POD_NAME: "web", IgnoreUnknown: "1" },
  capabilities: {
    portMappings: [{ hostPort: 80, containerPort: 8080, protocol: "tcp" }],
    mac: "02:00:00:00:00:01",
  },
};

function derived(list: PluginList, previous?: object): object {
  const [plugin] = list.plugins;
  if (plugin === undefined) throw new Error("No plugin");
  return JSON.parse(deriveConfig(list, plugin, sandbox.capabilities, previous as never)) as object;
}

test("a plugin is notified of what it has declared, the list's name and version, and the result before it", (t) => {
  const portmap = { type: "portmap", capabilities: { portMappings: true, mac: false }, snat: true };
  t.deepEqual(derived(parseConflist(bytes(listOf(portmap))), { ips: [] }), {
    ...portmap,
    name: "net",
    cniVersion: "1.0.0",
    runtimeConfig: { portMappings: sandbox.capabilities["portMappings"] },
    prevResult: { ips: [] },
  });
  t.deepEqual(derived(parseSinglePlugin(bytes({ name: "one", ...bridge }))), {
    ...bridge,
    name: "one",
    cniVersion: "0.1.0",
  });
});

test("the environment has every variable of CNI, whatever podnetd's own surroundings have", (t) => {
  t.deepEqual(environmentOf("ADD", ["/opt/bridge/bin", "/opt/cni/bin"], sandbox), {
    CNI_COMMAND: "ADD",
    CNI_PATH: "/opt/bridge/bin:/opt/cni/bin",
    CNI_CONTAINERID: "abc",
    CNI_NETNS: "/run/netns/x",
    CNI_IFNAME: "eth0",
    CNI_ARGS: "K8S_POD_NAME=web;IgnoreUnknown=1",
  });
  const { netns: _, ...gone } = sandbox;
  t.is(environmentOf("DEL", [], gone)["CNI_NETNS"], "");
  for (const args of [{ "A;B": "1" }, { "A=B": "1" }, { A: "1;C=2" }])
    t.throws(() => environmentOf("ADD", [], { ...sandbox, args }), {
      message: /a sign that ends it/,
    });
});

test("a result keeps what podnet has no word for, and gets the version it lacks", (t) => {
  const { value, written } = parseAnswer(
    '{"ips":[{"address":"10.0.0.2/24","version":"4"}],"vendor":{"x":1}}',
    "0.4.0",
  );
  t.is(value.ips[0]?.address, "10.0.0.2/24" as never);
  t.deepEqual(written["vendor"], { x: 1 });
  t.is(written["cniVersion"], "0.4.0");
  t.throws(() => parseAnswer("", "1.0.0"), { message: /not JSON/ });
  t.throws(() => parseAnswer("[]", "1.0.0"));
});

test("an error of a plugin is read from its standard output; anything else is none", (t) => {
  t.deepEqual(parsePluginError('{"code":7,"msg":"no","details":"why"}'), {
    code: 7,
    message: "no",
    details: "why",
  });
  t.deepEqual(parsePluginError('{"code":999,"msg":"no"}'), {
    code: 999,
    message: "no",
    details: "",
  });
  for (const text of ["", "panic: ", "[]", "null", '{"code":"7","msg":"no"}', '{"code":7}'])
    t.is(parsePluginError(text), undefined);
});
