import { execFile, execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { podnet } from "../unit/cli/fixtures/io.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
let here: string;
test.serial.before(async () => {
  rig = await joinRig();
  here = mkdtempSync(path.join(rig.directory, "here-"));
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** The command, in this process: a process of its own for each of dozens takes most of the time. */
const tryCp = (...args: readonly string[]): ReturnType<typeof podnet> =>
  podnet(["cp", ...args], { socket: rig.daemon.socket });
async function cp(...args: readonly string[]): Promise<void> {
  const { code, err } = await tryCp(...args);
  if (code !== 0) throw new Error(`podnet cp ${args.join(" ")} ended with ${code}: ${err}`);
}
const guest = async (script: string): Promise<string> =>
  (await execIn(rig.client, "web", "sh", "-c", script)).output.trim();
const podnetProgram = path.resolve(import.meta.dirname, "../../bin/podnet");

/** A tree with what a copy has to keep. */
function makeTree(name: string): string {
  const top = path.join(here, name);
  mkdirSync(path.join(top, "d"), { recursive: true });
  writeFileSync(path.join(top, "d/run"), "#!/bin/sh\necho ran\n");
  chmodSync(path.join(top, "d/run"), 0o751);
  writeFileSync(path.join(top, "-dash ü"), Buffer.from([0, 255, 10, 13]));
  symlinkSync("d/run", path.join(top, "to-run"));
  symlinkSync("/nowhere", path.join(top, "absolute"));
  for (const each of ["d/run", "d"]) utimesSync(path.join(top, each), 1e9, 1e9);
  return top;
}

async function thereAndBack(t: ExecutionContext, name: "busybox" | "gnu"): Promise<void> {
  const top = makeTree(name);
  await cp(top, "web:/tmp");
  t.is(await guest(`/tmp/${name}/to-run`), "ran");
  t.is(
    await guest(`cd /tmp/${name}; stat -c '%a %u %Y' d/run; readlink absolute`),
    "751 0 1000000000\n/nowhere",
  );
  t.is(await guest(`stat -c %Y /tmp/${name}/d`), "1000000000");
  // A new name, and again into what is there by then.
  const back = path.join(here, `${name}-back`);
  await cp("--outside-links", `web:/tmp/${name}`, back);
  await cp("--outside-links", `web:/tmp/${name}/`, back);
  t.deepEqual(readdirSync(back).sort(), ["-dash ü", "absolute", "d", name, "to-run"].sort());
  for (const copy of [back, path.join(back, name)]) {
    t.is(statSync(path.join(copy, "d/run")).mode & 0o7777, 0o751);
    t.is(statSync(path.join(copy, "d/run")).mtimeMs, 1e12);
    t.is(statSync(path.join(copy, "d")).mtimeMs, 1e12);
    t.is(readlinkSync(path.join(copy, "to-run")), "d/run");
    t.is(readlinkSync(path.join(copy, "absolute")), "/nowhere");
    t.deepEqual(readFileSync(path.join(copy, "-dash ü")), Buffer.from([0, 255, 10, 13]));
  }
}

test.serial("a tree there and back keeps modes, times and links: busybox's tar", async (t) => {
  await rig.client.pods.create({ spec: { name: "web" } });
  await thereAndBack(t, "busybox");
});

test.serial("single files, contents, links followed; what goes nowhere is refused", async (t) => {
  const top = makeTree("rules");
  await cp(path.join(top, "-dash ü"), "web:/tmp/renamed");
  await cp(`${top}/.`, "web:/tmp/contents");
  await cp("-L", path.join(top, "to-run"), "web:/tmp/");
  t.is(
    await guest("wc -c < /tmp/renamed; ls /tmp/contents | wc -l; cat /tmp/to-run"),
    "4\n4\n#!/bin/sh\necho ran",
  );
  await cp("web:/tmp/renamed", path.join(here, "renamed-here"));
  await cp("-L", "web:/tmp/contents/to-run", here);
  t.is(readFileSync(path.join(here, "renamed-here")).length, 4);
  t.regex(readFileSync(path.join(here, "to-run"), "utf8"), /echo ran/);
  await cp("web:/tmp/contents/.", path.join(here, "renamed-contents"));
  t.is(
    readdirSync(path.join(here, "renamed-contents")).length,
    3,
    "its link to /nowhere is left out",
  );
  const refused = async (
    wanted: RegExp,
    code: number,
    ...args: readonly string[]
  ): Promise<void> => {
    const { code: exitCode, err: stderr } = await tryCp(...args);
    t.deepEqual([exitCode, wanted.test(stderr)], [code, true], `${args.join(" ")}: ${stderr}`);
  };
  await refused(/"\/none" is not there in the pod/, 2, "web:/none", here);
  await refused(/none" is not there on this host/, 2, path.join(here, "none"), "web:/tmp");
  await refused(/is no directory/, 2, top, "web:/tmp/renamed");
  await refused(/"\/none" is not there/, 2, top, "web:/none/below");
  await refused(/is not there/, 2, path.join(top, "d/run"), "web:/tmp/none/");
  await refused(/Both are in pods/, 2, "web:/tmp", "web:/run");
  await refused(/Neither is in a pod/, 2, top, here);
  await refused(/POD_NOT_FOUND/, 4, top, "absent:/tmp");
  await refused(/ended with 1/, 1, top, "web:/proc");
});

test.serial("archives on standard input and output", async (t) => {
  makeTree("piped");
  const shell = (command: string) =>
    promisify(execFile)("sh", ["-euc", command], {
      cwd: here,
      env: { ...process.env, PODNET_SOCKET: rig.daemon.socket, podnet: podnetProgram },
    });
  await shell('tar -c piped | "$podnet" cp - web:/run');
  t.is(await guest("/run/piped/to-run"), "ran");
  const { stdout } = await shell('"$podnet" cp web:/run/piped - | tar -t | sort');
  t.regex(stdout, /^piped\/$/m);
  t.regex(stdout, /^piped\/d\/run$/m);
  await t.throwsAsync(shell('tar -c piped | "$podnet" cp - web:/nowhere'), {
    message: /is no directory/,
  });
});

test.serial("8 MB either way, whole", async (t) => {
  const file = path.join(here, "large");
  execFileSync("sh", ["-c", `head -c 8000000 /dev/urandom > ${file}`]);
  const sum = execFileSync("sha256sum", [file]).toString().slice(0, 64);
  await cp(file, "web:/tmp/large");
  t.is((await guest("sha256sum /tmp/large")).slice(0, 64), sum);
  await cp("web:/tmp/large", `${file}-back`);
  t.is(
    execFileSync("sha256sum", [`${file}-back`])
      .toString()
      .slice(0, 64),
    sum,
  );
  await guest("rm /tmp/large");
});

test.serial("a guest's hostile tar writes nothing outside of the destination", async (t) => {
  const trap = path.join(here, "trap");
  mkdirSync(trap);
  const archive = path.join(here, "hostile.tar");
  execFileSync("/usr/bin/python3", [
    "-c",
    `import io, tarfile
out = tarfile.open(${JSON.stringify(archive)}, "w")
link = tarfile.TarInfo("data/l"); link.type = tarfile.SYMTYPE; link.linkname = ${JSON.stringify(trap)}
out.addfile(link)
for name in ("data/l/evil", "data/../trap/evil", ${JSON.stringify(`${trap}/evil`)}, ".bashrc"):
    info = tarfile.TarInfo(name); info.size = 4
    out.addfile(info, io.BytesIO(b"evil"))
out.close()`,
  ]);
  await cp(archive, "web:/tmp/hostile.tar");
  await guest(
    "mkdir -p /usr/local/bin; printf '#!/bin/sh\\ncat /tmp/hostile.tar\\n' > /usr/local/bin/tar; chmod +x /usr/local/bin/tar; mkdir /tmp/data",
  );
  const into = path.join(here, "into");
  mkdirSync(into);
  const { code: exitCode, err: stderr } = await tryCp("web:/tmp/data", into);
  await guest("rm /usr/local/bin/tar");
  t.is(exitCode, 1);
  t.regex(stderr, /AGENT_PROTOCOL/);
  t.deepEqual(readdirSync(trap), []);
  for (const name of readdirSync(into)) t.is(name, "data");
});

test.serial(
  "a guest's link in the place of a file, and a tar without end, leave nothing",
  async (t) => {
    const mine = path.join(here, "mine");
    writeFileSync(mine, "mine");
    const into = path.join(here, "second");
    mkdirSync(into);
    await guest("echo theirs > /tmp/plain");
    const asTar = (script: string): Promise<string> =>
      guest(
        `mkdir -p /usr/local/bin; printf '#!/bin/sh\n%s\n' ${JSON.stringify(script)} > /usr/local/bin/tar; chmod +x /usr/local/bin/tar`,
      );
    // The attack in two copies: first a link under the name asked for, then what would go through
    // it.
    await asTar(
      `mkdir -p /tmp/l; ln -sf ${mine} /tmp/l/plain; exec busybox tar -cf - -C /tmp/l plain`,
    );
    const first = await tryCp("web:/tmp/plain", into);
    t.is(first.code, 1);
    t.regex(first.err, /AGENT_PROTOCOL/);
    await asTar("while cat /bin/busybox; do :; done");
    const endless = await tryCp("web:/tmp/plain", into);
    t.regex(endless.err, /AGENT_PROTOCOL/);
    await guest("rm /usr/local/bin/tar");
    await cp("web:/tmp/plain", into);
    t.deepEqual(readdirSync(into), ["plain"]);
    t.is(readFileSync(path.join(into, "plain"), "utf8"), "theirs\n");
    t.is(readFileSync(mine, "utf8"), "mine");
  },
);

test.serial("a tree there and back keeps modes, times and links: GNU tar", async (t) => {
  // Debian's own, with what it is linked to, brought in by the very command.
  const libraries = execFileSync("ldd", ["/bin/tar"]).toString();
  await guest("mkdir -p /usr/local/bin /lib64 /lib/x86_64-linux-gnu");
  await cp("-L", "/bin/tar", "web:/usr/local/bin/tar");
  for (const [, library = ""] of libraries.matchAll(/(\/\S+) \(0x/g)) {
    await cp(
      "-L",
      library,
      `web:${library.startsWith("/lib64") ? "/lib64" : "/lib/x86_64-linux-gnu"}/`,
    );
  }
  t.regex(await guest("/usr/local/bin/tar --version"), /GNU tar/);
  await thereAndBack(t, "gnu");
  await guest("rm /usr/local/bin/tar");
});

test.serial(
  "without tar a single file is copied all the same, and the rest refused with what is missing",
  async (t) => {
    const top = makeTree("bare");
    await guest("mv /bin/tar /bin/no-tar");
    const refused = await tryCp(top, "web:/tmp");
    t.is(refused.code, 1);
    t.regex(refused.err, /The guest has no tar.*UNSUPPORTED/);
    t.regex((await tryCp("web:/etc", here)).err, /UNSUPPORTED/);
    await cp(path.join(top, "d/run"), "web:/tmp/single");
    t.is(await guest("/tmp/single"), "ran");
    await cp("web:/tmp/single", path.join(here, "single"));
    t.is(readFileSync(path.join(here, "single"), "utf8"), "#!/bin/sh\necho ran\n");
    await guest("mv /bin/no-tar /bin/tar");
    // Positive control: with it, it works again.
    await cp(top, "web:/tmp");
    await rig.client.pods.delete({ idOrName: "web", force: true });
  },
);
