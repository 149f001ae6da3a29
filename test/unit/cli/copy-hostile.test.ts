import { execFileSync } from "node:child_process";
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { Podnet } from "../../../api/client.ts";
import { copyFromPod, type FromPod } from "../../../cli/copy/from-pod.ts";
import { staysInside } from "../../../cli/copy/unpacking.ts";

// `podnet cp` out of a guest whose tar, shell and cat are its own: all of the command's code but
// the API.

const fresh = (): string => mkdtempSync(path.join(tmpdir(), "podnet-hostile-"));

interface Reported {
  /** What the guest says of the path: itself, what it leads to, its parent, whether it has tar. */
  readonly look?: string;
  readonly answer: Iterable<Uint8Array> | ((signal: AbortSignal) => AsyncIterable<Uint8Array>);
}

/** A guest that answers a look and one program, and what became of that program. */
class Liar {
  sent = 0;
  ended = false;
  readonly interrupted = new AbortController();
  readonly #reported: Reported;

  constructor(reported: Reported) {
    this.#reported = reported;
  }

  async copy(wanted: Partial<FromPod> & { readonly target: string }): Promise<string[]> {
    const leftOut: string[] = [];
    const guest = {
      podnet: { pods: { exec: this.#exec.bind(this) } },
      idOrName: "liar",
      signal: this.interrupted.signal,
      silenceMs: 150,
    } as unknown as { podnet: Podnet; idOrName: string; signal: AbortSignal };
    await copyFromPod(guest, {
      source: "/srv/data",
      followLinks: false,
      outsideLinks: false,
      limit: 1 << 30,
      leftOut: (what) => void leftOut.push(what),
      ...wanted,
    });
    return leftOut;
  }

  async *#exec(
    requests: AsyncIterable<object>,
    { signal }: { signal: AbortSignal },
  ): AsyncGenerator<object> {
    const given = requests[Symbol.asyncIterator]();
    const { value } = (await given.next()) as {
      value: { input: { value: { args: string[] } } };
    };
    void given.next();
    const output = (bytes: Uint8Array): object => ({ output: { case: "stdout", value: bytes } });
    const exit = { output: { case: "exit", value: { code: 0 } } };
    if (value.input.value.args[0] === "sh") {
      yield output(Buffer.from(this.#reported.look ?? "f\nf\nd\nt\n"));
      yield exit;
      return;
    }
    try {
      const { answer } = this.#reported;
      for await (const bytes of typeof answer === "function" ? answer(signal) : answer) {
        this.sent += bytes.length;
        yield output(bytes);
      }
      yield exit;
    } finally {
      this.ended = true;
    }
  }
}

/** An archive that python made from the list. */
const archive = (python: string): Uint8Array[] => [
  execFileSync("/usr/bin/python3", [
    "-c",
    `import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT)
def add(name, kind=tarfile.REGTYPE, data=b"", link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), link
    out.addfile(info, io.BytesIO(data))
D, S, L = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
${python}
out.close()`,
  ]),
];

const directory = "d\nd\nd\nt\n";

test("a link where a file was asked for is refused: there is nothing for the next copy to follow", async (t) => {
  const here = fresh();
  const secret = path.join(here, "authorized_keys");
  writeFileSync(secret, "mine");
  const into = path.join(here, "into");
  mkdirSync(into);
  const link = new Liar({ answer: archive(`add("data", S, link=${JSON.stringify(secret)})`) });
  await t.throwsAsync(link.copy({ target: into }), {
    code: "AGENT_PROTOCOL",
    message: /has "data" as a link, which was a file before/,
  });
  t.deepEqual(readdirSync(into), []);
  for (const kind of ["D", "L"]) {
    const other = new Liar({ answer: archive(`add("data", ${kind}, link="data")`) });
    await t.throwsAsync(other.copy({ target: into }), { code: "AGENT_PROTOCOL" });
  }
  // A link that is there all the same, the caller's own say, gives way to the file: with tar and
  // without.
  for (const look of ["f\nf\nd\nt\n", "f\nf\nd\nn\n"]) {
    symlinkSync(secret, path.join(into, "data"));
    const plain = [Buffer.from("theirs")];
    const answer = look.includes("t") ? archive('add("data", data=b"theirs")') : plain;
    await new Liar({ look, answer }).copy({ target: into });
    t.is(readFileSync(secret, "utf8"), "mine");
    t.true(lstatSync(path.join(into, "data")).isFile());
    t.is(readFileSync(path.join(into, "data"), "utf8"), "theirs");
    execFileSync("rm", [path.join(into, "data")]);
  }
});

test("links that lead out of what is copied are left out, unless asked for; others stay", async (t) => {
  const python = `
add("data", D)
add("data/in", S, link="sub/../f")
add("data/sub/up", S, link="../f")
add("data/sub/out", S, link="../../f")
add("data/root", S, link="/etc/passwd")
add("data/self", S, link=".")
`;
  const links = async (outsideLinks: boolean): Promise<readonly [string[], string[]]> => {
    const target = path.join(fresh(), "copy");
    const liar = new Liar({ look: directory, answer: archive(python) });
    const leftOut = await liar.copy({ target, outsideLinks });
    const made = execFileSync("find", [".", "-type", "l", "-printf", "%P\n"], { cwd: target });
    return [made.toString().trim().split("\n"), leftOut];
  };
  const [inside, leftOut] = await links(false);
  t.deepEqual(inside.toSorted(), ["self", "sub/up"]);
  t.deepEqual(leftOut, [
    "data/in -> sub/../f",
    "data/sub/out -> ../../f",
    "data/root -> /etc/passwd",
  ]);
  t.is((await links(true))[0].length, 5);
  t.true(staysInside(2, "../../a/b"));
  t.false(staysInside(2, "../../../a"));
  t.false(staysInside(2, "a/../../b"));
});

test("a link by itself is copied as one only when that is asked for", async (t) => {
  const look = "l\nf\nd\nt\n";
  const here = fresh();
  const liar = (): Liar => new Liar({ look, answer: archive('add("data", S, link="/etc/x")') });
  await t.throwsAsync(liar().copy({ target: here }), { code: "INVALID_ARGUMENT" });
  await liar().copy({ target: here, outsideLinks: true });
  t.is(readlinkSync(path.join(here, "data")), "/etc/x");
});

/** An archive, and what comes behind it. */
function* followed(first: readonly Uint8Array[], then: () => Uint8Array): Generator<Uint8Array> {
  yield* first;
  for (;;) yield then();
}

const endless: Readonly<Record<string, () => Iterable<Uint8Array>>> = {
  "zeros behind the end": () =>
    followed(archive('add("data", data=b"x")'), () => new Uint8Array(65_536)),
  "entries behind the end": () =>
    followed(archive('add("data", data=b"x")'), () => archive('add("data2")')[0] as Uint8Array),
  "noise instead of a header": () => followed([], () => new Uint8Array(512).fill(7)),
  "the name it had before": () => {
    const [whole] = archive('add("data", data=b"x")');
    return followed([], () => (whole as Uint8Array).subarray(0, 1024));
  },
};

for (const [what, answer] of Object.entries(endless)) {
  test(`an archive without end is given up, and its program ended: ${what}`, async (t) => {
    const here = fresh();
    const liar = new Liar({ answer: answer() });
    await t.throwsAsync(liar.copy({ target: here }), { code: "AGENT_PROTOCOL" });
    t.true(liar.ended);
    t.true(liar.sent < 1 << 20, `${liar.sent} bytes were taken`);
    t.deepEqual(readdirSync(here), []);
  });
}

test("bytes, links and lengths of paths are bounded", async (t) => {
  const here = fresh();
  const refused = async (python: string, code: string, limit = 1 << 30): Promise<void> => {
    const liar = new Liar({ look: directory, answer: archive(python) });
    await t.throwsAsync(liar.copy({ target: path.join(here, "x"), limit }), { code });
    t.deepEqual(readdirSync(here), []);
  };
  await refused('add("data", D); add("data/f", data=b"x" * 100_000)', "LIMIT_REACHED", 50_000);
  await refused('add("data", D); add("data/" + "d/" * 200 + "f")', "AGENT_PROTOCOL");
  await refused('add("data", D); add("data/" + "n" * 300)', "AGENT_PROTOCOL");
  await refused('add("data", D); add("data/" + ("n" * 200 + "/") * 11 + "f")', "AGENT_PROTOCOL");
  await refused('add("data", D); add("data/l", S, link="x" * 70_000)', "AGENT_PROTOCOL");
  await refused('add("data", D); add("data/f"); add("data/f")', "AGENT_PROTOCOL");
  await refused('add("data", D); add("data/f"); add("data/f/g")', "AGENT_PROTOCOL");
  await refused('add("data", D); add("data/l", S, link="x"); add("data/l/f")', "AGENT_PROTOCOL");
});

test("memory does not follow the bytes that come", async (t) => {
  const size = 256 * 1024 * 1024;
  const [head] = archive(`
info = tarfile.TarInfo("data"); info.size = ${size}
sys.stdout.buffer.write(info.tobuf(tarfile.GNU_FORMAT))
sys.stdout.buffer.flush()
import os; os._exit(0)`);
  function* bytes(): Generator<Uint8Array> {
    yield head as Uint8Array;
    const piece = new Uint8Array(1 << 20);
    for (let at = 0; at < size; at += piece.length) yield piece;
    yield new Uint8Array(1024);
  }
  const before = process.memoryUsage.rss();
  const here = fresh();
  await new Liar({ answer: bytes() }).copy({ target: here });
  t.is(lstatSync(path.join(here, "data")).size, size);
  const grown = (process.memoryUsage.rss() - before) / 2 ** 20;
  t.true(grown < 100, `${grown} MiB more`);
  execFileSync("rm", ["-r", here]);
});

test("a guest that falls silent, or is interrupted, leaves nothing behind", async (t) => {
  const here = fresh();
  async function* silent(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    yield (archive('add("data", data=b"x" * 2000)')[0] as Uint8Array).subarray(0, 1000);
    await delay(10_000, undefined, { signal });
  }
  const liar = new Liar({ answer: silent });
  await t.throwsAsync(liar.copy({ target: here }), { code: "AGENT_TIMEOUT" });
  t.true(liar.ended);
  t.deepEqual(readdirSync(here), []);
  const other = new Liar({ answer: silent });
  const copied = other.copy({ target: here });
  while (other.sent === 0) await delay(5);
  t.is(readdirSync(here).length, 1, "what has come lies alongside");
  other.interrupted.abort(2);
  await t.throwsAsync(copied);
  t.deepEqual(readdirSync(here), []);
});

test("a guest that says too much about a path is not believed", async (t) => {
  const look = "f\n".repeat(100);
  const liar = new Liar({ look, answer: [] });
  await t.throwsAsync(liar.copy({ target: fresh() }), { code: "AGENT_PROTOCOL" });
});

test("nothing is put in the place of a device", async (t) => {
  const liar = new Liar({ answer: archive('add("data", data=b"x")') });
  await t.throwsAsync(liar.copy({ target: "/dev/null" }), { code: "INVALID_ARGUMENT" });
  t.true(lstatSync("/dev/null").isCharacterDevice());
});
