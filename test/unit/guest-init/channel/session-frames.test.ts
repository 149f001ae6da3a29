import test from "ava";
import { u32Bytes, joinBytes } from "../../../../guest-init/protocol/bytes.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { closes, met, never, pair, tick } from "./fixtures/session.ts";

test("an answer to nothing costs the guest its channel", async (t) => {
  await using both = await met("ours");
  await both.peer.say(command.ack);
  await closes(t, both, "AGENT_PROTOCOL");
});

test("unknown frames are counted, and too many cut off", async (t) => {
  await using both = await met("ours", { senselessFrames: 2 });
  const { peer, guest } = both;
  await peer.say(99);
  await peer.say(command.startPod);
  const pinged = guest.ping(never);
  await peer.say(command.ack);
  await pinged;
  t.is(guest.counters().senselessFrames, 2);
  await peer.say(99);
  await closes(t, both, "AGENT_PROTOCOL");
});

test("a frame longer than the limit is refused at its header", async (t) => {
  await using both = await met("ours", { controlFrame: 4096 });
  await both.peer.raw(joinBytes([u32Bytes(command.ack), u32Bytes(4097)]));
  await closes(t, both, "AGENT_PROTOCOL", /announced a control frame of 4097 bytes/);
});

test("a frame shorter than its header is refused", async (t) => {
  await using both = await met("ours");
  await both.peer.raw(joinBytes([u32Bytes(command.ack), u32Bytes(4)]));
  await closes(t, both, "AGENT_PROTOCOL", /announced a control frame of 4 bytes/);
});

test("a tty frame longer than the limit costs the channel", async (t) => {
  await using both = await met("ours");
  await both.peer.rawTty(joinBytes([u32Bytes(0), u32Bytes(1), u32Bytes(0x7fffffff)]));
  await closes(t, both, "AGENT_PROTOCOL", /announced a tty frame of 2147483647 bytes/);
});

for (const where of ["raw", "rawTty"] as const)
  test(`a frame begun and not finished costs the channel (${where})`, async (t) => {
    await using both = await met("ours", { frameMs: 50 });
    const drip = async (): Promise<void> => {
      // One byte each 10 ms is progress, and still too slow.
      for (let i = 0; i < 100; i++) {
        await both.peer[where](new Uint8Array(1));
        if ((await Promise.race([both.closed, tick(10)])) instanceof Error) return;
      }
    };
    await both.peer[where](
      where === "raw"
        ? joinBytes([u32Bytes(command.ack), u32Bytes(1000)])
        : joinBytes([u32Bytes(0), u32Bytes(1), u32Bytes(1000)]),
    );
    await drip();
    await closes(t, both, "AGENT_PROTOCOL");
  });

test("a guest that hangs up in the middle of a frame", async (t) => {
  await using both = await met("ours");
  const pinged = both.guest.ping(never);
  await both.peer.command(command.ping);
  await both.peer.raw(u32Bytes(command.ack));
  both.peer.hangUp();
  await t.throwsAsync(pinged, { code: "AGENT_DISCONNECTED" });
  await closes(t, both, "AGENT_DISCONNECTED");
});

test("onClose runs once, and at once when it is too late", async (t) => {
  await using both = await met("ours");
  let times = 0;
  both.guest.onClose(() => times++);
  both.peer.hangUp();
  await both.closed;
  await both.guest.close();
  t.is(times, 1);
  both.guest.onClose(() => times++);
  t.is(times, 2);
});

test("READY without end costs the channel", async (t) => {
  await using both = await pair({ limits: { restarts: 3 } });
  for (let i = 0; i < 5; i++) await both.peer.say(command.ready);
  await closes(t, both, "AGENT_PROTOCOL");
});
