import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { run } from "../../linux/processes/command.ts";
import { openNftables } from "../../linux/nftables/libnftables.ts";
import { nftablesGeneration } from "../../linux/nftables/nftables-generation.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import { ownNetns } from "../lab/netns.ts";

const top = path.resolve(import.meta.dirname, "../..");

test.before(ownNetns);
test.beforeEach(async () => {
  await run(["nft", "flush", "ruleset"]);
});

const table = "add table inet t\nadd set inet t s { type inet_service; }";

test.serial("commands are one transaction: all of it or, with an error, none", async (t) => {
  const nft = openNftables();
  t.teardown(() => nft.close());
  await nft.commit("make", `${table}\nadd element inet t s { 80 comment "ours" }`);
  const before = nftablesGeneration() ?? 0;
  await nft.commit("more", "add element inet t s { 81 }\nadd element inet t s { 82 }");
  t.is(nftablesGeneration(), before + 1);
  const error = await t.throwsAsync(
    nft.commit("wrong", "add element inet t s { 83 }\ncreate element inet t s { 80 }"),
    { code: "FIREWALL_FAILED" },
  );
  t.regex(error?.message ?? "", /nftables, wrong: Could not process rule: File exists/);
  const { stdout } = await run(["nft", "list", "set", "inet", "t", "s"]);
  t.regex(stdout, /80 comment "ours"[\s\S]*81[\s\S]*82/);
  t.notRegex(stdout, /83/);
  t.is(nftablesGeneration(), before + 1);
});

test.serial("what is asked for at once is answered in order, a list as JSON", async (t) => {
  const nft = openNftables();
  t.teardown(() => nft.close());
  await nft.commit("make", `${table}\nadd element inet t s { 80, 81 }`);
  const [listed, , got] = await Promise.all([
    nft.list("list", "list table inet t"),
    nft.commit("add", "add element inet t s { 82 }"),
    nft.get("get", "get element inet t s { 82 }"),
  ]);
  t.deepEqual(JSON.parse(listed).nftables.at(-1).set.elem, [80, 81]);
  t.regex(got, /elements = \{ 82 \}/);
  const error = await t.throwsAsync(nft.list("absent", "list table inet other"));
  t.regex(error?.message ?? "", /absent: No such file or directory/);
  // What was said of the failure is not said again.
  t.notRegex(await nft.get("get", "get element inet t s { 80 }"), /No such file/);
});

test.serial("text that is no command is refused with what nft said of it", async (t) => {
  const nft = openNftables();
  t.teardown(() => nft.close());
  const error = await t.throwsAsync(nft.commit("nonsense", "add tbale inet x"), {
    code: "FIREWALL_FAILED",
  });
  t.regex(error?.message ?? "", /nonsense: syntax error/);
});

test.serial(
  "a context stays in the namespace it was opened in, and no child inherits it",
  async (t) => {
    const first = openNftables();
    const sockets = readdirSync("/proc/self/fd").flatMap((fd) => {
      try {
        const isSocket = readlinkSync(`/proc/self/fd/${fd}`).startsWith("socket:");
        const flags = /^flags:\s+(\d+)$/m.exec(
          readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"),
        )?.[1];
        return isSocket ? [Number.parseInt(flags ?? "0", 8) & 0o2000000] : [];
      } catch {
        return [];
      }
    });
    t.true(sockets.length > 0);
    t.false(sockets.includes(0), "every socket closes on exec");
    unshareNetns();
    const second = openNftables();
    await first.commit("make", table);
    t.is((await run(["nft", "list", "tables"])).stdout, "");
    await second.commit("make", "add table inet other");
    t.is((await run(["nft", "list", "tables"])).stdout, "table inet other\n");
    t.regex(await first.get("set", "list set inet t s"), /set s/);
    first.close();
    second.close();
    await t.throwsAsync(first.commit("late", table), { code: "FIREWALL_FAILED" });
  },
);

test.serial(
  "without the library, and without the right to use it, an error says what to do",
  async (t) => {
    const attempt = `
    import { openNftables } from "${top}/linux/nftables/libnftables.ts";
    try { await openNftables().commit("make", "add table inet t"); console.log("made"); }
    catch (error) { console.log(error.code, error.message, "|", error.hint); }`;
    const program = [path.join(top, "scripts/node"), "--input-type=module", "-e", attempt] as const;
    const library = (
      await run(["sh", "-c", "readlink -f /usr/lib/*/libnftables.so.1"])
    ).stdout.trim();
    const hidden = `mount -n --bind /dev/null ${library} && exec "$@"`;
    const missing = await run(["unshare", "--mount", "sh", "-c", hidden, "sh", ...program]);
    t.regex(missing.stdout, /^FIREWALL_FAILED libnftables\.so\.1 cannot be loaded \| Install it/);
    const bounded = await run(["setpriv", "--bounding-set=-net_admin", ...program]);
    t.regex(bounded.stdout, /^FIREWALL_FAILED .*Operation not permitted.*CAP_NET_ADMIN/s);
    // With this capability alone it works, whoever the user is.
    const alone = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    const caps = [
      "--inh-caps=+net_admin",
      "--ambient-caps=+net_admin",
      "--bounding-set=-all,+net_admin",
    ];
    const user = await run(["setpriv", ...alone, ...caps, process.execPath, ...program.slice(1)]);
    t.is(user.stdout, "made\n");
  },
);
