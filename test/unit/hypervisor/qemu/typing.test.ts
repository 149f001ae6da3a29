import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { Typing } from "../../../../hypervisor/console/typing.ts";
import { connectUnix } from "../../../../linux/sockets/unix-socket.ts";

const never = new AbortController().signal;

/**
 * A console's keyboard with QEMU's end of it in the test's hands; it reads nothing until the test
 * asks it to.
 */
async function consoleEnd(
  typing = new Typing(),
): Promise<{ typing: Typing; qemu: Socket } & Disposable> {
  const path = join(mkdtempSync(join(tmpdir(), "podnet-typing-")), "console.sock");
  const server = createServer({ pauseOnConnect: true }).listen(path);
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const connection = await connectUnix(path);
  const [qemu] = await accepted;
  connection.socket.on("error", () => {});
  typing.connected(connection.socket);
  return {
    typing,
    qemu,
    [Symbol.dispose]() {
      connection.close();
      qemu.destroy();
      server.close();
    },
  };
}

test("one at a time types; the next learns who, and has its turn when that one is done", async (t) => {
  using end = await consoleEnd();
  const first = end.typing.take("uid 0, gid 0");
  const error = t.throws(() => end.typing.take("uid 7, gid 7"), { message: /uid 0, gid 0$/ });
  t.like(error, { code: "WRONG_STATE", details: { holder: "uid 0, gid 0" } });
  await first.type(Buffer.from("ls\r"), never);
  first[Symbol.dispose]();
  using second = end.typing.take("uid 7, gid 7");
  // Given back once: the second's is not given back with it.
  first[Symbol.dispose]();
  t.throws(() => end.typing.take("uid 8, gid 8"), { message: /uid 7/ });
  await second.type(Buffer.from("\u0003"), never);
  let seen = "";
  for await (const data of end.qemu) {
    seen += String(data);
    if (seen.length === 4) break;
  }
  t.is(seen, "ls\r\u0003");
});

test("a guest that does not read holds the writer back, whoever comes after; what is kept for it stays small", async (t) => {
  using end = await consoleEnd();
  let given = 0;
  for (let turn = 0; turn < 3; turn++) {
    using keyboard = end.typing.take(`writer ${turn}`);
    const stop = new AbortController();
    const typed = (async () => {
      for (; given < 64 << 20; given += 4096) await keyboard.type(Buffer.alloc(4096), stop.signal);
    })();
    // So many rounds of the loop without a byte taken: nothing takes any.
    for (let quiet = 0, before = given; quiet < 50; quiet++, before = given) {
      await new Promise(setImmediate);
      if (given !== before) quiet = 0;
    }
    stop.abort();
    await t.throwsAsync(typed, { code: "CANCELLED" });
  }
  // What a socket holds; positive control: the reader gets all of it, and then the rest goes
  // through.
  t.true(given < 4 << 20, `${given} bytes`);
  let read = 0;
  end.qemu.on("data", (data) => void (read += data.length)).resume();
  using keyboard = end.typing.take("the last");
  await keyboard.type(Buffer.alloc(1 << 20), never);
  t.true(read >= given);
});

test("a console that is lost is typed on again once it is connected", async (t) => {
  using end = await consoleEnd();
  using keyboard = end.typing.take("uid 0, gid 0");
  end.qemu.destroy();
  const stop = new AbortController();
  const typed = (async () => {
    for (;;) await keyboard.type(Buffer.from("x"), stop.signal);
  })();
  using again = await consoleEnd(end.typing);
  await once(again.qemu.resume(), "data");
  stop.abort();
  await t.throwsAsync(typed, { code: "CANCELLED" });
});
