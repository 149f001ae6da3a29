import { execFileSync } from "node:child_process";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { endpointOf, type Found, landingOf } from "../../../cli/copy/endpoint.ts";
import { pack } from "../../../cli/copy/to-pod.ts";
import { Unpacking } from "../../../cli/copy/unpacking.ts";
import { lastLines } from "../../../cli/commands/logs.ts";

const fresh = (): string => mkdtempSync(path.join(tmpdir(), "podnet-copy-"));

test("POD:PATH, - and paths here are told apart", (t) => {
  t.deepEqual(endpointOf("-", "source"), { kind: "stream" });
  t.deepEqual(endpointOf("web:/etc/.", "source"), { kind: "pod", idOrName: "web", path: "/etc/." });
  t.deepEqual(endpointOf("web:a", "source"), { kind: "pod", idOrName: "web", path: "/a" });
  t.deepEqual(endpointOf("web:", "source"), { kind: "pod", idOrName: "web", path: "/" });
  for (const here of ["./web:a", "/web:a", "a", "Web:a"])
    t.deepEqual(endpointOf(here, "source"), { kind: "local", path: here });
  t.throws(() => endpointOf("", "source"), { message: /empty/ });
});

test("where a copy lands: docker cp's rules", (t) => {
  const land = (
    source: string,
    isDirectory: boolean,
    target: string,
    found: Found,
    parent: Found,
  ) => {
    try {
      const { directory, name } = landingOf(
        { path: source, isDirectory },
        { path: target, found, parent },
      );
      return `${directory} ${name ?? "(contents)"}`;
    } catch (thrown) {
      return (thrown as Error).message;
    }
  };
  const d = "directory";
  t.is(land("a/f", false, "/dst", "absent", d), "/ dst");
  t.is(land("a/f", false, "/dst/", "absent", d), '"/dst/" is not there');
  t.is(land("a/f", false, "/dst", "file", d), "/ dst");
  t.is(land("a/f", false, "/dst/", "file", d), '"/dst/" is no directory');
  t.is(land("a/f", false, "/dst", d, d), "/dst f");
  t.is(land("a/f", false, "/no/dst", "absent", "absent"), '"/no" is not there');
  t.is(land("a/d", true, "/dst", "absent", d), "/ dst");
  t.is(land("a/d/", true, "/dst/", "absent", d), "/ dst");
  t.is(land("a/d/.", true, "/dst", "absent", d), "/ dst");
  t.is(land("a/d", true, "/dst", "file", d), '"/dst" is no directory');
  t.is(land("a/d", true, "/dst/", d, d), "/dst/ d");
  t.is(land("a/d/.", true, "/dst", d, d), "/dst (contents)");
  t.is(land("/", true, "/dst", d, d), "/dst (contents)");
});

/** Unpacks an archive that python made from the list, as a guest's answer to a copy of `data`. */
function unpack(python: string, into = fresh(), outsideLinks = false) {
  const archive = execFileSync("/usr/bin/python3", [
    "-c",
    `import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT)
def add(name, kind=tarfile.REGTYPE, data=b"", link="", mode=0o644, mtime=1000000000):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mode, info.mtime = kind, len(data), link, mode, mtime
    out.addfile(info, io.BytesIO(data))
D, S, L = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
${python}
out.close()`,
  ]);
  const leftOut: string[] = [];
  using unpacking = new Unpacking({
    directory: into,
    from: "data",
    to: "copied",
    kind: "directory",
    outsideLinks,
    leftOut: (what) => void leftOut.push(what),
  });
  for (let at = 0; at < archive.length; at += 700) {
    unpacking.take(archive.subarray(at, at + 700));
  }
  unpacking.end();
  return { into, leftOut };
}

test("modes, times and links are as in the archive; devices and set-user-id bits are left out", (t) => {
  const { into, leftOut } = unpack(
    `
add("data", D, mode=0o555)
add("data/f", data=b"x" * 3000, mode=0o4766)
add("data/to-root", S, link="/etc/passwd")
add("data/up", S, link="../../..")
add("data/inside", S, link="d/g")
add("data/hard", L, link="data/f")
add("data/tty", tarfile.CHRTYPE)
add("data/d", D, mode=0o2711)
add("data/d/g", data=b"y", mtime=1100000000)
add("data/" + "x" * 120 + "/" + "y" * 120, data=b"long")
`,
    undefined,
    true,
  );
  const at = (name: string): string => path.join(into, "copied", name);
  t.is(statSync(at("f")).mode & 0o7777, 0o766);
  t.is(readFileSync(at("f")).length, 3000);
  t.is(statSync(at("d/g")).mtime.getTime(), 1_100_000_000_000);
  for (const name of ["", "d"]) t.is(statSync(at(name)).mtime.getTime(), 1_000_000_000_000, name);
  t.is(statSync(at("")).mode & 0o7777, 0o555);
  t.is(statSync(at("d")).mode & 0o7777, 0o711);
  t.is(readlinkSync(at("to-root")), "/etc/passwd");
  t.is(readlinkSync(at("up")), "../../..");
  t.is(readlinkSync(at("inside")), "d/g");
  t.is(readFileSync(at(`${"x".repeat(120)}/${"y".repeat(120)}`), "utf8"), "long");
  t.is(statSync(at("hard")).ino, statSync(at("f")).ino);
  t.deepEqual(leftOut, ["data/tty"]);
});

