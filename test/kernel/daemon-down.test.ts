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
