import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { parseIp } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import { parseFromRelay } from "../../../../daemon/policies/relay-report.ts";
import { RelayedPods } from "../../../../daemon/policies/relayed-pods.ts";
import { compile } from "../../../../policy/compile.ts";
import { canonicalName, type DomainName } from "../../../../policy/domain.ts";
import { readPolicy } from "../../../../policy/read-policy.ts";
import type { RelayedPod, ToRelay } from "../../../../relay/messages.ts";
import { until } from "../../../lab/until.ts";

const pod = (id: string, domain = "a.example"): RelayedPod => ({
  id,
  addresses: [parseIp("10.0.0.2")],
  egress: compile(
    [readPolicy({ name: "p", rules: [{ name: "r", action: "allow", domains: [domain] }] })],
    { pods: [], host: [], hostServices: [], cloudMetadata: false },
  ).egress,
});
const name = canonicalName("a.example") as DomainName;
const one = parseIp("203.0.113.1");

/** Pods with a relay that writes down what it is sent, and answers unless it is not to. */
async function open() {
  const at = path.join(mkdtempSync(path.join(tmpdir(), "relayed-")), "control");
  const heard: string[] = [];
  const state = { answers: true, starts: 0, ends: 0, lost: 0 };
  let client: Socket | undefined;
  const server = createServer((socket) => {
    client = socket;
    socket.on("error", () => {});
    socket.setEncoding("utf8").on("data", (text: string) => {
      for (const line of text.split("\n").filter(Boolean)) {
        const message = JSON.parse(line) as ToRelay;
        heard.push(textOf(message));
        if (message.seq !== undefined && state.answers)
          socket.write(`${JSON.stringify({ type: "done", seq: message.seq })}\n`);
      }
    });
  });
  await once(server.listen(at), "listening");
  const pods = new RelayedPods({
    process: {
      async connect() {
        state.starts++;
        const socket = connect(at);
        await once(socket, "connect");
        return socket;
      },
      end() {
        state.ends++;
        client?.destroy();
        return Promise.resolve();
      },
    },
    clock: systemClock,
    report: () => {},
    lost: () => void state.lost++,
  });
  return {
    pods,
    heard,
    state,
    die: () => client?.destroy(),
    [Symbol.dispose]() {
      pods[Symbol.dispose]();
      client?.destroy();
      server.close();
    },
  };
}

const textOf = (message: ToRelay): string =>
  message.type === "pod"
    ? `pod ${message.pod.id}`
    : message.type === "gone"
      ? `gone ${message.id}`
      : message.type === "answer"
        ? `answer ${message.id} ${message.name} ${message.addresses.join(" ")}`
        : message.type;

test("the relay gets the whole state, and then what changes", async (t) => {
  using site = await open();
  const { pods, heard, state } = site;
  t.false(await pods.answer("a", name, [one], 60));
  await pods.set([pod("a"), pod("b")]);
  t.deepEqual(heard.splice(0), ["begin", "pod a", "pod b", "commit"]);
  await pods.set([pod("a"), pod("b")]);
  t.deepEqual(heard, []);
  await pods.set([pod("a"), pod("c"), pod("b", "b.example")]);
  t.deepEqual(heard.splice(0), ["pod c", "pod b"]);
  await pods.set([pod("a")]);
  t.deepEqual(heard.splice(0).toSorted(), ["gone b", "gone c"]);
  t.true(await pods.answer("a", name, [one], 60));
  t.false(await pods.answer("z", name, [one], 60));
  t.deepEqual(heard.splice(0), [`answer a a.example ${one}`]);
  t.like(state, { starts: 1, ends: 0, lost: 0 });
  await pods.set([]);
  t.like(state, { ends: 1, lost: 0 });
});

test("another relay gets what the one before it had, answers included", async (t) => {
  using site = await open();
  const { pods, heard, state, die } = site;
  await pods.set([pod("a")]);
  await pods.answer("a", name, [one], 60);
  heard.length = 0;
  die();
  await until("its end to be noticed", () => state.lost === 1);
  t.false(pods.has("a"));
  await pods.set([pod("a")]);
  t.deepEqual(heard, ["begin", "pod a", "commit", `answer a a.example ${one}`]);
  t.true(pods.has("a"));
});

test("a relay that does not answer is ended, and nothing is said to be open", async (t) => {
  using site = await open();
  const { pods, state } = site;
  await pods.set([pod("a")]);
  state.answers = false;
  t.false(await pods.answer("a", name, [one], 60));
  t.is(state.ends, 1);
  await until("its end to be noticed", () => state.lost === 1);
  await t.throwsAsync(pods.set([pod("a")]), { code: "DEADLINE_EXCEEDED" } as never);
});

test("of what a relay reports only what it may say is taken", (t) => {
  const verdict = {
    pod: "a",
    verdict: "deny",
    policy: "p",
    rule: "r",
    reason: "",
    name: "a.example",
    to: { ip: "203.0.113.1", port: 443 },
    count: 2,
  };
  const parsed = (message: unknown): unknown => parseFromRelay(JSON.stringify(message));
  t.deepEqual(parsed({ type: "done", seq: 3 }), { type: "done", seq: 3 });
  t.deepEqual(parsed({ type: "verdict", verdict }), { type: "verdict", verdict });
  t.deepEqual(parsed({ type: "verdict", verdict: { ...verdict, more: 1 } }), {
    type: "verdict",
    verdict,
  });
  for (const wrong of [
    { verdict: "maybe" },
    { count: 0 },
    { count: "2" },
    { name: "a b" },
    { pod: 1 },
    { reason: null },
  ])
    t.is(parsed({ type: "verdict", verdict: { ...verdict, ...wrong } }), undefined);
  for (const wrong of [null, 3, [], {}, { type: "done" }, { type: "done", seq: -1 }])
    t.is(parsed(wrong), undefined);
  t.is(parseFromRelay("{"), undefined);
  const { to: _to, ...unplaced } = verdict;
  t.deepEqual(parsed({ type: "verdict", verdict: { ...verdict, to: { ip: "x", port: 1 } } }), {
    type: "verdict",
    verdict: unplaced,
  });
});
