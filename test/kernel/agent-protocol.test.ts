import { once } from "node:events";
import {
  lstatSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import fc from "fast-check";
import { frameDeadlineMs } from "../../guest-init/agent/frame-deadline.ts";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { encodePlaceFile, type PlacedFile } from "../../guest-init/protocol/file-messages.ts";
import { encodeMountShare } from "../../guest-init/protocol/share-messages.ts";
import { encodeTtyFrame, TtyDecoder } from "../../guest-init/protocol/tty-frame.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";

let host: AgentHost;

test.before(async () => {
  await ownNetns();
  host = await AgentHost.start();
});
test.after.always(() => host[Symbol.asyncDispose]());

const isAck = { code: command.ack };
const isError = { code: command.error };
const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

test.serial("PING and GETVERSION, with and without null", async (t) => {
  t.like(await host.ask(command.ping), isAck);
  for (const payload of [new Uint8Array(0), null, {}])
    t.deepEqual(await host.ack(command.getVersion, payload), Buffer.from([0, 0, 0x10, 0x94]));
  t.like(await host.ask(command.getVersion, { unknown: 1 }), isError);
});

test.serial("NEXT counts the header, then the body", async (t) => {
  t.deepEqual((await host.ask(command.ping)).next, [8]);
  t.deepEqual((await host.ask(command.ping, Buffer.alloc(100))).next, [8, 100]);
});

test.serial("NEXT adds up to what was written, in whatever pieces", async (t) => {
  const frame = encodeCtlFrame(command.ping, Buffer.alloc(15792));
  for (const size of [1, 7, 512, 15800]) {
    for (let at = 0; at < frame.length; at += size) {
      if (!host.control.write(frame.subarray(at, at + size)))
        await new Promise((resolve) => host.control.once("drain", resolve));
    }
    const { code, next } = await host.answer();
    t.is(code, command.ack);
    t.is(sum(next), frame.length, `${size}-byte writes`);
  }
});

test.serial("a header in single bytes brings eight NEXT(1)", async (t) => {
  const frame = encodeCtlFrame(command.ping);
  for (const byte of frame) {
    host.control.write(Uint8Array.of(byte));
    const next = await host.frames.take();
    t.is(next.code, command.next);
    t.deepEqual([...next.payload], [0, 0, 0, 1]);
  }
  t.like(await host.answer(), isAck);
});

test.serial("pipelined commands are answered in their order", async (t) => {
  host.control.write(
    Buffer.concat([
      encodeCtlFrame(command.ping),
      encodeCtlFrame(command.getVersion),
      encodeCtlFrame(99),
      encodeCtlFrame(command.ping),
    ]),
  );
  const answers = [];
  for (let i = 0; i < 4; i++) answers.push(await host.answer());
  t.deepEqual(
    answers.map(({ code, payload }) => [code, payload.length]),
    [
      [command.ack, 0],
      [command.ack, 4],
      [command.error, "code 99 is not supported\0".length],
      [command.ack, 0],
    ],
  );
});

test.serial("deprecated, unknown and container commands are errors with a reason", async (t) => {
  for (const code of [2, 3, 5, 7, 9, 10, 13, 14, 23, 26, 99, 102, 0xffffffff]) {
    const answer = await host.ask(code);
    t.is(answer.code, command.error, `${code}`);
    t.true(answer.payload.length > 0);
  }
  for (const code of [command.newContainer, command.killContainer, command.removeContainer]) {
    const { payload, ...answer } = await host.ask(code, { container: "x", signal: 9 });
    t.like(answer, isError);
    t.regex(payload.toString(), /ontainer.*\0$/);
  }
});

test.serial("frames of impossible length are answered and skipped", async (t) => {
  // Shorter than its own header: the bytes after it are a new frame.
  host.control.write(Uint8Array.of(0, 0, 0, 12, 0, 0, 0, 4));
  t.like(await host.answer(), isError);
  t.like(await host.ask(command.ping), isAck);
  // Longer than the limit: the body is passed over, and paid for with NEXT.
  const length = 3 * 1024 * 1024;
  const header = Buffer.alloc(8);
  header.writeUInt32BE(command.ping, 0);
  header.writeUInt32BE(length, 4);
  host.control.write(header);
  host.control.write(Buffer.alloc(length - 8));
  const { code, next } = await host.answer();
  t.is(code, command.error);
  host.control.write(encodeCtlFrame(command.ping));
  const ping = await host.answer();
  t.is(ping.code, command.ack);
  t.is(sum(next) + sum(ping.next), length + 8);
});

test.serial("READY from the host and ONLINECPUMEM are acknowledged", async (t) => {
  t.like(await host.ask(command.ready), isAck);
  t.like(await host.ask(command.onlineCpuMem, null), isAck);
});

test.serial("PLACEFILE makes a file with its owner and mode, and follows no link", async (t) => {
  const directory = mkdtempSync("/run/agent-files-");
  const path = join(directory, "new/er/file");
  const put = (file: Partial<PlacedFile>) =>
    host.ask(
      command.placeFile,
      encodePlaceFile({ path, mode: 0o4750, uid: 7, gid: 0, data: Buffer.from("}\0"), ...file }),
    );
  const first = await put({});
  t.is(first.code, command.ack, first.payload.toString());
  t.is(readFileSync(path, "latin1"), "}\0");
  t.like(statSync(path), { uid: 7, gid: 0, mode: 0o104750 });
  // A link, and one in the way of the new content, are replaced and lead nowhere.
  const target = join(directory, "target");
  writeFileSync(target, "stays");
  rmSync(path);
  symlinkSync(target, path);
  symlinkSync(target, `${path}.podnet-new`);
  t.like(await put({ mode: 0o600 }), isAck);
  t.is(readFileSync(target, "utf8"), "stays");
  t.like(lstatSync(path), { mode: 0o100600 });
  t.deepEqual(readdirSync(join(directory, "new/er")), ["file"]);
  t.like(await put({ path: directory }), isError);
  t.like(await put({ path: `${target}/below` }), isError);
  t.deepEqual(readdirSync(directory).toSorted(), ["new", "target"]);
  rmSync(directory, { recursive: true });
});

test.serial("MOUNTSHARE without a share says why, and leaves nothing mounted", async (t) => {
  const path = mkdtempSync("/run/agent-share-");
  // (This machine has no such share; its kernel may have no virtiofs either.)
  const reply = await host.ask(
    command.mountShare,
    encodeMountShare({ tag: "share0", path: join(path, "made/here") }),
  );
  t.like(reply, isError);
  t.regex(reply.payload.toString(), /no module virtiofs|EINVAL|Invalid argument/);
  t.false(readFileSync("/proc/self/mounts", "utf8").includes(path));
  t.like(
    await host.ask(command.mountShare, Buffer.from('{"tag":"share0","path":"../x"}')),
    isError,
  );
  rmSync(path, { recursive: true });
});

test.serial("WRITEFILE and READFILE carry any bytes", async (t) => {
  const data = Buffer.from(Uint8Array.from({ length: 100_000 }, (_, i) => (i * 7) & 255));
  const target = { container: "hyperstart", file: "/tmp/some file" };
  await host.ack(command.writeFile, Buffer.concat([Buffer.from(JSON.stringify(target)), data]));
  t.deepEqual(await host.ack(command.readFile, target), data);
  for (const wrong of [
    { container: "other", file: "/tmp/some file" },
    { container: "hyperstart", file: "/tmp/none" },
    { container: "hyperstart", file: "/tmp" },
    { container: "hyperstart", file: "/dev/zero" },
  ])
    t.like(await host.ask(command.readFile, wrong), isError);
});

test.serial(
  "a path too long for the kernel is refused, not cut to that of another file",
  async (t) => {
    // 4,095 bytes, the most the kernel takes.
    const file = `/tmp/${"./".repeat(2044)}ab`;
    await host.ack(
      command.writeFile,
      Buffer.from(JSON.stringify({ container: "hyperstart", file })),
    );
    const longer = { container: "hyperstart", file: `${file}cd` };
    t.like(await host.ask(command.readFile, longer), isError);
    t.like(await host.ask(command.readFile, { ...longer, file: `${file}c` }), isError);
    t.like(await host.ask(command.writeFile, Buffer.from(JSON.stringify(longer))), isError);
  },
);

test.serial("STARTPOD: hostname and DNS files; what cannot be done is refused", async (t) => {
  const pod = {
    hostname: "pod-one",
    dns: ["8.8.8.8", "fd00::53"],
    dnsSearch: ["a.b"],
    dnsOptions: ["ndots:2"],
  };
  await host.ack(command.startPod, { ...pod, shareDir: "share_dir", portmappingWhiteLists: {} });
  const resolver = "nameserver 8.8.8.8\nnameserver fd00::53\nsearch a.b\noptions ndots:2\n";
  const read = async (file: string): Promise<string> =>
    (await host.ack(command.readFile, { container: "hyperstart", file })).toString();
  t.is(await read("/etc/resolv.conf"), resolver);
  // Not PID 1: /tmp is everybody's, and nothing is written below a name there that a guest's user
  // may have made.
  t.like(
    await host.ask(command.readFile, { container: "hyperstart", file: "/tmp/hyper/hostname" }),
    isError,
  );
  t.is(await read("/proc/sys/kernel/hostname"), "pod-one\n");
  for (const wrong of [
    { unknown: 1 },
    { containers: [{}] },
    { portmappingWhiteLists: { internalNetworks: ["10.0.0.0/8"] } },
    { hostname: "with space" },
    { dns: ["8.8.8.8\nnameserver 6.6.6.6"] },
    "text",
  ])
    t.like(await host.ask(command.startPod, wrong), isError, JSON.stringify(wrong));
  t.is(await read("/etc/resolv.conf"), resolver);
});

test.serial(
  "a disk that is full: refused, the old file stays, and no half of the new one",
  async (t) => {
    const shell = (script: string) => host.run(["sh", "-c", script]);
    const prepared = await shell(
      "mount -t tmpfs -o size=8k tmpfs /etc && echo old > /etc/resolv.conf && head -c 4096 /dev/zero > /etc/full",
    );
    t.like(prepared.event, { status: 0 }, prepared.stderr.toString());
    t.like(await host.ask(command.startPod, { dns: ["8.8.4.4"] }), isError);
    t.is(
      (await shell("cd /etc && cat resolv.conf && ls")).stdout.toString(),
      "old\nfull\nresolv.conf\n",
    );
    t.like((await shell("umount /etc")).event, { status: 0 });
  },
);

test.serial("HELLO agrees on a version and echoes the nonce", async (t) => {
  const hello = async (): Promise<{ epoch: string }> =>
    JSON.parse(
      (await host.ack(command.hello, { versions: [1, 7], nonce: "n1", later: 1 })).toString(),
    ) as {
      epoch: string;
    };
  const first = await hello();
  t.like(first, { version: 1, nonce: "n1" });
  t.is((await hello()).epoch, first.epoch);
  const refused = await host.ask(command.hello, { versions: [9], nonce: "n" });
  t.is(refused.code, command.error);
  t.like(JSON.parse(refused.payload.toString()), { field: "versions" });
});

test.serial("AWAKE is for the agent that is PID 1, and only such an agent offers it", async (t) => {
  const hello = await host.ack(command.hello, { versions: [1], nonce: "n" });
  t.like(JSON.parse(hello.toString()), { features: ["loopback", "attributes", "parking"] });
  const refused = await host.ask(command.awake, { entropy: "00", clockMs: Date.now() });
  t.is(refused.code, command.error);
  t.regex(refused.payload.toString(), /not PID 1/);
});

test.serial("garbage of every kind never ends it", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc
        .nat({ max: 110 })
        .filter((code) => code !== command.destroyPod && code !== command.writeFile),
      fc.oneof(
        fc.uint8Array({ maxLength: 300 }),
        fc.json().map((text) => Buffer.from(text)),
      ),
      async (code, payload) => {
        // What would be obeyed is not garbage.
        const { code: answer } = await host.ask(code, payload);
        return answer === command.ack || answer === command.error;
      },
    ),
    { numRuns: 400 },
  );
  t.like(await host.ask(command.ping), isAck);
});

