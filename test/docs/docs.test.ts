import { execFile } from "node:child_process";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { labAddresses, openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { ended, site } from "../lab/relay-site.ts";
import { until } from "../lab/until.ts";
import { snippets } from "./snippets.ts";

const top = path.resolve(import.meta.dirname, "../..");

/**
 * Commands of the pages that cannot run against a lab, and what runs them instead. A command that
 * is neither here nor in a `lab` block fails the test below.
 */
const ranElsewhere: ReadonlyMap<string, string> = new Map([
  ["./scripts/quickstart", "test/docs/quickstart.test.ts"],
  ["./scripts/quickstart --keep", "test/docs/quickstart.test.ts"],
  ["./scripts/quickstart --enter host", "test/docs/quickstart.test.ts"],
  ["./scripts/quickstart --down", "test/docs/quickstart.test.ts"],
  ["./scripts/test", "this run itself"],
  ...["crash", "fuzz", "sim", "soak"].map(
    (stage) => [`./scripts/test ${stage}`, `this run itself, its stage ${stage}`] as const,
  ),
  ["./scripts/bench profile", "test/docs/profile.test.ts, with fewer rounds"],
  ["./scripts/release", "test/vm/installed.test.ts"],
  ["./bin/podnetd", "test/vm/, through startPodnetd with --config"],
  ["./scripts/test static unit", "this run itself, its stages static and unit"],
  ...snippets()
    .filter(({ page }) => page === "docs/how-to/images.md")
    .flatMap(({ commands }) => commands)
    .map((command) => [command, "test/docs/images.test.ts"] as const),
  ...snippets()
    .filter(({ page }) => page === "docs/how-to/container-images.md")
    .flatMap(({ commands }) => commands)
    .map((command) => [command, "test/docs/container-images.test.ts"] as const),
  ...snippets()
    .filter(({ page }) => page === "docs/how-to/run.md")
    .flatMap(({ commands }) => commands)
    .map((command) => [command, "test/docs/run.test.ts"] as const),
]);

test("every command of the pages is run by a test", (t) => {
  for (const { page, line, where, commands } of snippets()) {
    // (Those for several hosts are run by test/overlay/daemon-pods.test.ts, those about etcd's
    // users by etcd-rights.test.ts, those about Kubernetes by kube-hosts.test.ts, those about
    // flannel by from-flannel.test.ts there; those about the package by test/vm/installed.test.ts.)
    const kinds = ["lab", "everyday", "hosts", "rights", "cluster", "flannel", "installed"];
    if (kinds.includes(where)) continue;
    t.is(where, "", `${page}:${line}: unknown kind of block`);
    for (const command of commands) {
      t.true(ranElsewhere.has(command), `${page}:${line}: no test runs "${command}"`);
    }
  }
});

test("every link between pages leads somewhere", (t) => {
  for (const page of ["README.md", "CONTRIBUTING.md", ...globSync("docs/**/*.md", { cwd: top })]) {
    const text = readFileSync(path.join(top, page), "utf8");
    for (const [, target] of text.matchAll(/\]\(([^)#]+)(?:#[^)]*)?\)/g)) {
      if (target === undefined || /^https?:/.test(target)) continue;
      t.true(existsSync(path.join(top, path.dirname(page), target)), `${page} links to ${target}`);
    }
  }
});

/** What runs the lab blocks: opened once, by the first page. */
let lab: Awaited<ReturnType<typeof openLab>> | undefined;
let podnetd: Awaited<ReturnType<typeof startPodnetd>> | undefined;
const directory = mkdtempSync("/tmp/podnet-docs-");
/** What stands for a reader's checkout: files that commands leave there are not in this one. */
const checkout = path.join(directory, "checkout");
mkdirSync(checkout);
for (const name of readdirSync(top)) symlinkSync(path.join(top, name), path.join(checkout, name));
const served = new AsyncDisposableStack();
test.serial.before(async () => {
  lab = await openLab("docs-");
  await serveInternet(lab);
  // Pods are clones: the boot of each would take most of the time.
  const access = `[access]\nwritable_share_paths = ["/tmp/pods"]\n`;
  const dns = `[dns]\nupstreams = ["${labAddresses.internet}"]\n`;
  const config = `factory = "template"\n${access}${dns}`;
  podnetd = await startPodnetd({ machine: lab.host, directory, config });
});
test.serial.after.always(async () => {
  await podnetd?.[Symbol.asyncDispose]();
  await served.disposeAsync();
  await lab?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** Two names at one address of the internet, by DNS, HTTP and HTTPS. */
async function serveInternet({ internet: machine }: Awaited<ReturnType<typeof openLab>>) {
  const { internet } = labAddresses;
  served.adopt(await site(machine, directory, internet), ended);
  const names = ["api", "other"].map((name) => `${name}.example.com=${internet}`);
  const program = path.join(top, "test/lab/name-server.ts");
  served.adopt(machine.spawn([process.execPath, program, internet, ...names]), ended);
  await until("a name server", async () =>
    (await machine.run("ss", "-Hltn", "sport = :53")).includes(":53"),
  );
}

/** Runs a shell script on the lab's host. */
function inLab(script: string) {
  const env = {
    ...process.env,
    PATH: `${top}/bin:${process.env["PATH"]}`,
    PODNET_SOCKET: podnetd?.socket,
  };
  const shell = ["netns", "exec", lab?.host.name ?? "", "sh", "-euxc", script];
  return promisify(execFile)("ip", shell, { cwd: checkout, env });
}

const labBlocks = Map.groupBy(
  snippets().filter(({ where }) => where === "lab"),
  ({ page }) => page,
);
for (const [page, blocks] of labBlocks) {
  test.serial(`the lab blocks of ${page} work as written, top to bottom`, async (t) => {
    // One shell a page, so that what a block sets is there in the next one.
    const script = blocks.flatMap(({ line, commands }) => [
      `echo "${page}:${line}" >&2`,
      ...commands,
    ]);
    await t.notThrowsAsync(inLab(script.join("\n")));
  });
}

/** A round takes each task once. PODNET_TIMED_ROUNDS=N writes the best of N into the tutorial. */
const rounds = process.env["PODNET_TIMED_ROUNDS"];

test.serial(
  "everyday tasks take one command each, as written, with the time they took",
  async (t) => {
    const blocks = snippets().filter(({ where }) => where === "everyday");
    const page = blocks[0]?.page ?? "";
    const commands = blocks.flatMap((block) => block.commands);
    t.is(commands.length, 12);
    const best = new Map<string, number>();
    // The pod that is traced to: the page has made it by then.
    await inLab("podnet create friend");
    for (let round = 0; round < Number(rounds ?? 1); round++)
      for (const command of commands) {
        t.regex(command, /^podnet [^;&|<>]+ # .*\S +\d+\.\d\d s$/);
        const began = performance.now();
        await t.notThrowsAsync(inLab(command));
        best.set(command, Math.min(best.get(command) ?? Infinity, performance.now() - began));
      }
    await inLab("podnet delete friend");
    let text = readFileSync(path.join(top, page), "utf8");
    for (const [command, ms] of best) {
      const timed = command.replace(/[\d.]+ s$/, `${(ms / 1000).toFixed(2)} s`);
      t.log(timed);
      text = text.replace(command, timed);
    }
    if (rounds !== undefined) writeFileSync(path.join(top, page), text);
  },
);

test.serial("the pages leave no pod and no network behind", async (t) => {
  for (const what of [["list"], ["network", "list"]]) {
    const { stdout } = await promisify(execFile)(
      path.join(top, "bin/podnet"),
      [...what, "--socket", podnetd?.socket ?? "", "-o", "json"],
      { cwd: top },
    );
    const { items } = JSON.parse(stdout) as { items: { name: string }[] };
    t.deepEqual(
      items.map(({ name }) => name).filter((name) => name !== "default"),
      [],
    );
  }
});
