import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { parseIp } from "../../core/address.ts";
import type { PodId } from "../../core/names.ts";
import type { PublishedPlan } from "../../daemon/published/published-plan.ts";
import { HeldPorts } from "../../daemon/published/held-ports.ts";
import { run } from "../../linux/processes/command.ts";
import { sockets } from "../lab/inventory.ts";
import { ownNetns } from "../lab/netns.ts";

// "Pods" of this file are sockets at other addresses of the namespace's own loopback.

test.before(() => ownNetns());

const pod = "aaaaaaaaaaaa" as PodId;
const podIp = parseIp("127.0.5.5");

const published = (
  hostPort: number,
  podPort: number,
  more: Partial<PublishedPlan> = {},
): PublishedPlan => ({
  hostPort,
  podPort,
  count: 1,
  protocol: "tcp",
  at: [
    { hostIp: parseIp("127.0.0.1"), podIp },
    { hostIp: parseIp("::1"), podIp },
  ],
  ...more,
});

async function hold(plan: PublishedPlan): Promise<HeldPorts> {
  const held = new HeldPorts();
  await held.hold(pod, [plan]);
  return held;
}

async function listen(port: number, serve: (socket: Socket) => void): Promise<AsyncDisposable> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    serve(socket);
  });
  server.listen({ host: podIp, port });
  await once(server, "listening");
  return {
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

const dial = (port: number, host = "127.0.0.1"): Socket =>
  connect({ host, port, allowHalfOpen: true }).on("error", () => {});

/**
 * Resolves when there are so many connections and sessions: what has ended is counted a turn of the
 * event loop later.
 */
async function active(held: HeldPorts, count: number): Promise<void> {
  while (held.counts().active !== count) await delay(5);
}

async function allOf(socket: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** How a connection ends that is refused; `let in` when it is not. */
function refusal(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.once("data", () => resolve("let in"));
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  });
}

for (const host of ["127.0.0.1", "::1"]) {
  test.serial(`what is sent to ${host} reaches the pod, and its answer comes back`, async (t) => {
    await using _pod = await listen(80, (socket) => socket.pipe(socket));
    using held = await hold(published(8080, 80));
    const client = dial(8080, host);
    client.end("hello");
    t.is(await allOf(client), "hello");
    await active(held, 0);
    t.like(held.counts(), { begun: 1, refused: 0, bytesIn: 5, bytesOut: 5 });
  });
}

test.serial(
  "a half-closed connection goes on in the other direction, both ways round",
  async (t) => {
    const heard = Promise.withResolvers<string>();
    await using _pod = await listen(80, (socket) => {
      // Says all it has to say first, and hears the client afterwards.
      socket.end("first");
      void allOf(socket).then(heard.resolve);
    });
    using _held = await hold(published(8080, 80));
    const client = dial(8080);
    t.is(await allOf(client), "first");
    client.end("second");
    t.is(await heard.promise, "second");
  },
);

test.serial("who does not read is not sent more than buffers hold", async (t) => {
  let sent = 0;
  await using _pod = await listen(80, (socket) => {
    const chunk = Buffer.alloc(1 << 16);
    const more = (): void => {
      while (!socket.destroyed && sent < 1 << 28) {
        sent += chunk.length;
        if (!socket.write(chunk)) return void socket.once("drain", more);
      }
    };
    more();
  });
  using _held = await hold(published(8080, 80));
  const client = dial(8080);
  client.pause();
  let before = -1;
  while (before !== sent) {
    before = sent;
    await delay(300);
  }
  // Far from all of it, but a good part of what the kernel's buffers take: the connection itself
  // worked.
  t.true(sent > 1 << 16 && sent < 1 << 26, `${sent} bytes`);
  const { rss } = process.memoryUsage();
  t.true(rss < 1 << 30);
  client.destroy();
});

test.serial("a pod that takes no connection gives the client a reset at once", async (t) => {
  using held = await hold(published(8080, 80));
  t.is(await refusal(dial(8080)), "ECONNRESET");
  await active(held, 0);
  t.is(held.counts().refused, 1);
  // The control: the same port once the pod takes it.
  await using _pod = await listen(80, (socket) => socket.end("here"));
  t.is(await allOf(dial(8080).end()), "here");
});