test.serial("garbage on the tty channel, and streams that do not exist", async (t) => {
  host.tty.write(encodeTtyFrame(77n, Buffer.from("no program reads this")));
  host.tty.write(Uint8Array.of(0, 0, 0, 0, 0, 0, 9, 1, 0, 0, 0, 3));
  host.tty.write(
    Buffer.concat([Buffer.from([0, 0, 0, 0, 0, 0, 9, 1, 0, 2, 0, 0]), Buffer.alloc(131_060)]),
  );
  const { stdout } = await host.run(["echo", "still here"]);
  t.is(stdout.toString(), "still here\n");
});

test.serial("input for an unknown stream is answered with its end, an end is not", async (t) => {
  await using other = await AgentHost.start();
  const reported: bigint[] = [];
  const decoder = new TtyDecoder();
  other.tty.on("data", (bytes) => {
    for (const item of decoder.push(bytes)) reported.push(item.stream);
  });
  const { stdio } = await other.begin(["true"]);
  await other.ended(`p${stdio}`);
  for (const stream of [stdio, 41n]) other.end(stream);
  other.write(42n, Buffer.from("for no stream"));
  while (!reported.includes(42n)) await once(other.tty, "data");
  t.deepEqual(reported, [stdio, 42n]);
});

test.serial(
  "a host that goes while a command waits: the next one does not wait behind it",
  async (t) => {
    await using other = await AgentHost.start();
    const wait = { requestId: "w", interfaces: [], routes: [], neighbours: [], waitMs: 60_000 };
    const nic = { mac: "52:54:00:00:00:77", name: "eth0", addresses: [] };
    other.control.write(
      encodeCtlFrame(
        command.configure,
        Buffer.from(JSON.stringify({ ...wait, interfaces: [nic] })),
      ),
    );
    // NEXT for its header and for its body: it has been taken.
    for (let i = 0; i < 2; i++) t.is((await other.frames.take()).code, command.next);
    await other.comeAgain();
    t.like(await other.ask(command.ping), isAck);
  },
);

