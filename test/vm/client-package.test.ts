/**
 * `@podnet/client` as npm installs it into an empty project: programs of plain JavaScript on this
 * machine's own Node and on podnet's, and one of TypeScript that TypeScript checks.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import ava, { type TestFn } from "ava";
import { buildClient } from "../../scripts/packaging/client.ts";
import { joinRig, type Rig } from "./daemon-rig.ts";

const test = ava.serial as TestFn;
const exec = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../..");
const project = mkdtempSync(path.join(tmpdir(), "podnet-client-"));

let rig: Rig;
test.before(async (t) => {
  t.timeout(240_000);
  const archive = await buildClient({ version: "1.2.3", into: project });
  // npm's own archives of what the package needs, and of what TypeScript's programs need.
  const needed = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];
  const others = [...needed, "@types/node", "undici-types"];
  const packed = await Promise.all(
    others.map((name) => npm("pack", "--silent", path.join(top, "node_modules", name))),
  );
  // An empty project, whose modules are CommonJS as npm begins it.
  await npm("init", "-y");
  await npm(
    "install",
    "--offline",
    "--no-audit",
    "--no-fund",
    archive,
    ...packed.map((name) => `./${name.trim()}`),
  );
  rig = await joinRig();
});
test.after.always("the rig is given up", async () => {
  rmSync(project, { recursive: true, force: true });
  await rig?.[Symbol.asyncDispose]();
});

/** Runs npm in the project, without a checkout; it asks no registry. */
async function npm(...words: string[]): Promise<string> {
  const options = ["--ignore-scripts", "--offline", "--cache", path.join(project, "npm-cache")];
  return (await exec("npm", [...words, ...options], { cwd: project })).stdout;
}

/** The Node that this machine has without podnet's packages. */
const ownNode =
  process.env["PATH"]
    ?.split(":")
    .filter((directory) => !directory.includes("node_modules"))
    .map((directory) => path.join(directory, "node"))
    .find((file) => existsSync(file)) ?? process.execPath;

/** Runs a program of the project, with the machine's Node unless another is given. */
async function node(
  program: string,
  { name = "program.mjs", by = ownNode }: { name?: string; by?: string } = {},
): Promise<string> {
  const file = path.join(project, name);
  writeFileSync(file, program);
  const env = { ...process.env, PODNET_SOCKET: rig.daemon.socket };
  const words = ["netns", "exec", rig.lab.host.name, by, file];
  return (await exec("ip", words, { cwd: project, env })).stdout;
}

test("a program creates a pod, runs programs, writes and reads files, waits, and deletes it", async (t) => {
  t.timeout(60_000);
  const said = await node(`
    import { connect, PodnetError } from "@podnet/client";
    const podnet = connect();
    const pod = await podnet.pods.create({ name: "client" });
    const say = (name, value) => console.log(name, JSON.stringify(value));
    say("name", pod.name);
    say("addresses", pod.addresses.length);
    say("exec", await pod.exec("echo out; echo err >&2; exit 3").then(({ exitCode, stdout, stderr }) => ({ exitCode, stdout, stderr })));
    say("stdin", (await pod.exec(["cat"], { stdin: "from here" })).stdout);
    say("env", (await pod.exec("echo $A $PWD", { env: { A: "b" }, workdir: "/tmp" })).stdout);
    const bytes = new Uint8Array(200_000).map((_, i) => i * 7);
    await pod.files.write("/tmp/some file", bytes, { mode: "600" });
    const read = await pod.files.read("/tmp/some file");
    say("bytes", Buffer.compare(read, bytes));
    say("mode", (await pod.exec(["stat", "-c", "%a", "/tmp/some file"])).stdout);
    say("missing", await pod.files.read("/nowhere").catch((e) => [e instanceof PodnetError, e.code, /No such file/.test(e.details.stderr)]));
    say("check", await pod.exec("exit 4", { check: true }).catch((e) => [e.code, e.details.exitCode]));
    say("much", await pod.exec("yes", { maxOutput: 1000 }).catch((e) => e.code));
    say("configured", (await pod.waitFor("configured")).record.interfaces.length);
    say("closed", await pod.waitFor("port:81", { timeoutMs: 500 }).catch((e) => e.code));
    const stop = new AbortController();
    const serving = pod.exec("echo hi | nc -l -p 80", { signal: stop.signal });
    await pod.waitFor("port:80", { timeoutMs: 10_000 });
    stop.abort();
    say("open", await serving.catch((e) => e.code));
    say("wrong", await pod.waitFor("port:x").catch((e) => [e.code, e.field]));
    say("listed", (await podnet.pods.list()).some(({ name }) => name === "client"));
    say("paused", [(await pod.pause()).record.state, (await pod.resume()).record.state]);
    await pod[Symbol.asyncDispose]();
    await pod[Symbol.asyncDispose]();
    say("gone", await podnet.pods.get("client").catch((e) => e.code));
    say("raw", (await podnet.services.node.info({})).version !== "");
    podnet.close();
  `);
  const lines = Object.fromEntries(
    said
      .trim()
      .split("\n")
      .map((line) => [line.split(" ", 1)[0], JSON.parse(line.slice(line.indexOf(" ") + 1))]),
  );
  t.deepEqual(lines, {
    name: "client",
    addresses: 1,
    exec: { exitCode: 3, stdout: "out\n", stderr: "err\n" },
    stdin: "from here",
    env: "b /tmp\n",
    bytes: 0,
    mode: "600\n",
    missing: [true, "COMMAND_FAILED", true],
    check: ["COMMAND_FAILED", 4],
    much: "LIMIT_REACHED",
    configured: 1,
    closed: "DEADLINE_EXCEEDED",
    open: "CANCELLED",
    wrong: ["INVALID_ARGUMENT", "condition"],
    listed: true,
    paused: [3, 2],
    gone: "POD_NOT_FOUND",
    raw: true,
  });
});

