import { createServer } from "node:net";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import test from "ava";
import { parseIpPrefix } from "../../../../core/address.ts";
import { connectToSandbox } from "../../../../daemon/cri/streaming/connect-port.ts";
import { Sandboxes } from "../../../../daemon/cri/sandboxes.ts";
import type { ExecEvent } from "../../../../guest-init/channel/guest.ts";
import { nginx, startCri } from "./rig.ts";

const gone = new AbortController().signal;
const stderr = (text: string): ExecEvent => ({ kind: "stderr", data: Buffer.from(text) });
const stdout = (text: string): ExecEvent => ({ kind: "stdout", data: Buffer.from(text) });
const exit = (code: number): ExecEvent => ({ kind: "exit", code });

/** A sandbox whose guest plays these events, and whose address is the host's loopback. */
async function sandboxWith(events: readonly ExecEvent[], features = ["container-processes"]) {
  const rig = await startCri();
  rig.node.features = features;
  const ran: string[] = [];
  rig.node.program = (args) => {
    ran.push(args.join(" "));
    return events;
  };
  const { podSandboxId } = await rig.cri.runPodSandbox(nginx());
  const sandbox = new Sandboxes(rig.node.pods).find(podSandboxId);
  const addresses = [parseIpPrefix("127.0.0.1/32")];
  const interfaces = sandbox.plan.interfaces.map((each) => ({ ...each, addresses }));
  const at = { ...sandbox, plan: { ...sandbox.plan, interfaces } };
  const to = (port: number) => connectToSandbox(at, rig.node.pods.live(sandbox.id), port, gone);
  return { rig, ran, to, [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose]() };
}

async function textOf(output: AsyncIterable<Uint8Array>): Promise<string> {
  let text = "";
  for await (const data of output) text += Buffer.from(data).toString();
  return text;
}

test("a port is reached at the guest's loopback, by the agent's program", async (t) => {
  await using it = await sandboxWith([
    stderr("connected"),
    stderr("\n"),
    stdout("one "),
    stdout("two"),
    exit(0),
  ]);
  const connection = await it.to(8080);
  t.deepEqual(it.ran, ["/proc/self/exe --connect 8080"]);
  await connection.write(Buffer.from("asked"));
  connection.endInput();
  t.is(await textOf(connection.output), "one two");
  t.deepEqual(it.rig.node.calls.slice(-2), ["write asked", "close input"]);
  connection.close();
});

test("a connection that breaks says why", async (t) => {
  await using it = await sandboxWith([
    stderr("connected\n"),
    stdout("half"),
    stderr("connection: reset\u001b[31m\n"),
    exit(1),
  ]);
  const { output } = await it.to(8080);
  await t.throwsAsync(textOf(output), {
    code: "SYSCALL_FAILED",
    message: /broke: connection: reset(?!\u001b)/,
  });
});

for (const [what, events, features] of [
  ["nothing listens on the loopback", [stderr("connect: Connection refused\n"), exit(1)]],
  ["the guest says something else", [stderr("connected? no")]],
  ["the guest says nothing", []],
  ["the agent is of an earlier podnet", [], ["loopback"]],
] as const)
  test(`where ${what} a port is reached at the sandbox's address`, async (t) => {
    const server = createServer((socket) => socket.end("of the address"));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.teardown(() => void server.close());
    await using it = await sandboxWith(events, features && [...features]);
    const connection = await it.to((server.address() as AddressInfo).port);
    t.is(await textOf(connection.output), "of the address");
    connection.close();
  });
