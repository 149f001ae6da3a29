/**
 * The tour of `scripts/quickstart`, inside the sandbox: a lab of three machines, podnetd on one of
 * them, two pods, pings both ways, and what bad input answers. With --keep the lab stays until the
 * sandbox is ended.
 */
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { styleText } from "node:util";
import { labAddresses, openLab } from "../test/lab/lab.ts";
import { type Podnetd, startPodnetd } from "../test/lab/podnetd.ts";

const top = path.resolve(import.meta.dirname, "..");
const directory = path.join(top, "build/lab");
const keep = process.argv.includes("--keep");
const begin = performance.now();

const bold = (text: string): string => styleText("bold", text, { stream: process.stdout });
const dim = (text: string): string => styleText("dim", text, { stream: process.stdout });

/** Runs one step of the tour and prints its line: what, how long, what came out. */
async function step<T>(
  title: string,
  run: () => Promise<T>,
  report?: (result: T) => string,
): Promise<T> {
  const start = performance.now();
  try {
    const result = await run();
    const took = `${((performance.now() - start) / 1000).toFixed(2)} s`.padStart(8);
    console.log(`  ✔ ${title.padEnd(44)}${took}  ${dim(report?.(result) ?? "")}`);
    return result;
  } catch (error) {
    console.log(`  ✘ ${title}`);
    throw error;
  }
}

interface PodView {
  readonly id: string;
  readonly name: string;
  readonly interfaces: readonly {
    readonly addresses: readonly string[];
    readonly tap: string;
    readonly mac: string;
  }[];
  readonly spans: readonly {
    readonly step: string;
    readonly startMs: number;
    readonly durationMs: number;
  }[];
}

async function createPod(podnetd: Podnetd, name: string): Promise<PodView> {
  return JSON.parse(await podnetd.podnet("create", "--name", name, "-o", "json")) as PodView;
}

const addressOf = (pod: PodView): string =>
  (pod.interfaces[0]?.addresses[0] ?? "").replace(/\/.*/, "");
const pingTime = (times: readonly number[]): string =>
  `${Math.min(...times).toFixed(2)} ms round trip`;

/** The waterfall of a pod's creation: one line a step, placed in time. */
function waterfall(pod: PodView): string {
  const end = Math.max(...pod.spans.map(({ startMs, durationMs }) => startMs + durationMs), 1);
  const width = 40;
  return pod.spans
    .map(({ step: name, startMs, durationMs }) => {
      const from = Math.floor((startMs / end) * width);
      const length = Math.max(1, Math.round((durationMs / end) * width));
      const bar = `${" ".repeat(from)}${"━".repeat(length)}`.slice(0, width).padEnd(width);
      return `      ${name.padEnd(22)}${bar}${durationMs.toFixed(1).padStart(9)} ms`;
    })
    .join("\n");
}

// A lab or a podnetd that does not come up: its text is for people, Node's stack is not.
process.once("uncaughtException", (error) => {
  console.error(`\n${error.message}`);
  console.error("A busy machine may be the reason: try again. Else see: ./bin/podnet doctor");
  process.exit(1);
});

console.log(bold("\nA lab of namespaces: internet ── host ── LAN"));
const lab = await step("three machines, no way out of them", () => openLab());

console.log(bold("\npodnetd on the host"));
const podnetd = await step(
  "bridge, NAT, address pool, store, API",
  () => startPodnetd({ machine: lab.host, directory }),
  ({ socket }) => path.relative(top, socket),
);

try {
  console.log(bold("\nTwo pods, each a virtual machine of its own"));
  const web = await step("podnet create --name web", () => createPod(podnetd, "web"), addressOf);
  console.log(dim(waterfall(web)));
  const db = await step("podnet create --name db", () => createPod(podnetd, "db"), addressOf);

  console.log(bold("\nPing, both ways"));
  const fromPod = (target: string) => async (): Promise<readonly number[]> => {
    const output = await podnetd.podnet(
      "exec",
      "web",
      "--",
      "ping",
      "-c",
      "3",
      "-i",
      "0.2",
      target,
    );
    const times = [...output.matchAll(/time=([0-9.]+) ms/g)].map(([, time]) => Number(time));
    if (times.length !== 3)
      throw new Error(`The pod got ${times.length} of 3 answers from ${target}:\n${output}`);
    return times;
  };
  await step(`host → web (${addressOf(web)})`, () => lab.host.ping(addressOf(web), 3), pingTime);
  await step("web → its gateway (192.168.123.1)", fromPod("192.168.123.1"), pingTime);
  await step(
    `web → the internet (${labAddresses.internet})`,
    fromPod(labAddresses.internet),
    pingTime,
  );
  await step(`web → db (${addressOf(db)})`, fromPod(addressOf(db)), pingTime);

  console.log(bold("\nBad input gets an answer, and leaves nothing"));
  for (const args of [
    ["create", "--name", "web"],
    ["create", "--address", "10.0.0.1"],
    ["create", "--address", addressOf(db)],
  ]) {
    const { stderr, exitCode } = await podnetd.tryPodnet(...args);
    console.log(`  podnet ${args.join(" ")}  ${dim(`(exit ${exitCode})`)}`);
    console.log(dim(stderr.trimEnd().replace(/^/gm, "    ")));
    if (exitCode === 0) throw new Error(`podnet ${args.join(" ")} should have been refused`);
  }

  console.log(bold("\nWhat exists now"));
  console.log((await podnetd.podnet("list")).trimEnd().replace(/^/gm, "  "));
  const rules = (await lab.host.run("iptables-save"))
    .split("\n")
    .filter((line) => line.startsWith("-A"));
  console.log(`\n  ${rules.length} rules on the lab's host:`);
  console.log(dim(rules.join("\n").replace(/^/gm, "  ")));

  if (keep) {
    const relative = path.relative(top, podnetd.socket);
    console.log(bold("\nThe lab is yours. On its host, where pods answer pings:"));
    console.log("  ./scripts/quickstart --enter host");
    console.log(bold("\nOr from this directory, for podnet's own commands:"));
    console.log(`  export PODNET_SOCKET=$PWD/${relative}
  ./bin/podnet list
  ./bin/podnet exec -it web sh
  ./bin/podnet create --plan --name third
  ./bin/podnet verify web
  ./scripts/quickstart --down            ${dim("# ends it, leaves nothing")}`);
    writeFileSync(path.join(directory, "ready"), "");
    // The sandbox ends when this process does, so it waits; `--down` kills the sandbox from
    // outside.
    await new Promise((resolve) => podnetd.process.once("exit", resolve));
  } else {
    await step("podnet delete web db", () => podnetd.podnet("delete", "web", "db"));
  }
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : String(error)}`);
  console.error(dim(`podnetd's log ends:\n${podnetd.log().slice(-3000)}`));
  process.exitCode = 1;
} finally {
  await step("podnet down: all that podnet made is gone", async () => {
    await podnetd[Symbol.asyncDispose]();
  });
  await lab[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
}

if (process.exitCode !== 1) {
  console.log(`
That took ${((performance.now() - begin) / 1000).toFixed(1)} s. How to go on:
  ./scripts/quickstart --keep   ${dim("the same, and leaves the lab running for you")}
  ./scripts/test                ${dim("every test")}
  ./scripts/bench               ${dim("the figures")}
  docs/tutorial.md              ${dim("what to type in that lab")}
  docs/how-to/install.md        ${dim("podnetd on a real host")}`);
}
