import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";

const top = path.resolve(import.meta.dirname, "../..");

/** The rooms of podnetd. Agent, image builder and command line have no failpoints. */
const moduleFolders =
  "{core,ipallocator,linux,network,hypervisor,etcd,kubernetes,overlay,daemon,guest-init/channel}/**/*.ts";

/**
 * By module: its functions that change something outside of the process, or send something there.
 */
const mutators: Readonly<Record<string, RegExp>> = {
  "node:fs":
    /^(?:write|append|mk|rm|unlink|rename|link|symlink|l?f?ch(?:mod|own)|f?truncate|f?utimes|copy|cp|fsync|fdatasync|createWrite|open)/,
  "node:fs/promises":
    /^(?:write|append|mk|rm|unlink|rename|link|symlink|ch(?:mod|own)|truncate|utimes|copy|cp|open)/,
  "node:child_process": /./,
  execa: /^execa/,
  "ffi/libc.ts": /^(?:bind|connect|send|sendmm?sg|writev|ioctl\w+|setns|unshare|posixSpawn)$/,
  "ffi/scm-rights.ts": /^send/,
};
/** Methods, in the files that have to do with them. */
const methods: readonly (readonly [inFilesWith: RegExp, call: RegExp])[] = [
  [/./, /\bprocess\.kill\(|\bserver\.listen\(|\bfile\.(?:truncate|write)\(/g],
  [/from "node:sqlite"/, /\.(?:exec|run)\(/g],
];

/** Calls that stand outside of an effect's parentheses: how many of them, and why they may. */
const outside: Readonly<Record<string, readonly [count: number, why: string]>> = {
  "daemon/dns/listen.ts: server.listen": [1, "`take`, which is called in one"],
  "daemon/main/failpoints.ts: openSync": [1, "the failpoints themselves"],
  "daemon/main/failpoints.ts: writeSync": [2, "the failpoints themselves"],
  "daemon/main/failpoints.ts: process.kill": [1, "the failpoints themselves"],
  "daemon/store/lock.ts: server.listen": [1, "`claim`, which is called in one"],
  "daemon/main/preflight.ts: openSync": [1, "opened and closed: whether it may be"],
  "daemon/published/tcp-port.ts: server.listen": [1, "`listening`, which is called in one"],
  "daemon/listeners/tls-listener.ts: server.listen": [1, "`listening`, which is called in one"],
  "daemon/listeners/unix-listener.ts: server.listen": [1, "`listenClosed`, which is called in one"],
  "daemon/images/job-directory.ts: chmodSync": [2, "its functions, which are called in one"],
  "daemon/images/job-directory.ts: chownSync": [1, "its functions, which are called in one"],
  "daemon/images/job-directory.ts: lchownSync": [1, "its functions, which are called in one"],
  "daemon/images/job-directory.ts: mkdirSync": [1, "its functions, which are called in one"],
  "daemon/images/job-directory.ts: rmSync": [1, "its functions, which are called in one"],
  "daemon/salvage/base.ts: copyFileSync": [2, "`putAside`, which is called in one"],
  "daemon/salvage/base.ts: mkdirSync": [1, "`putAside`, which is called in one"],
  "daemon/salvage/base.ts: renameSync": [2, "`putAside`, which is called in one"],
  "daemon/salvage/base.ts: rmSync": [1, "`putAside`, which is called in one"],
  "daemon/store/commit-mark.ts: openSync": [1, "`openMark`, which is called in one"],
  "daemon/store/commit-mark.ts: writeSync": [1, "`#finish` and `#openMark`, which perform effects"],
  "daemon/store/database.ts: run": [2, "`#execute` and `#finish`, which perform effects"],
  "daemon/store/database.ts: exec": [
    7,
    "BEGIN, ROLLBACK, a pattern's, settings of a connection, `#finish` and `setUp`, which are called in one",
  ],
  "daemon/store/good-copy.ts: exec": [1, "`lookAtTemporary`, which is called in one"],
  "daemon/store/attachments-of-decisions.ts: run": [
    1,
    "`upgrade`, which calls steps of the schema in one",
  ],
  "daemon/store/log-flush.ts: openSync": [1, "opens what is there, and stands in `flush`"],
  "daemon/store/plans-of-decisions.ts: run": [
    1,
    "`upgrade`, which calls steps of the schema in one",
  ],
  "hypervisor/argv/accelerator.ts: openSync": [1, "opened and closed: whether it may be"],
  "hypervisor/disks/open-checked.ts: openSync": [
    1,
    "names a file without opening it; `openChecked` is called in one where a disk is opened",
  ],
  "hypervisor/process/process.ts: spawn": [1, "`spawnStrictly`, which is called in one"],
  "hypervisor/process/run-dir.ts: open": [1, "what is done with the file is an effect"],
  "linux/processes/spawn.ts: posixSpawn": [1, "`spawnProcess`, which is called in one"],
  "linux/processes/spawn.ts: process.kill": [1, "what has begun in an effect that has failed"],
  "linux/processes/command.ts: execa": [1, "`command`, which is called in one"],
  "linux/sockets/datagram-outlet.ts: sendmmsg": [
    2,
    "packets of a tunnel, on a thread without failpoints",
  ],
  "linux/files/descriptor.ts: writev": [1, "packets of a tunnel, on a thread without failpoints"],
  "linux/files/descriptor.ts: writeSync": [1, "wakes a thread of this process"],
  "linux/sockets/device-socket.ts: bind": [1, "`setUp`, which is called in one"],
  "linux/files/file-lock.ts: openSync": [1, "`lockFile`, which is called in one"],
  "linux/files/memfd.ts: ftruncateSync": [1, "the size of a memory file that nothing else has yet"],
  "linux/netlink/netlink-socket.ts: bind": [1, "`#setUp`, which is called in one"],
  "linux/netlink/netlink-socket.ts: send": [
    2,
    "the method's head and body; each request is an effect where it is called",
  ],
  "linux/namespaces/namespace.ts: ioctlNumber": [
    1,
    "asks what a descriptor leads to; changes nothing",
  ],
  "linux/namespaces/netns.ts: setns": [3, "changes the process alone"],
  "linux/namespaces/netns.ts: unshare": [2, "changes the process alone"],
  "linux/ethtool.ts: ioctlPointer": [
    1,
    "`ethtool`, which is called in one where it sets something",
  ],
  "linux/sockets/local-address.ts: bind": [1, "`canBind`, which is called in one"],
  "linux/packets/packet-socket.ts: bind": [1, "`#attach`, which is called in one"],
  "linux/packets/packet-socket.ts: send": [1, "the method's head; what it calls is an effect"],
  "linux/packets/packet-socket.ts: ioctlPointer": [
    1,
    "asks which link has a name; changes nothing",
  ],
  "linux/tun.ts: openSync": [1, "makes nothing; what is asked of the device is an effect"],
  "linux/sockets/unix-socket.ts: connect": [1, "`tryConnect`, which is called in one"],
  "linux/sockets/unix-socket.ts: send": [1, "nothing, to see whether it could be received"],
  "linux/sockets/unix-socket.ts: sendRights": [1, "`sendWithFd`, which is called in one"],
};

/**
 * The source with everything in comments, strings and patterns blanked, so that parentheses can be
 * counted.
 */
function bare(source: string): string {
  return source.replaceAll(
    /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|(?<=[(,=:!&|?[]\s*)\/(?![*/])(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/g,
    (text) => text.replaceAll(/[^\n]/g, " "),
  );
}

/** Whether what stands at `at` is within the parentheses of a `perform` or `performAsync`. */
function isEffect(code: string, at: number): boolean {
  let depth = 0;
  for (let i = at - 1; i >= 0; i--) {
    if (code[i] === ")") depth++;
    else if (code[i] === "(" && depth-- === 0) {
      if (/\bperform(?:Async)?(?:<[^()]*>)?$/.test(code.slice(0, i))) return true;
      depth = 0;
    }
  }
  return false;
}

/** The local names of what a file imports that changes something. */
function changing(source: string): string[] {
  return [...source.matchAll(/import \{([^}]*)\} from "([^"]+)"/g)].flatMap(
    ([, names = "", from = ""]) => {
      const [, which] =
        Object.entries(mutators).find(
          ([module]) => from === module || from.endsWith(`/${module}`),
        ) ?? [];
      return names
        .split(",")
        .map((name) => name.trim())
        .filter((name) => which !== undefined && !name.startsWith("type ") && which.test(name))
        .map((name) => name.replace(/^.* as /, ""));
    },
  );
}

/** Opening to read changes nothing. */
const onlyReads = (call: string): boolean =>
  /^open(?:Sync)?\(/.test(call) && /"r"|O_RDONLY|O_PATH/.test(call);

/** Calls of a file that change something and stand in no effect, as `file: name`. */
function outsideOfEffects(file: string, source: string): string[] {
  const code = bare(source);
  const calls = [
    ...changing(source).flatMap((name) => [
      ...code.matchAll(new RegExp(`(?<![.\\w])${name}\\(`, "g")),
    ]),
    ...methods.flatMap(([having, call]) => (having.test(source) ? [...code.matchAll(call)] : [])),
  ];
  return calls
    .filter(({ index }) => !isEffect(code, index))
    .filter(({ index }) => !onlyReads(source.slice(index, index + 120)))
    .map(([call]) => `${file}: ${call.replace(/^\W+|\($/g, "")}`);
}

/** How often each is there. */
const counted = (calls: readonly string[]): Record<string, number> =>
  Object.fromEntries(Array.from(Map.groupBy(calls, String), ([call, all]) => [call, all.length]));

test("what changes something outside of podnetd stands in an effect", (t) => {
  const files = globSync(moduleFolders, { cwd: top }).sort();
  const found = files.flatMap((file) =>
    outsideOfEffects(file, readFileSync(path.join(top, file), "utf8")),
  );
  const allowed = Object.entries(outside).map(([call, [count]]) => [call, count] as const);
  t.deepEqual(counted(found), Object.fromEntries(allowed));
});

const naked = `import { chmodSync, openSync } from "node:fs";
import { perform } from "../core/effect.ts";
/* chmodSync( */ const text = "chmodSync(";
`;

test("the rule sees a call that stands in none", (t) => {
  t.deepEqual(outsideOfEffects("x.ts", `${naked}chmodSync("x", 1);\n`), ["x.ts: chmodSync"]);
  t.deepEqual(
    outsideOfEffects("x.ts", `${naked}perform("file", "x", () => chmodSync("x", 1));\n`),
    [],
  );
  t.deepEqual(
    outsideOfEffects("x.ts", `${naked}perform("file", "x", () => y());\nchmodSync("x", (1));\n`),
    ["x.ts: chmodSync"],
  );
  t.deepEqual(outsideOfEffects("x.ts", `${naked}openSync("x", "r"); openSync("x", "r+");\n`), [
    "x.ts: openSync",
  ]);
});
