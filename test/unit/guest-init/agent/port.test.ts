import test from "ava";
import type { Loop } from "../../../../guest-init/agent/loop.ts";

/** poll(2)'s bits. */
const readable = 1;
const writable = 4;
const hangUp = 16;

/** A virtio port as the guest's kernel shows it, and a clock that stands unless it is moved. */
interface Kernel {
  /** What reads give, one after the other: bytes, or 0 for a host that is not there. */
  readonly reads: (string | 0)[];
  readonly written: string[];
  now: number;
  /** When steps came last, which the port does not see. */
  stepsAt: number;
}

const eagain = 11;
const enoent = 2;

/** The agent's calls of its kernel, which its engine has and Node has not. */
function playKernel(): Kernel {
  const kernel: Kernel = { reads: [], written: [], now: 1000, stepsAt: -1000 };
  const native = {
    mode: () => 0o020_600,
    open: () => 7,
    close: () => 0,
    readSmall: () => -enoent,
    fill(_fd: number, into: Uint8Array) {
      const next = kernel.reads.shift();
      if (next === undefined) return -eagain;
      return next === 0 ? 0 : Buffer.from(next).copy(into);
    },
    write(_fd: number, bytes: Uint8Array) {
      kernel.written.push(Buffer.from(bytes).toString());
      return bytes.length;
    },
    monotonic: () => kernel.now,
    heard: () => kernel.stepsAt,
  };
  Object.assign(globalThis, { podnetSys: native });
  return kernel;
}

/** A port with what it sent, and the two things its loop does for it. */
async function openPort(kernel: Kernel) {
  const { Port } = await import("../../../../guest-init/agent/port.ts");
  let timers: { readonly due: number; readonly run: () => void }[] = [];
  let poll: ((events: number) => void) | undefined;
  const loop = {
    watch(_fd: number, _wanted: number, happened: (events: number) => void) {
      poll = happened;
      return {
        events: () => {},
        stop: () => {
          poll = undefined;
        },
      };
    },
    after(ms: number, run: () => void) {
      timers.push({ due: kernel.now + ms, run });
      return () => {};
    },
  } as unknown as Loop;
  const reported: string[] = [];
  const port = new Port(loop, () => "/dev/vport0p1", {
    opened: () => reported.push("opened"),
    readable() {
      const into = new Uint8Array(64);
      for (let count = port.read(into); count !== undefined; count = port.read(into))
        reported.push(Buffer.from(into.subarray(0, count)).toString());
    },
    lost: () => reported.push("lost"),
    doubted: () => reported.push("doubted"),
    drained: () => reported.push("drained"),
  });
  port.open();
  return {
    port,
    reported,
    happens: (events: number) => poll?.(events),
    passes(ms: number) {
      kernel.now += ms;
      const due = timers.filter((timer) => timer.due <= kernel.now);
      timers = timers.filter((timer) => timer.due > kernel.now);
      for (const { run } of due) run();
    },
  };
}

test.serial(
  "bytes of a host whose return the kernel has not heard of yet are answered",
  async (t) => {
    const kernel = playKernel();
    const { port, reported, happens, passes } = await openPort(kernel);
    kernel.reads.push("who are you", 0);
    happens(readable | hangUp);
    port.send(Buffer.from("me"));
    t.deepEqual(reported, ["opened", "who are you", "doubted"], "the hang-up is not believed");
    passes(50);
    happens(writable);
    t.deepEqual(kernel.written, ["me"]);
    t.deepEqual(reported, ["opened", "who are you", "doubted", "drained"]);
  },
);

test.serial("a hang-up that lasts is believed, and what was to be sent is void", async (t) => {
  const kernel = playKernel();
  const { port, reported, happens, passes } = await openPort(kernel);
  kernel.reads.push("half a", 0);
  happens(readable | hangUp);
  port.send(Buffer.from("an answer"));
  for (const _ of [1, 2]) {
    kernel.reads.push(0);
    passes(50);
    happens(readable | hangUp);
  }
  t.deepEqual(reported, ["opened", "half a", "doubted", "doubted", "lost"]);
  t.is(port.queued, 0);
  t.deepEqual(kernel.written, []);
});

test.serial("of a host that has been silent a hang-up is believed at once", async (t) => {
  const kernel = playKernel();
  const { reported, happens, passes } = await openPort(kernel);
  kernel.reads.push("all of it");
  happens(readable);
  passes(100);
  kernel.reads.push(0);
  happens(readable | hangUp);
  t.deepEqual(reported, ["opened", "all of it", "lost"]);
});