test.serial("after HELLO commands in any pieces are answered in order, without NEXT", async (t) => {
  await using other = await AgentHost.start();
  await other.ack(command.hello, { versions: [1], nonce: "n" });
  // As many as wait behind one that takes its time, and more.
  const nic = { mac: "52:54:00:00:00:77", name: "eth0", addresses: [] };
  const slow = { requestId: "w", interfaces: [nic], routes: [], neighbours: [], waitMs: 300 };
  const codes = Array.from({ length: 400 }, (_, i) =>
    i % 3 === 0 ? command.getVersion : command.ping,
  );
  const all = Buffer.concat([
    encodeCtlFrame(command.configure, Buffer.from(JSON.stringify(slow))),
    ...codes.map((code, i) =>
      encodeCtlFrame(code, Buffer.alloc(code === command.ping ? i % 60 : 0)),
    ),
  ]);
  for (const size of [all.length, 4099]) {
    for (let at = 0; at < all.length; at += size) {
      other.control.write(all.subarray(at, at + size));
      await delay(5);
    }
    t.deepEqual((await other.answer()).next, []);
    for (const code of codes) {
      const { payload, next, ...answer } = await other.answer();
      t.like(answer, isAck);
      t.deepEqual(next, []);
      t.is(payload.length, code === command.getVersion ? 4 : 0);
    }
  }
  await other.comeAgain();
  t.deepEqual((await other.ask(command.ping)).next, [8]);
});

