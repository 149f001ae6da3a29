import { execFile } from "node:child_process";
import { globSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { contextOf } from "../../../cli/context.ts";
import { buildProgram } from "../../../cli/program.ts";
import { configKeys } from "../../../daemon/config/schema.ts";

const top = path.resolve(import.meta.dirname, "../../..");
const pages = globSync("man/**/*.[0-9]", { cwd: top }).sort();

const shown = async (files: readonly string[]) => {
  const env = { ...process.env, MANWIDTH: "100", MANPAGER: "cat", LC_ALL: "C.UTF-8" };
  const args = ["--warnings", "--encoding=UTF-8", "--local-file", ...files];
  const { stdout, stderr } = await promisify(execFile)("man", args, {
    cwd: top,
    env,
    maxBuffer: 1 << 24,
  });
  return { text: stdout.replaceAll(/.\u0008/g, ""), stderr };
};

test("every command has a manual page, and man prints all of them without a warning", async (t) => {
  const { text, stderr } = await shown(pages);
  t.is(stderr, "");
  const program = buildProgram(contextOf({} as never));
  for (const command of program.createHelp().visibleCommands(program)) {
    if (command.name() === "help") continue;
    const page = pages.find((each) => path.basename(each) === `podnet-${command.name()}.1`);
    t.truthy(page, command.name());
    t.regex(text, new RegExp(`^PODNET-${command.name().toUpperCase()}\\(1\\)`, "m"));
  }
  t.true(pages.includes("man/podnet.1") && pages.includes("man/podnetd.8"));
});

test("podnet-config.toml(5) has every key with its type, default, flag and variable", async (t) => {
  const { text } = await shown(["man/podnet-config.toml.5"]);
  for (const { key, flag, env } of configKeys) {
    const name = key.slice(key.lastIndexOf(".") + 1);
    t.regex(text, new RegExp(`^ +${name} = [a-z"]`, "m"), key);
    t.regex(text, new RegExp(`Flag:\\s+${flag}\\.\\s+Variable:\\s+${env}\\.`), key);
  }
  t.regex(text, /^TABLE \[overlay.etcd\]$/m);
  t.regex(text, /Default: "\/run\/podnet"\./);
  t.regex(text, /"auto" or "iptables" or "nftables"/);
});

test("a page has what the help has: names, options, examples, and no option of all commands", async (t) => {
  const { text } = await shown(["man/pods/podnet-create.1"]);
  for (const part of [
    /^NAME\n +podnet-create - create a pod and wait until its network works$/m,
    /^SYNOPSIS\n +podnet create \[options\] \[name\]$/m,
    /^ +-p, --publish <spec>\n +a port to publish: \[\[IP:\]HOST:\]POD\[\/tcp\|udp\|sctp\]/m,
    /^EXAMPLES\n +podnet create web$/m,
    /^SEE ALSO\n +podnet\(1\)/m,
  ])
    t.regex(text, part);
  t.notRegex(text, /--socket/);
});