test.serial(
  "what a pod has not taken yet ends with its port, and leaves nothing open",
  async (t) => {
    // Nothing answers at this address, and no error comes either: only minutes later is it known
    // that it takes no connection.
    const silent = parseIp("10.99.0.2");
    await run(["ip", "link", "add", "silent0", "type", "veth", "peer", "silent1"]);
    t.teardown(() => run(["ip", "link", "delete", "silent0"]));
    await run(["ip", "address", "add", "10.99.0.1/24", "dev", "silent0"]);
    for (const link of ["silent0", "silent1"]) await run(["ip", "link", "set", link, "up"]);
    const neighbour = ["lladdr", "02:00:00:00:00:01", "dev", "silent0", "nud", "permanent"];
    await run(["ip", "neighbour", "add", silent, ...neighbour]);
    using held = await hold(
      published(8080, 80, { at: [{ hostIp: parseIp("127.0.0.1"), podIp: silent }] }),
    );
    const client = dial(8080);
    // In the kernel's words: SYN_SENT (2) to port 80 of the address, whose bytes stand backwards.
    const unanswered = (): boolean =>
      sockets(process.pid).some((line) => line.endsWith(" 0200630A:0050 02"));
    while (!unanswered()) await delay(5);
    const end = refusal(client);
    held.release(pod);
    t.is(await end, "ECONNRESET");
    await active(held, 0);
    t.false(unanswered());
  },
);

test.serial("a reset of either end reaches the other", async (t) => {
  const inPod = Promise.withResolvers<Socket>();
  const taken = [Promise.withResolvers<Socket>(), inPod];
  await using _pod = await listen(80, (socket) => taken.pop()?.resolve(socket));
  using held = await hold(published(8080, 80));
  const first = dial(8080);
  const end = refusal(first);
  (await inPod.promise).resetAndDestroy();
  t.is(await end, "ECONNRESET");
  const second = dial(8080);
  const other = await taken[0]?.promise;
  const closed = Promise.withResolvers<boolean>();
  other?.once("close", closed.resolve);
  second.resetAndDestroy();
  other?.resume();
  t.true(await closed.promise);
  await active(held, 0);
});

test.serial("connections beyond the bound are refused, and one that ends makes room", async (t) => {
  await using _pod = await listen(80, (socket) => void socket.resume().write("x"));
  using held = await hold(published(8080, 80));
  const clients: Socket[] = [];
  for (let n = 0; n < 1024; n++) {
    const client = dial(8080);
    clients.push(client);
    if (n % 64 === 63) await once(client, "data");
  }
  await active(held, 1024);
  t.is(await refusal(dial(8080)), "ECONNRESET");
  clients.pop()?.resetAndDestroy();
  await active(held, 1023);
  const [data] = (await once(dial(8080), "data")) as [Buffer];
  t.is(data.toString(), "x");
  held.cut(pod);
  await active(held, 0);
  for (const client of clients) client.destroy();
});

test.serial(
  "letting go of a port ends what passes by it, and nothing of the pod's other ports",
  async (t) => {
    await using _pod = await listen(80, (socket) => socket.pipe(socket));
    using held = new HeldPorts();
    const [one, two] = [published(8080, 80), published(8081, 80)];
    await held.hold(pod, [one, two]);
    const [gone, stays] = [dial(8080), dial(8081)];
    for (const each of [gone, stays]) {
      each.write("a");
      await once(each, "data");
    }
    const end = refusal(gone);
    held.keep(pod, [two]);
    t.is(await end, "ECONNRESET");
    stays.write("b");
    t.is(String(await once(stays, "data")), "b");
    t.is(await refusal(dial(8080)), "ECONNREFUSED");
    stays.destroy();
  },
);

test.serial("a range leads port by port", async (t) => {
  await using _a = await listen(81, (socket) => socket.end("81"));
  await using _b = await listen(83, (socket) => socket.end("83"));
  using held = await hold(published(9000, 80, { count: 5 }));
  t.is(held.size, 10);
  t.is(await allOf(dial(9001).end()), "81");
  t.is(await allOf(dial(9003, "::1").end()), "83");
  t.is(await refusal(dial(9005)), "ECONNREFUSED");
});

async function udp(address: string, port = 0): Promise<UdpSocket> {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  socket.bind({ address, port });
  await once(socket, "listening");
  return socket;
}

/** There is no route in this namespace but those of lo. */
const nowhere = parseIp("203.0.113.7");
const udpPlan = published(5353, 53, { protocol: "udp" });