test.serial("half a frame whose rest does not come is forgotten", async (t) => {
  await using other = await AgentHost.start();
  other.control.write(encodeCtlFrame(command.ping, Buffer.alloc(100)).subarray(0, 20));
  other.tty.write(encodeTtyFrame(7n, Buffer.alloc(100)).subarray(0, 20));
  await delay(frameDeadlineMs + 500);
  t.like(await Promise.race([other.ask(command.ping), delay(5000, {})]), isAck);
  const { stdout } = await other.run(["cat"], {}, Buffer.from("input arrives"));
  t.is(stdout.toString(), "input arrives");
});

test.serial("a frame that comes slowly is waited for, longer than the deadline", async (t) => {
  await using other = await AgentHost.start();
  const frame = encodeCtlFrame(command.ping, Buffer.alloc(4));
  for (const byte of frame) {
    other.control.write(Uint8Array.of(byte));
    await delay(frameDeadlineMs / 10);
  }
  t.like(await other.answer(), isAck);
});

test.serial("a second agent's descriptors stay few", async (t) => {
  await using other = await AgentHost.start();
  const pid = other.process.pid as number;
  for (let i = 0; i < 50; i++) await other.ask(command.setupInterface, { device: "lo" });
  t.true(readdirSync(`/proc/${pid}/fd`).length < 12);
  const rss = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  t.true(rss < 4096, `${rss} KiB`);
});

test.serial("DESTROYPOD is acknowledged; a plain process ends", async (t) => {
  const other = await AgentHost.start();
  const exit = new Promise((resolve) => other.process.once("exit", resolve));
  t.like(await other.ask(command.destroyPod, null), isAck);
  t.is(await exit, 0);
  await other[Symbol.asyncDispose]();
});
