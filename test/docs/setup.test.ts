import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";

const top = path.resolve(import.meta.dirname, "../..");

/**
 * A machine that is not as it must be, made by a shell with mounts of its own, and what is said of
 * it.
 */
interface Machine {
  readonly what: string;
  /** Run in a fresh checkout, before the script under test. */
  readonly make: string;
  /** What the script is started by, if not the shell itself. */
  readonly by?: readonly string[];
  readonly said: RegExp;
  readonly advice: RegExp;
}

const debian = (version: string): string =>
  `printf '${version}\n' >/run/debian-version; mount --bind /run/debian-version /etc/debian_version`;

const machines: readonly Machine[] = [
  {
    what: "without root",
    make: ":",
    by: ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
    said: /needs root/,
    advice: /sudo/,
  },
  {
    what: "on Debian 11",
    make: debian("11.9"),
    said: /Debian 11\.9, not 12/,
    advice: /Use Debian 12/,
  },
  {
    what: "on Debian 13",
    make: debian("13.1"),
    said: /Debian 13\.1, not 12/,
    advice: /Use Debian 12/,
  },
  { what: "on Ubuntu", make: debian("bookworm/sid"), said: /not 12/, advice: /Use Debian 12/ },
  {
    what: "on another processor",
    make: ":",
    by: ["setarch", "i686"],
    said: /this is i686/,
    advice: /x86_64 machine/,
  },
  {
    what: "without npm",
    make: 'for npm in $(which -a npm); do mount --bind /dev/null "$npm"; done',
    said: /there is no npm/,
    advice: /Install Node\.js 20/,
  },
  {
    what: "without /dev/net/tun",
    make: "mount -t tmpfs tmpfs /dev/net",
    said: /there is no \/dev\/net\/tun/,
    advice: /modprobe tun/,
  },
  {
    what: "without the right to make namespaces",
    make: ":",
    by: ["setpriv", "--bounding-set=-sys_admin"],
    said: /network namespaces cannot be made/,
    advice: /restricted container/,
  },
  {
    what: "without space",
    make: 'cp -r . /run/all && mount -t tmpfs -o size=8m tmpfs "$PWD" && cp -r /run/all/. "$PWD"',
    said: /only \d MB are free/,
    // The tests need room for more images.
    advice: /Make room for at least (?:2500|5000) MB/,
  },
];

/** The scripts of a checkout that was never set up. */
function freshCheckout(): string {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-fresh-"));
  for (const name of ["scripts", "package.json", "package-lock.json", ".npmrc"])
    cpSync(path.join(top, name), path.join(directory, name), { recursive: true });
  return directory;
}

const listing = "find . -printf '%p %y %m %s %T@\\n' | sort";

for (const { what, make, by = [], said, advice } of machines) {
  for (const script of ["setup", "quickstart", "quickstart --keep", "test"]) {
    test(`scripts/${script} ${what} says one thing, ends with 6 and changes nothing`, async (t) => {
      const checkout = freshCheckout();
      t.teardown(() => {
        rmSync(checkout, { recursive: true, force: true });
      });
      const commands = `chmod 755 .
        ${make} || exit 99
        cd "$PWD"
        ${listing} >/run/before
        ${[...by, `scripts/${script}`].join(" ")}; code=$?
        ${listing} | diff /run/before - >&2 || code=98
        exit $code`;
      // A namespace of its own for the mounts, and a /run of its own; as a user's shell would start
      // it.
      const { PODNET_SANDBOX: _inside, ...env } = process.env;
      const own = `mount -n -t tmpfs tmpfs /run\n${commands}`;
      const run = promisify(execFile)("unshare", ["--mount", "sh", "-c", own], {
        cwd: checkout,
        env,
      });
      const ended = await t.throwsAsync(run);
      const { code, stdout, stderr } = ended as unknown as Record<string, string | number>;
      t.is(code, 6, String(stderr));
      t.is(stdout, "");
      const [first, second, ...more] = String(stderr).trimEnd().split("\n");
      t.regex(first ?? "", said);
      t.regex(second ?? "", advice);
      t.deepEqual(more, []);
    });
  }
}
