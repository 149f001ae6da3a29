import { join } from "node:path";
import test from "ava";
import { run } from "../../linux/processes/command.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";

const root = join(import.meta.dirname, "../..");
const name = `nr${process.pid}`;

test.before(async () => {
  await ownNetns();
  await ip(`netns add ${name}`);
});
test.after.always(() => ip(`netns delete ${name}`));

/** What a podnetd that is not root says of paths of namespaces. */
async function asUnprivileged(...paths: readonly string[]): Promise<unknown> {
  const program = `
    const { NetworkNamespace } = await import("${root}/linux/namespaces/namespace.ts");
    const { whyLost } = await import("${root}/daemon/containers/namespace.ts");
    const isThere = (netns) => whyLost({ netns }) === undefined;
    const opened = (path) => {
      try {
        NetworkNamespace.open(path)[Symbol.dispose]();
        return "opened";
      } catch ({ code, details, hint }) {
        return [code, details?.trouble, hint];
      }
    };
    const paths = ${JSON.stringify(paths)};
    console.log(JSON.stringify(paths.map((path) => [opened(path), isThere(path)])));`;
  const user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] as const;
  const { stdout } = await run([
    ...user,
    process.execPath,
    "--input-type=module",
    "--eval",
    program,
  ]);
  return JSON.parse(stdout);
}

test.serial(
  "a namespace that podnetd may not open is a typed error, and not taken to be gone",
  async (t) => {
    const [theirs, named, gone] = (await asUnprivileged(
      `/proc/${process.pid}/ns/net`,
      `/run/netns/${name}`,
      "/run/netns/never-was",
    )) as [[[string, string, string], boolean], unknown, unknown];
    const [[code, trouble, hint], stands] = theirs;
    t.deepEqual([code, trouble, stands], ["NETNS_UNUSABLE", "unreadable", true]);
    t.regex(hint, /below \/proc/);
    t.deepEqual(named, ["opened", true]);
    t.like(gone, [["NETNS_UNUSABLE", "absent"], false]);
  },
);
