import test from "ava";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet, start } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
const socket = server.h2;
test.after.always(() => server.kill());
const here = { socket };
const ids = "abcdefghijkl\nmnopqrstuvwx\n";

test("podnetd's place is taken before the command, behind its group, and behind it", async (t) => {
  for (const args of [
    ["--socket", socket, "list", "-q"],
    [`--socket=${socket}`, "list", "-q"],
    ["list", "-q", "--socket", socket],
    ["list", `--socket=${socket}`, "-q"],
    // What is nearer to the command counts.
    ["--socket", "/nonexistent", "list", "-q", "--socket", socket],
    ["--url", "https://nonexistent:1", "list", "-q", "--socket", socket],
  ])
    t.like(
      await podnet(args, { env: { PODNET_SOCKET: "/other" } }),
      { code: 0, out: ids },
      args.join(" "),
    );
  const { code, out } = await podnet(["network", "--socket", socket, "list", "-o", "json"]);
  t.deepEqual([code, JSON.parse(out).kind], [0, "NetworkList"]);
  t.is((await podnet(["--socket", socket, "network"])).code, 0);
  t.is((await podnet(["--socket", "/nonexistent", "list"], here)).code, 3);
  const both = await podnet(["--socket", "/x", "--url", "https://x:1", "list"]);
  t.regex(both.err, /both given/);
});

test("with podnetd's place before it, a command keeps its exit codes and formats", async (t) => {
  t.is((await podnet(["--socket", "/nonexistent", "exec", "web", "true"])).code, 125);
  const gone = await podnet(["--socket", socket, "get", "nosuch", "-o", "json"]);
  t.is(JSON.parse(gone.err).error.code, "POD_NOT_FOUND");
  // "-o" behind exec's pod is of the guest.
  const guest = await podnet(["--socket", "/nonexistent", "exec", "web", "ls", "-o", "json"]);
  t.regex(guest.err, /^error: podnetd does not answer/);
  const watched = start(["--socket", socket, "watch"]);
  const until = setInterval(() => watched.signal("SIGINT"), 20);
  t.is(await watched.done, 130);
  clearInterval(until);
  t.is(watched.stderr.text, "");
});

test("help before a command is about the command", async (t) => {
  for (const args of [
    ["--help", "list"],
    ["-h", "ps"],
    ["list", "extra", "--help"],
    ["help", "list"],
  ])
    t.regex((await podnet(args)).out, /^Usage: podnet list/, args.join(" "));
  t.regex((await podnet(["--help", "network", "create"])).out, /^Usage: podnet network create/);
  t.regex((await podnet(["--help", "network"])).out, /^Usage: podnet network/);
  t.regex((await podnet(["--help", "--socket", "/x", "list"])).out, /^Usage: podnet list/);
  // The words of the guest stay its own.
  t.regex((await podnet(["--help", "exec", "web", "ls"])).out, /^Usage: podnet exec/);
  t.regex((await podnet(["--help", "nosuch"])).out, /^Usage: podnet \[options\]/);
  t.regex((await podnet(["--help"])).out, /^Usage: podnet \[options\]/);
});

test("a word of another program is answered with podnet's", async (t) => {
  for (const [args, text] of [
    [["pull", "app"], /podnet has: podnet image pull\)/],
    [["kill", "web"], /podnet has: podnet stop --force\)/],
    [["events"], /podnet has: podnet watch\)/],
    [["constructor"], /unknown command 'constructor'\n$/],
    [["crate"], /Did you mean create\?/],
    [["list", "--format", "x"], /Write -o json, -o yaml, or -o 'jsonpath=/],
    [["get", "web", "--json"], /Write -o json\)/],
    [["delete", "web", "--format", "x"], /unknown option '--format'/],
    [["network", "create", "x", "--subnet", "10.0.0.0/24"], /Write --cidr\)/],
    [["interface", "add", "web", "--network", "x"], /as a part of the interface: network=…\)/],
    [["list", "--lable", "x"], /Did you mean --label\?/],
  ] as const) {
    const { code, out, err } = await podnet(args, here);
    t.deepEqual([code, out], [2, ""], err);
    t.regex(err, text);
  }
});

test("a wrong command of a group that lists by itself is named", async (t) => {
  for (const [args, text] of [
    [
      ["image", "remove", "x"],
      /^error: unknown command 'remove'\n\(Did you mean rm\?\)\nTry: podnet image --help\n$/,
    ],
    [["network", "show", "x"], /Did you mean get\?/],
    [["network", "crate", "x"], /Did you mean create\?/],
    [["image", "colour"], /^error: unknown command 'colour'\nTry/],
    [["--socket", "/x", "policy", "aply"], /Did you mean apply\?/],
  ] as const) {
    const { code, err } = await podnet(args, here);
    t.is(code, 2);
    t.regex(err, text);
  }
  t.is((await podnet(["network"], here)).code, 0);
  t.is((await podnet(["network", "-o", "json"], here)).code, 0);
  t.regex((await podnet(["network", "help", "create"], here)).out, /^Usage: podnet network create/);
});

test("list takes docker's --all, which changes nothing", async (t) => {
  t.is((await podnet(["ps", "-a", "-q"], here)).out, ids);
  t.notRegex((await podnet(["ps", "--help"])).out, /--all\b(?!-)/);
});

test("a pod that was created by a name alone is refused by this argument", async (t) => {
  const alone = await podnet(["create", "taken"], here);
  t.regex(alone.err, /NAME_IN_USE\)\n {2}argument: NAME\n/);
  t.regex(
    (await podnet(["create", "--name", "taken"], here)).err,
    /NAME_IN_USE\)\n {2}flag: --name\n/,
  );
  const json = await podnet(["create", "taken", "-o", "json"], here);
  t.like(JSON.parse(json.err).error, { flag: "", argument: "NAME" });
});

test("a file that is no socket is distinguished from a podnetd that has ended", async (t) => {
  const file = await podnet(["list", "--socket", "/etc/passwd"]);
  t.deepEqual([file.code, /This is not a socket/.test(file.err)], [3, true], file.err);
});

test("memory is whole MiB, also of a fraction", async (t) => {
  for (const [text, mib] of [
    ["1.5G", 1536],
    ["1T", 1_048_576],
    ["0.5GiB", 512],
    ["256", 256],
  ] as const) {
    await podnet(["create", "--memory", text], here);
    t.is(daemon.calls.creates.at(-1)?.spec?.resources?.memoryMib, mib, text);
  }
  for (const text of ["0.3M", "9999999T", "1.5", "G", "1e3"])
    t.regex(
      (await podnet(["create", "--memory", text], here)).err,
      /not an amount of memory/,
      text,
    );
});

test("nothing to print is said on a terminal alone", async (t) => {
  await using quiet = await serve((router) => {
    addService(router, PodService, {
      get: ({ idOrName }) => ({
        pod: { name: idOrName, ...(idOrName === "job" ? { process: {} } : {}) },
      }),
      async *console() {},
      async *logs() {},
    });
  });
  const there = { socket: quiet.h2, tty: true };
  const said = await podnet(["logs", "web"], there);
  t.deepEqual([said.code, said.out], [0, ""]);
  t.is(said.err, "Nothing has been printed on the guest's console yet\n");
  t.is(
    (await podnet(["logs", "job"], there)).err,
    "The pod's main process has written nothing yet\n",
  );
  t.is((await podnet(["logs", "job", "--since", "1m"], there)).err, "");
  for (const name of ["web", "job"])
    t.is((await podnet(["logs", name], { socket: quiet.h2 })).err, "");
  t.is((await podnet(["logs", "web"], { socket, tty: true })).err, "");
});