test.serial("each client of UDP has answers to its own datagrams alone", async (t) => {
  using held = await hold(udpPlan);
  const server = await udp(podIp, 53);
  server.on("message", (datagram, from) =>
    server.send(`re ${String(datagram)}`, from.port, from.address),
  );
  const clients = await Promise.all([udp("127.0.0.1"), udp("127.0.0.1"), udp("::1")]);
  for (const round of [1, 2]) {
    const answers = clients.map((client) => once(client, "message"));
    clients.forEach((client, i) =>
      client.send(`${i} in round ${round}`, 5353, i === 2 ? "::1" : "127.0.0.1"),
    );
    const texts = (await Promise.all(answers)).map(([datagram]) => String(datagram));
    t.deepEqual(
      texts,
      [0, 1, 2].map((i) => `re ${i} in round ${round}`),
    );
  }
  t.like(held.counts(), { begun: 3, active: 3, refused: 0 });
  for (const each of [server, ...clients]) each.close();
});

test.serial("many datagrams at once all arrive, in order", async (t) => {
  using _held = await hold(udpPlan);
  const server = await udp(podIp, 53);
  const client = await udp("127.0.0.1");
  const heard: string[] = [];
  server.on("message", (datagram) => heard.push(String(datagram)));
  for (let n = 0; n < 50; n++) client.send(`${n}`, 5353, "127.0.0.1");
  while (heard.length < 50) await delay(10);
  t.deepEqual(
    heard,
    Array.from({ length: 50 }, (_, n) => `${n}`),
  );
  server.close();
  client.close();
});

test.serial(
  "a session ends when the pod takes no datagram, and begins anew with the next",
  async (t) => {
    using held = await hold(udpPlan);
    const client = await udp("127.0.0.1");
    client.send("lost", 5353, "127.0.0.1");
    while (held.counts().refused === 0) await delay(10);
    t.is(held.counts().active, 0);
    const server = await udp(podIp, 53);
    client.send("heard", 5353, "127.0.0.1");
    t.is(String((await once(server, "message"))[0]), "heard");
    server.close();
    client.close();
  },
);

test.serial(
  "a pod to which no way leads just now ends the session, and nothing else",
  async (t) => {
    using held = await hold({
      ...udpPlan,
      at: udpPlan.at.map((at) => ({ ...at, podIp: nowhere })),
    });
    const client = await udp("127.0.0.1");
    for (const refused of [1, 2]) {
      client.send("lost", 5353, "127.0.0.1");
      while (held.counts().refused < refused) await delay(10);
      t.like(held.counts(), { begun: refused, active: 0 });
    }
    client.close();
  },
);

test.serial(
  "what does not come by loopback is not forwarded, though a port at every address is held",
  async (t) => {
    const every = { hostIp: parseIp("0.0.0.0"), podIp };
    using held = new HeldPorts();
    await held.hold(pod, [
      published(8080, 80, { at: [every] }),
      published(5353, 53, { protocol: "udp", at: [every] }),
    ]);
    await using _pod = await listen(80, (socket) => socket.end("in"));
    const server = await udp(podIp, 53);
    const outside = "10.55.0.1";
    const { run } = await import("../../linux/processes/command.ts");
    await run(["ip", "address", "add", `${outside}/32`, "dev", "lo"]);
    t.is(await refusal(dial(8080, outside)), "ECONNRESET");
    const foreign = await udp(outside);
    foreign.send("no", 5353, outside);
    while (held.counts().refused < 2) await delay(10);
    // The control: the same sockets by loopback.
    t.is(await allOf(dial(8080).end()), "in");
    const client = await udp("127.0.0.1");
    client.send("yes", 5353, "127.0.0.1");
    t.is(String((await once(server, "message"))[0]), "yes");
    for (const each of [server, foreign, client]) each.close();
  },
);

test.serial(
  "a connection to a link-local address of the host is refused, and the port goes on",
  async (t) => {
    await run(["ip", "link", "add", "near0", "type", "bridge"]);
    t.teardown(() => run(["ip", "link", "delete", "near0"]));
    await run(["ip", "link", "set", "near0", "up"]);
    await run(["ip", "address", "add", "fe80::55/64", "dev", "near0", "nodad"]);
    using held = await hold(published(8080, 80, { at: [{ hostIp: parseIp("::"), podIp }] }));
    await using _pod = await listen(80, (socket) => socket.end("in"));
    t.is(await refusal(dial(8080, "fe80::55%near0")), "ECONNRESET");
    t.is(held.counts().refused, 1);
    t.is(await allOf(dial(8080, "::1").end()), "in");
  },
);