/** Archives that would reach outside of the destination, or bring unrequested files. */
const hostile: Readonly<Record<string, string>> = {
  "another name": 'add("data/f"); add(".bashrc", data=b"evil")',
  "a way up": 'add("data/../../escaped", data=b"evil")',
  "a way up first": 'add("../data/escaped", data=b"evil")',
  "from the root": 'add("/tmp/escaped", data=b"evil")',
  "through a link":
    'add("data", D); add("data/l", S, link=OUT); add("data/l/escaped", data=b"evil")',
  "a link through a link":
    'add("data", D); add("data/l", S, link=OUT); add("data/l/escaped", S, link="/etc/passwd")',
  "in place of its link": 'add("data", S, link=OUT); add("data/escaped", data=b"evil")',
  "a hard link to outside": 'add("data", D); add("data/h", L, link=OUT + "/kept")',
  "a hard link upwards": 'add("data", D); add("data/h", L, link="data/../../kept")',
  "a name of two": 'add("data\\\\..\\\\x"); add("data/f"); add("dat", data=b"evil")',
};

const harmlessWithoutLinks = ["through a link", "a link through a link"];

for (const [how, python] of Object.entries(hostile)) {
  test(`a hostile archive writes nothing outside: ${how}`, (t) => {
    const outside = fresh();
    writeFileSync(path.join(outside, "kept"), "as it was");
    const into = path.join(outside, "into");
    mkdirSync(into);
    for (const outsideLinks of [false, true]) {
      const run = (): unknown =>
        unpack(`OUT = ${JSON.stringify(outside)}\n${python}`, into, outsideLinks);
      // A link that is left out leaves nothing to go through.
      if (outsideLinks || !harmlessWithoutLinks.includes(how))
        t.throws(run, { code: "AGENT_PROTOCOL" });
      else t.notThrows(run);
    }
    t.deepEqual(readdirSync(outside).sort(), ["into", "kept"]);
    t.is(readFileSync(path.join(outside, "kept"), "utf8"), "as it was");
    t.is(statSync(path.join(outside, "kept")).nlink, 1);
    t.deepEqual(
      readdirSync(into).filter((name) => name !== "copied"),
      [],
    );
    t.false(existsSync("/tmp/escaped"));
  });
}

test("a link of the caller's own in the destination is not written through either", (t) => {
  const outside = fresh();
  const into = fresh();
  mkdirSync(path.join(into, "copied"));
  symlinkSync(outside, path.join(into, "copied/l"));
  t.throws(() => unpack('add("data/l/escaped", data=b"evil")', into), {
    code: "INVALID_ARGUMENT",
  });
  t.deepEqual(readdirSync(outside), []);
  // Positive control: alongside it, it works.
  unpack('add("data/m/fine", data=b"good")', into);
  t.is(readFileSync(path.join(into, "copied/m/fine"), "utf8"), "good");
});

test("what is packed bears the new name, root as its owner, and modes, times and links as they are", async (t) => {
  const from = fresh();
  const at = path.join(from, "@data");
  mkdirSync(path.join(at, "d"), { recursive: true });
  writeFileSync(path.join(at, "d/f"), "text", { mode: 0o640 });
  execFileSync("ln", [path.join(at, "d/f"), path.join(at, "hard")]);
  symlinkSync("../nowhere", path.join(at, "soft"));
  const list = async (name: string | undefined): Promise<string[]> => {
    const parts: Uint8Array[] = [];
    for await (const part of pack(at, name, false)) parts.push(part);
    const text = execFileSync("tar", ["-tvf", "-", "--numeric-owner"], {
      input: Buffer.concat(parts),
    }).toString();
    return text
      .trim()
      .split("\n")
      .map((line) => line.replace(/ +\d+ \d{4}-\S+ \S+/, ""))
      .sort();
  };
  // Directories come again at the end, for their times.
  t.deepEqual(
    [...new Set(await list("new"))],
    [
      "-rw-r----- 0/0 new/d/f",
      "drwxr-xr-x 0/0 new/",
      "drwxr-xr-x 0/0 new/d/",
      "hrw-r----- 0/0 new/hard link to new/d/f",
      "lrwxrwxrwx 0/0 new/soft -> ../nowhere",
    ],
  );
  const bare = (await list(undefined)).map((line) => line.split(" ").at(2) ?? "");
  t.deepEqual([...new Set(bare)].toSorted(), ["d/", "d/f", "hard", "soft"]);
  t.true(lstatSync(path.join(at, "soft")).isSymbolicLink());
});

test("the last lines of a log, one without an end among them", (t) => {
  const last = (text: string, lines: number): string =>
    Buffer.from(lastLines(Buffer.from(text), lines)).toString();
  t.is(last("a\nb\nc\n", 2), "b\nc\n");
  t.is(last("a\nb\nc", 2), "b\nc");
  t.is(last("a\nb\n", 5), "a\nb\n");
  t.is(last("\n\n", 1), "\n");
  t.is(last("a\n", 0), "");
  t.is(last("", 3), "");
});
