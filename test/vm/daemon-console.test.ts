import { EventEmitter, once } from "node:events";
import test from "ava";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { OpenConsoleRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

type Input = MessageInitShape<typeof OpenConsoleRequestSchema>;

/**
 * A console open in both directions: what is typed is sent as it comes, what is shown is collected.
 */
function console(): {
  text(): string;
  type(text: string): void;
  shows(wanted: RegExp): Promise<void>;
  hangUp(): void;
  readonly ended: Promise<void>;
} {
  const stop = new AbortController();
  const waiting: Input[] = [{ input: { case: "open", value: { idOrName: "one", tailBytes: 1 } } }];
  let wake = Promise.withResolvers<void>();
  async function* input(): AsyncGenerator<Input> {
    while (!stop.signal.aborted) {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) yield next;
      await wake.promise;
      wake = Promise.withResolvers();
    }
  }
  let text = "";
  const shown = new EventEmitter();
  const ended = (async () => {
    for await (const { data } of rig.client.pods.openConsole(input(), { signal: stop.signal })) {
      text += Buffer.from(data).toString();
      shown.emit("more");
    }
  })().finally(() => {
    stop.abort();
    wake.resolve();
  });
  ended.catch(() => {});
  return {
    text: () => text,
    type(typed) {
      waiting.push({ input: { case: "data", value: Buffer.from(typed) } });
      wake.resolve();
    },
    async shows(wanted) {
      while (!wanted.test(text)) await Promise.race([once(shown, "more"), ended]);
    },
    hangUp: () => stop.abort(),
    ended,
  };
}

/** A shell on the serial port, for whoever types there. */
const shell = "setsid sh -c 'exec sh -i </dev/ttyS0 >/dev/ttyS0 2>&1' >/dev/null 2>&1 &";

test.serial(
  "what is typed reaches the guest, from one at a time; whoever reads, reads along",
  async (t) => {
    await rig.client.pods.create({ spec: { name: "one" } });
    await execIn(rig.client, "one", "sh", "-c", shell);
    const first = console();
    first.type("echo $((40 + 2))-first\r");
    await first.shows(/42-first/);
    const refused = await t.throwsAsync(console().ended, { code: "WRONG_STATE" });
    t.regex(refused?.message ?? "", /types on this console: uid 0, gid 0/);
    const enough = new AbortController();
    let read = "";
    const reading = (async () => {
      for await (const { data } of rig.client.pods.console({ idOrName: "one" }, enough)) {
        read += Buffer.from(data).toString();
        if (read.includes("43-along")) enough.abort();
      }
    })();
    first.type("echo $((42 + 1))-along\r");
    await t.throwsAsync(reading, { code: "CANCELLED" });
    t.regex(read, /42-first[^]*43-along/);
    first.hangUp();
    await t.throwsAsync(first.ended, { code: "CANCELLED" });
    // The next one's turn comes when podnetd has heard that this one is gone, a moment later.
    for (let tries = 0; ; tries++) {
      const second = console();
      second.type("echo $((40 + 4))-second\r");
      const seen = await second.shows(/44-second/).then(
        () => true,
        (error: { readonly code?: string }) => {
          if (error.code !== "WRONG_STATE" || tries === 100) throw error;
          return false;
        },
      );
      if (!seen) continue;
      second.hangUp();
      await t.throwsAsync(second.ended, { code: "CANCELLED" });
      break;
    }
  },
);

test.serial("an opening comes first and once, and follows", async (t) => {
  const send = async (...inputs: readonly Input[]): Promise<void> => {
    async function* all(): AsyncGenerator<Input> {
      yield* inputs;
      await new Promise(() => {});
    }
    for await (const _ of rig.client.pods.openConsole(all()));
  };
  const open: Input = { input: { case: "open", value: { idOrName: "one" } } };
  const data: Input = { input: { case: "data", value: Buffer.from("x") } };
  const wrong = { code: "INVALID_ARGUMENT" };
  await t.throwsAsync(send(data), wrong);
  await t.throwsAsync(send(open, open), wrong);
  await t.throwsAsync(
    send({ input: { case: "open", value: { idOrName: "one", noFollow: true } } }),
    wrong,
  );
});

test.serial(
  "a guest that reads nothing holds its writer back; the console ends with the machine",
  async (t) => {
    await rig.client.pods.create({ spec: { name: "deaf" } });
    // Processors that stand read nothing at all.
    await rig.client.pods.pause({ idOrName: "deaf" });
    let taken = 0;
    const total = 64 << 20;
    const stop = new AbortController();
    async function* flood(): AsyncGenerator<Input> {
      yield { input: { case: "open", value: { idOrName: "deaf", tailBytes: 1 } } };
      for (; taken < total; taken += 65_536)
        yield { input: { case: "data", value: Buffer.alloc(65_536) } };
      await new Promise(() => {});
    }
    const writing = (async () => {
      for await (const _ of rig.client.pods.openConsole(flood(), { signal: stop.signal }));
    })();
    // Positive control: another pod's writer gets through meanwhile.
    for (let quiet = 0, before = taken; quiet < 20; quiet++, before = taken) {
      await rig.client.pods.get({ idOrName: "one" });
      if (taken !== before) quiet = 0;
    }
    t.true(taken < total / 4, `${taken} bytes were taken`);
    const other = console();
    other.type("echo $((40 + 5))-other\r");
    await other.shows(/45-other/);
    const deleted = rig.client.pods.delete({ idOrName: "deaf", force: true });
    await t.notThrowsAsync(writing);
    await deleted;
    await rig.client.pods.delete({ idOrName: "one", force: true });
    await t.notThrowsAsync(other.ended);
  },
);
