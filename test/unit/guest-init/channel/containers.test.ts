import test from "ava";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeContainerList } from "../../../../guest-init/protocol/container-messages.ts";
import {
  encodeFollowedMain,
  encodeMainEnded,
} from "../../../../guest-init/protocol/main-process.ts";
import { parseFollowContainer } from "../../../../guest-init/protocol/container-messages.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;

async function connected(features: readonly string[]) {
  const peer = await ScriptedGuest.start();
  peer.features = features;
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach: false });
  await peer.say(command.ready);
  await peer.introduce("ours");
  await guest.ready(never);
  return { peer, guest };
}

test("an agent of an earlier podnet runs no containers, and the error says so", async (t) => {
  const { peer, guest } = await connected(["main"]);
  await using _peer = peer;
  const error = await t.throwsAsync(guest.containers(never), { code: "UNSUPPORTED" });
  t.like(error, { field: "containers" });
  await guest.close();
});

test("output and end come to who follows a container, and to no other", async (t) => {
  const { peer, guest } = await connected(["containers"]);
  await using _peer = peer;
  const containers = await guest.containers(never);
  const seen: string[] = [];
  const listener = {
    output: (stderr: boolean, data: Uint8Array, at: number) => {
      seen.push(`${stderr ? "err" : "out"} ${at} ${Buffer.from(data).toString()}`);
      return data.length;
    },
    ended: (end: object) => seen.push(JSON.stringify(end)),
  };
  const followed = containers.follow("one", 3, listener, never);
  const { payload } = await peer.command(command.followContainer);
  const { stdout, stderr, from, id } = parseFollowContainer(payload);
  t.deepEqual([id, from], ["one", 3]);
  // Before the answer: it waits for it.
  await peer.output(stdout, Buffer.from("a"));
  await peer.say(command.ack, encodeFollowedMain({ id: "one", at: 5 }));
  t.is((await followed).at, 5);
  await peer.say(command.containerEnded, encodeMainEnded({ id: "two", at: 7, end: { code: 0 } }));
  await peer.say(command.containerEnded, encodeMainEnded({ id: "one", at: 7, end: { signal: 9 } }));
  await peer.output(stderr, Buffer.from("b"));
  while (seen.length < 3) await new Promise(setImmediate);
  t.deepEqual(seen, ["out 5 a", "err 6 b", '{"signal":9}']);
  t.is(guest.counters().strayEvents, 1, "the end of two");
  await guest.close();
});

test("a guest that lists nonsense, or follows another container, is refused", async (t) => {
  const { peer, guest } = await connected(["containers"]);
  await using _peer = peer;
  const containers = await guest.containers(never);
  const list = containers.list(never);
  await peer.command(command.listContainers);
  const one = { id: "one", state: { kind: "created" }, at: 0 } as const;
  await peer.say(command.ack, encodeContainerList([one, one]));
  await t.throwsAsync(list, { code: "AGENT_PROTOCOL" });
  const listener = { output: () => 0, ended: () => t.fail() };
  const followed = containers.follow("one", 0, listener, never);
  await peer.command(command.followContainer);
  await peer.say(command.ack, encodeFollowedMain({ id: "two", at: 0 }));
  await t.throwsAsync(followed, { code: "AGENT_PROTOCOL" });
  await guest.close();
});
