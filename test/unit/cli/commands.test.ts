import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { symlinkSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { parse } from "yaml";
import { NodeService } from "../../../api/gen/podnet/v1/node_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet, start } from "./fixtures/io.ts";

const execute = promisify(execFile);
const launcher = path.resolve(import.meta.dirname, "../../../bin/podnet");

const daemon = playDaemon();
const server = await serve(daemon.routes);
const socket = server.h2;
test.after.always(() => server.kill());

const here = { socket };
const onTerminal = { socket, tty: true };

/** A list without the times that are counted from now. */
const still = ({ items, ...list }: { items: object[] }): object => ({
  ...list,
  items: items.map((item) => ({ ...item, expiresAt: undefined, idleSince: undefined })),
});

test("list as a table, by label, quiet, json and yaml", async (t) => {
  const { out } = await podnet(["list"], here);
  const lines = out.split("\n");
  t.regex(lines[0] ?? "", /^NAME +ID +STATE +AGE +NETWORK +ADDRESS +REASON$/);
  t.regex(lines[1] ?? "", /^web +abcdefghijkl +running +\d+ d +default +192\.168\.123\.2$/);
  t.regex(lines[2] ?? "", /^db +mnopqrstuvwx +failed .*the guest wrote \\u001b\[31mred$/);
  t.is((await podnet(["ls", "-q"], here)).out, "abcdefghijkl\nmnopqrstuvwx\n");
  t.is((await podnet(["ls", "-q", "-l", "app=shop"], here)).out, "abcdefghijkl\n");
  const json = JSON.parse((await podnet(["list", "-o", "json"], here)).out);
  t.like(json, { apiVersion: "podnet.v1", kind: "PodList", cursor: "7" });
  t.like(json.items[0], {
    name: "web",
    state: "running",
    createdAt: "2023-11-14T22:13:20Z",
    reason: "",
    interfaces: { 0: { state: "configured", addresses: ["192.168.123.2/24"] } },
  });
  t.deepEqual(still(parse((await podnet(["list", "-o", "yaml"], here)).out)), still(json));
  const none = await podnet(["list", "-l", "no=such"], here);
  t.deepEqual([none.out, none.err], ["", "No pods. Make one with: podnet create\n"]);
});

test("get shows everything about one pod", async (t) => {
  const { out } = await podnet(["get", "web"], here);
  for (const part of [
    /^Name +web$/m,
    /^State +running$/m,
    /^VM +pid 42, tcg, 1 vcpu, 128 MiB$/m,
    /^Guest +agent 0\.1\.0, extension 1, 900 KiB$/m,
    /^ {2}eth0 +192\.168\.123\.2\/24 .* pnabcdefgh0 on hyper0 .* default via 192\.168\.123\.1 metric 50, 172\.16\.0\.0\/12 via 192\.168\.123\.9, 10\.0\.0\.0\/8 +configured$/m,
    /^ {2}vm\.boot +1\.43 s +█+/m,
  ]) {
    t.regex(out, part);
  }
  t.regex(
    (await podnet(["interface", "list", "web"], here)).out,
    /^NAME .* ROUTES\neth0 .* 52:54:00:00:00:01 +default via 192\.168\.123\.1 metric 50, 172/,
  );
  t.regex((await podnet(["get", "db"], here)).out, /^Failure +AGENT_TIMEOUT: The agent/m);
});

test("errors: one line, what to do, an exit code of their own, no stack", async (t) => {
  for (const [args, code, text] of [
    [["get", "nosuch"], 4, /^error: Pod "nosuch" does not exist \(POD_NOT_FOUND\)\n/],
    [
      ["create", "--name", "taken"],
      5,
      /NAME_IN_USE\)\n {2}flag: --name\n {2}field: name\n {2}hint: Choose another\n$/,
    ],
    [["create", "--mac", "01:00:00:00:00:00"], 2, /MAC_INVALID/],
    [["create", "--mtu", "100"], 2, /MTU_OUT_OF_RANGE/],
    [["create", "--memory", "lots"], 2, /hint: Write MiB/],
    [["create", "--timeout", "1y"], 2, /not a duration/],
    [["create", "--disk", "/d,fromat=raw"], 2, /fromat=raw/],
    [["create", "--label", "x"], 2, /Write KEY=VALUE/],
    [["start", "web"], 5, /WRONG_STATE/],
    [["networks", "nosuch"], 4, /NETWORK_NOT_FOUND/],
    [["delete"], 2, /No pod is named/],
    [["delete", "--all", "web"], 2, /No pod is named/],
    [["delete", "stuck"], 124, /hint: Add --force/],
    [["watch", "--after", "99"], 1, /EVENTS_LOST/],
    [["watch", "--after", "x"], 2, /cursor/],
    [["get"], 2, /missing required argument 'pod'/],
    [["rename", "web", "other"], 1, /A pod keeps its name/],
    [["lst"], 2, /Did you mean one of list, ls\?/],
    [["list", "--lable", "x"], 2, /Did you mean --label\?/],
    [["list", "-o", "xml"], 2, /Allowed choices are table, json, yaml/],
  ] as [string[], number, RegExp][]) {
    const done = await podnet(args, here);
    t.is(done.code, code, `${args.join(" ")}: ${done.err}`);
    t.regex(done.err, text);
    t.notRegex(done.err, /\n\s+at /);
  }
});

test("errors as JSON for programs", async (t) => {
  const { code, out, err } = await podnet(["get", "nosuch", "-o", "json"], here);
  t.deepEqual([code, out], [4, ""]);
  t.like(JSON.parse(err), {
    error: { code: "POD_NOT_FOUND", field: "id_or_name", hint: "See podnet list" },
  });
});

test("no daemon: exit 3, and how to help oneself", async (t) => {
  for (const args of [["list"], ["create"], ["info"], ["watch"], ["delete", "web"]]) {
    const { code, err } = await podnet(args, { socket: "/nonexistent/podnet.sock" });
    t.is(code, 3);
    t.regex(err, /does not answer at \/nonexistent\/podnet\.sock[^]*hint: Start podnetd/);
  }
  t.is((await podnet(["exec", "web", "true"], {})).code, 125);
});

test("where podnetd is: a wrong place is reported as such", async (t) => {
  const env = { PODNET_TLS_CA: "/nonexistent/ca.pem" };
  for (const [args, text] of [
    [["list", "--url", "http://x:1"], /https:\/\/HOST:PORT/],
    [["list", "--url", "https://x:1"], /PODNET_TLS_CA\n/],
    [["list", "--url", "https://x:1", "--socket", "/x"], /both given/],
  ] as const) {
    const { code, err } = await podnet(args, { env });
    t.is(code, 2, err);
    t.regex(err, text);
  }
  const unset = await podnet(["list"], { env: { PODNET_URL: "https://x:1" } });
  t.regex(unset.err, /PODNET_TLS_CA is not set/);
  t.is(
    (await podnet(["list", "-q", "--socket", socket], { env: { PODNET_URL: "https://x:1" } })).code,
    0,
  );
});

test("delete tells each pod apart, and what is gone is no failure", async (t) => {
  const { code, out } = await podnet(["delete", "web", "nosuch"], here);
  t.deepEqual([code, out], [0, "Deleted web\nnosuch is gone already\n"]);
  const mixed = await podnet(["rm", "stuck", "db"], here);
  t.deepEqual([mixed.code, mixed.out], [124, "Deleted db\n"]);
  t.is((await podnet(["delete", "--force", "stuck"], here)).code, 0);
  t.is((await podnet(["delete", "--all"], here)).out, "Deleted web\nDeleted db\n");
});

test("info shows the node, and fails when its health does", async (t) => {
  const { code, out } = await podnet(["info"], here);
  t.is(code, 1);
  t.regex(out, /^podnetd +9\.9\.9, pid 7$/m);
  t.regex(out, /^VMs +qemu 7\.2\.22, arm64, tcg$/m);
  t.regex(out, /^Pods +1 running, 1 failed$/m);
  t.regex(out, /✗ firewall: Chain HYPER is gone\n {2}hint: Restart podnetd\n$/);
  const json = JSON.parse((await podnet(["info", "-o", "json"], here)).out);
  t.is(json.health.checks[1].status, "failed");
});

test("networks shows pools", async (t) => {
  const { out } = await podnet(["networks"], here);
  t.regex(out, /^default +hyper0 +192\.168\.123\.0\/24 +192\.168\.123\.1 +1500 +no +no +1 +252$/m);
});

test("verify exits 1 when a source saw something else", async (t) => {
  const good = await podnet(["verify", "web"], here);
  t.is(good.code, 0);
  t.regex(good.out, /1 check, all as recorded/);
  const bad = await podnet(["verify", "db"], here);
  t.is(bad.code, 1);
  t.regex(bad.out, /^DIFFERS +link pnabcdefgh0 mtu +1500 +1400 +netlink$/m);
});

test("down asks first", async (t) => {
  const before = daemon.calls.downs;
  t.is((await podnet(["down", "--plan"], here)).out, "pod web\nbridge hyper0\n");
  const unasked = await podnet(["down"], here);
  t.deepEqual([unasked.code, /--yes/.test(unasked.err)], [2, true]);
  const no = start(["down"], onTerminal);
  no.stdin.write("n\n");
  t.is(await no.done, 1);
  t.is(daemon.calls.downs, before);
  const yes = start(["down"], onTerminal);
  yes.stdin.write("y\n");
  t.is(await yes.done, 0);
  t.regex(yes.stdout.text, /Removed bridge hyper0/);
  t.is((await podnet(["down", "-y"], here)).code, 0);
  t.is(daemon.calls.downs, before + 2);
});

test("version works with a daemon and without", async (t) => {
  t.regex((await podnet(["version"], here)).out, /^podnet {2}\d+\.\d+\.\d+\npodnetd 9\.9\.9\n$/);
  t.regex((await podnet(["version"], {})).out, /podnetd does not answer\n$/);
});

test("version waits for a podnetd that is slow to answer, as on a host under load", async (t) => {
  await using slow = await serve((router) => {
    addService(router, NodeService, {
      info: async () => {
        await delay(2500);
        return { version: "9.9.9" };
      },
    });
  });
  t.regex((await podnet(["version"], { socket: slow.h2 })).out, /^podnetd 9\.9\.9$/m);
});

test("every command explains itself", async (t) => {
  const { out } = await podnet(["--help"]);
  const commands = [...out.matchAll(/^ {2}([a-z]+)(?:\|| )/gm)].map((match) => match[1] as string);
  for (const wanted of "create get list start delete watch exec console verify info down version".split(
    " ",
  )) {
    t.true(commands.includes(wanted), wanted);
    const help = await podnet([wanted, "--help"]);
    t.is(help.code, 0);
    t.regex(help.out, /--socket <path>/);
  }
});

test("a group of commands names them, and each explains itself", async (t) => {
  const { out } = await podnet(["network", "--help"]);
  for (const wanted of ["create", "update", "delete", "list", "get"]) {
    t.regex(out, new RegExp(`^ {2}${wanted}\\b`, "m"));
    t.regex((await podnet(["network", wanted, "--help"])).out, /--socket <path>/);
  }
});

test("the launcher: through a symbolic link, exit codes, broken pipes, real streams", async (t) => {
  const link = path.join(server.folder, "podnet");
  symlinkSync(launcher, link);
  const env = { ...process.env, PODNET_SOCKET: socket };
  const { stdout } = await execute(link, ["list", "-q"], { env, cwd: "/" });
  t.is(stdout, "abcdefghijkl\nmnopqrstuvwx\n");
  const failed = await t.throwsAsync(execute(link, ["get", "nosuch"], { env }));
  t.is((failed as { code?: number } | undefined)?.code, 4);
  const piped = await execute("sh", ["-c", `printf hello | ${link} exec -i web cat; echo " $?"`], {
    env,
  });
  t.is(piped.stdout, "hello 3\n");
});

test("output that cannot be written is an error with a text", async (t) => {
  const shell = `${launcher} list --socket ${socket} >/dev/full`;
  const failed = (await t.throwsAsync(execute("sh", ["-c", shell]))) as { code?: number } & {
    stderr?: string;
  };
  t.is(failed.code, 1);
  t.is(failed.stderr, "error: standard output cannot be written (ENOSPC)\n");
});

test("a reader that has gone ends the command as SIGPIPE would, without a message", async (t) => {
  const child = spawn(launcher, ["list", "-o", "json", "--socket", socket]);
  child.stdout.destroy();
  const [said, [code]] = await Promise.all([
    child.stderr.setEncoding("utf8").toArray(),
    once(child, "close"),
  ]);
  t.deepEqual([said, code], [[], 141]);
});