test("a podnetd that is not there is a typed error of the package", async (t) => {
  const said = await node(`
    import { connect, isPodnetError } from "@podnet/client";
    const podnet = connect({ socket: "/nowhere/podnet.sock" });
    await podnet.pods.list().catch((e) => console.log(isPodnetError(e, "DAEMON_UNREACHABLE"), e.hint));
  `);
  t.regex(said, /^true Start podnetd/);
});

test("`await using` deletes the pod, also when its block fails", async (t) => {
  t.timeout(60_000);
  const said = await node(
    `
    import { connect } from "@podnet/client";
    using podnet = connect();
    const code = await podnet.pods.get("used").catch((e) => e.code);
    try {
      await using pod = await podnet.pods.create({ name: "used" });
      console.log(code, (await pod.exec(["echo", "in", pod.name])).stdout.trim());
      await pod.files.write("/tmp/greeting", "hello");
      console.log(new TextDecoder().decode(await pod.files.read("/tmp/greeting")));
      throw new Error("it fails");
    } catch (e) {
      console.log(e.message, await podnet.pods.get("used").catch((e) => e.code));
    }
  `,
    { by: process.execPath },
  );
  t.is(said, "POD_NOT_FOUND in used\nhello\nit fails POD_NOT_FOUND\n");
});

test("a module of CommonJS imports the package", async (t) => {
  const said = await node(
    `
    import("@podnet/client").then(async ({ connect }) => {
      const podnet = connect();
      console.log(typeof require, Array.isArray(await podnet.pods.list()));
      podnet.close();
    });
  `,
    { name: "program.cjs" },
  );
  t.is(said, "function true\n");
  const required = await node(`console.log(typeof require("@podnet/client").connect);`, {
    name: "required.cjs",
    by: process.execPath,
  });
  t.is(required, "function\n");
});

test("what the package does not export cannot be imported", async (t) => {
  const said = await node(`
    await import("@podnet/client/dist/client/pod.js").catch((e) => console.log(e.code));
    const { version } = (await import("@podnet/client/package.json", { with: { type: "json" } })).default;
    console.log(version);
  `);
  t.is(said, "ERR_PACKAGE_PATH_NOT_EXPORTED\n1.2.3\n");
});

for (const [module, resolution] of [
  ["nodenext", "nodenext"],
  ["esnext", "bundler"],
] as const) {
  test(`TypeScript checks a program that uses the package's types, with ${resolution}`, async (t) => {
    t.timeout(60_000);
    writeFileSync(
      path.join(project, "program.mts"),
      `import { connect, type CreatedPod, PodnetError } from "@podnet/client";
export async function main(): Promise<string> {
  using podnet = connect({ timeoutMs: 1000 });
  await using pod: CreatedPod = await podnet.pods.create({ resources: { memoryMib: 256 }, ports: [{ podPort: 80 }] });
  await pod.waitFor("port:80");
  const code: string = new PodnetError("INTERNAL", "x").code;
  // @ts-expect-error A condition that does not exist is refused.
  await pod.waitFor("ready");
  return (await pod.exec("true")).stdout + code + pod.record.interfaces[0]?.mac;
}
`,
    );
    // A module of CommonJS, which has the package's types by `import()`.
    writeFileSync(
      path.join(project, "program.cts"),
      `export const names = async (): Promise<readonly string[]> => {
  const { connect } = await import("@podnet/client");
  const podnet = connect();
  return (await podnet.pods.list()).map(({ name }) => name);
};
`,
    );
    const config = {
      compilerOptions: {
        noEmit: true,
        strict: true,
        target: "es2022",
        lib: ["es2022", "esnext.disposable", "dom"],
        module,
        moduleResolution: resolution,
        types: ["node"],
        skipLibCheck: false,
      },
      files: ["program.mts", "program.cts"],
    };
    writeFileSync(path.join(project, "tsconfig.json"), JSON.stringify(config));
    const env = {
      ...process.env,
      PATH: `${path.dirname(process.execPath)}:${process.env["PATH"]}`,
    };
    await t.notThrowsAsync(
      exec(path.join(top, "node_modules/.bin/tsc"), ["-p", "."], { cwd: project, env }).catch(
        (thrown: { stdout?: string }) => {
          throw new Error(thrown.stdout);
        },
      ),
    );
  });
}
