import { closeSync, mkdirSync, openSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import test from "ava";
import { run } from "../../linux/processes/command.ts";
import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";

const folder = `/run/namespaces-${process.pid}`;
const name = (which: string): string => `${which}-${process.pid}`;
const at = (which: string): string => `/run/netns/${name(which)}`;
const self = (): string => readlinkSync("/proc/thread-self/ns/net");

test.before(async () => {
  await ownNetns();
  mkdirSync(folder);
  await ip(`netns add ${name("a")}`);
  await ip(`netns add ${name("b")}`);
});
test.after.always(async () => {
  await ip(`netns delete ${name("a")}`);
  await ip(`netns delete ${name("b")}`);
});

const trouble = (path: string): unknown => {
  try {
    NetworkNamespace.open(path)[Symbol.dispose]();
    return "opened";
  } catch (error) {
    const { code, details } = error as { code: string; details: Record<string, unknown> };
    return `${code} ${String(details["trouble"])}`;
  }
};

test.serial("what is opened in a namespace stays there, and this thread does not", async (t) => {
  const before = self();
  using space = NetworkNamespace.open(at("a"));
  const inside = space.enter(() => self());
  t.not(inside, before);
  t.is(self(), before);
  using netlink = space.enter(() => Rtnetlink.open());
  await netlink.addBridge({ name: "only-here" });
  t.truthy(await netlink.link("only-here"));
  t.regex(await ip(`-n ${name("a")} -o link show`), /only-here/);
  t.notRegex(await ip("-o link show"), /only-here/);
  t.throws(
    () =>
      space.enter(() => {
        throw new Error("inside");
      }),
    { message: "inside" },
  );
  t.is(self(), before);
});

test.serial("a namespace is the same by every path, and another is another", (t) => {
  using one = NetworkNamespace.open(at("a"));
  using again = NetworkNamespace.open(at("a"));
  using other = NetworkNamespace.open(at("b"));
  t.is(one.identity, again.identity);
  t.not(one.identity, other.identity);
});

test.serial("what is no network namespace is refused, and none of it waited for", async (t) => {
  writeFileSync(`${folder}/left`, "");
  await run(["mkfifo", `${folder}/pipe`]);
  const refused = {
    [`${folder}/nothing`]: "absent",
    [`${folder}/left/below`]: "absent",
    [`${folder}/left`]: "not-a-namespace",
    [`${folder}/pipe`]: "not-a-namespace",
    [folder]: "not-a-namespace",
    "/dev/null": "not-a-namespace",
    "/proc/self/ns/mnt": "not-a-namespace",
    "/proc/thread-self/ns/net": "own",
  };
  for (const [path, why] of Object.entries(refused))
    t.is(trouble(path), `NETNS_UNUSABLE ${why}`, path);
  t.is(trouble(at("a")), "opened");
});

test.serial(
  "one that is deleted while it is held can be worked in, and is gone afterwards",
  async (t) => {
    await ip(`netns add ${name("c")}`);
    {
      using space = NetworkNamespace.open(at("c"));
      await ip(`netns delete ${name("c")}`);
      using netlink = space.enter(() => Rtnetlink.open());
      t.is((await netlink.link("lo"))?.loopback, true);
    }
    t.is(trouble(at("c")), "NETNS_UNUSABLE absent");
  },
);

test.serial("a thousand times in and out leaves no descriptor and no thread elsewhere", (t) => {
  const open = (): number => readdirSync("/proc/self/fd").length;
  // (What the runtime opens at the first use is open by now.)
  closeSync(openSync("/dev/null", "r"));
  const before = open();
  for (let i = 0; i < 1000; i++) {
    using space = NetworkNamespace.open(at(i % 2 === 0 ? "a" : "b"));
    space.enter(() => undefined);
  }
  t.is(open(), before);
  using space = NetworkNamespace.open(at("a"));
  using other = NetworkNamespace.open(at("b"));
  const theirs = [space, other].map((each) => each.enter(self));
  for (const thread of readdirSync("/proc/self/task"))
    t.false(theirs.includes(readlinkSync(`/proc/self/task/${thread}/ns/net`)), thread);
});
