import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { openLab } from "../lab/lab.ts";
import { type Podnetd, runPodnet, startPodnetd } from "../lab/podnetd.ts";

/** Keeps a daemon answering others, so that theirs are the answers that end while it goes down. */
async function pester({ socket }: Podnetd, ended: AbortSignal): Promise<void> {
  using client = connectPodnet({ socket });
  try {
    while (!ended.aborted) await client.node.info({});
  } catch {
    // The daemon has ended: what it was about.
  }
}

const curl =
  (...args: readonly string[]) =>
  async (socket: string) => {
    const url = "http://podnet/podnet.v1.NodeService/Down";
    const json = ["-H", "content-type: application/json", "-d", "{}"];
    return (
      await promisify(execFile)("curl", ["-s", "--unix-socket", socket, ...json, ...args, url])
    ).stdout;
  };

/** Each asks for the end of all and gives what it was answered. */
const ways: readonly ((socket: string) => Promise<string>)[] = [
  async (socket) => {
    using client = connectPodnet({ socket });
    return (await client.node.down({})).removed.join("\n");
  },
  async (socket) => (await runPodnet(socket, ["down", "--yes"])).stdout,
  curl(),
  curl("--http2-prior-knowledge"),
];

test("whoever takes podnet down hears of it, twenty times over, whatever others ask meanwhile", async (t) => {
  await using lab = await openLab(`down${process.pid}-`);
  const directory = mkdtempSync(join(tmpdir(), "podnet-down-"));
  for (let i = 0; i < 20; i++) {
    const daemon = await startPodnetd({
      machine: lab.host,
      directory,
      config: "disable_iptables = true\n",
    });
    const ended = new Promise((resolve) => daemon.process.once("exit", resolve));
    const over = new AbortController();
    const others = [pester(daemon, over.signal), pester(daemon, over.signal)];
    t.regex((await ways[i % ways.length]?.(daemon.socket)) ?? "", /hyper0/);
    t.is(await ended, 0);
    over.abort();
    await Promise.all(others);
  }
  rmSync(directory, { recursive: true, force: true });
});

test("podnetd's last log line says that down removed the pods, and else that they run on", async (t) => {
  await using lab = await openLab(`last${process.pid}-`);
  const directory = mkdtempSync(join(tmpdir(), "podnet-down-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const start = (): Promise<Podnetd> =>
    startPodnetd({ machine: lab.host, directory, config: "disable_iptables = true\n" });
  const stopped = await start();
  await stopped.stop();
  t.regex(stopped.log(), /Ending: SIGTERM; pods run on"/);
  const daemon = await start();
  const ended = new Promise((resolve) => daemon.process.once("exit", resolve));
  await daemon.podnet("down", "--yes");
  t.is(await ended, 0);
  const line = daemon
    .log()
    .split("\n")
    .find((each) => each.includes("Ending: podnet down"));
  t.regex(line ?? "", /all pods .* were removed"/);
  t.notRegex(line ?? "", /run on/);
});
