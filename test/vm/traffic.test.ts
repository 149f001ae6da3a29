import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { InterfaceStats } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addressOf, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
let address: string;
let tap: string;

test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n[limits]\ncaptures_per_caller = 2\n");
  const { pod } = await rig.client.pods.create({ spec: { name: "one" } });
  address = addressOf(pod);
  tap = pod?.interfaces[0]?.tap ?? "";
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** The first interface's counters, once. */
async function countersNow(idOrName = "one"): Promise<InterfaceStats> {
  for await (const { pods } of rig.client.pods.stats({ idOrName })) {
    const [first] = pods[0]?.interfaces ?? [];
    if (first !== undefined) return first;
  }
  throw new Error(`${idOrName} has no counters`);
}

/** Pings of so many bytes, one way and back. */
const ping = (times: number, size: number): Promise<string> =>
  rig.lab.host.run("ping", "-n", "-c", `${times}`, "-i", "0.02", "-s", `${size}`, address);

/** A capture that is read step by step; disposing of it ends it. */
function stepwise(guestName = "") {
  const ended = new AbortController();
  const { signal } = ended;
  const stream = rig.client.pods.capture({ idOrName: "one", guestName }, { signal });
  const parts = stream[Symbol.asyncIterator]();
  return { next: () => parts.next(), [Symbol.dispose]: () => ended.abort() };
}

/** Collects a capture until it ends, having done something once everything is taken. */
async function captured(
  request: { guestName?: string; snapBytes?: number; maxPackets?: bigint },
  once: () => Promise<unknown>,
): Promise<{ file: Buffer; lost: bigint }> {
  const parts: Uint8Array[] = [];
  let lost = 0n;
  const ended = new AbortController();
  let doing: Promise<unknown> | undefined;
  try {
    const asked = { idOrName: "one", ...request };
    for await (const part of rig.client.pods.capture(asked, { signal: ended.signal })) {
      parts.push(part.data);
      lost = part.lost;
      doing ??= once().then(async () => {
        await delay(200);
        ended.abort();
      });
    }
  } catch (thrown) {
    if (!ended.signal.aborted) throw thrown;
  }
  await doing;
  return { file: Buffer.concat(parts), lost };
}

/** What tcpdump makes of a capture. */
async function read(file: Buffer, ...filter: readonly string[]): Promise<string[]> {
  const path = join(rig.directory, "read.pcap");
  await rig.lab.host.run(
    "sh",
    "-c",
    'base64 -d >"$1" <<X\n'.concat(file.toString("base64"), "\nX"),
    "sh",
    path,
  );
  const text = await rig.lab.host.run("tcpdump", "-n", "-e", "-tt", "-r", path, ...filter);
  return text.split("\n").filter((line) => line !== "");
}

test.serial("counters grow by what was sent, as the pod sees it", async (t) => {
  await ping(1, 56);
  const before = await countersNow();
  await ping(10, 1000);
  const after = await countersNow();
  // 1,000 bytes of ICMP with headers of 8, 20 and 14; an ARP or two, and what IPv6 says of itself,
  // may come between.
  const wanted = 10n * 1042n;
  for (const [grown, packets] of [
    [after.rxBytes - before.rxBytes, after.rxPackets - before.rxPackets],
    [after.txBytes - before.txBytes, after.txPackets - before.txPackets],
  ] as const) {
    t.true(grown >= wanted && grown < wanted + 2000n, `${grown}`);
    t.true(packets >= 10n && packets < 30n, `${packets}`);
  }
  t.is(after.tap, tap);
  t.is(after.rates, undefined, "asked once there are no rates");
  // One way alone: to a port without a listener, of which its kernel complains a few times.
  const flood = "for i in $(seq 100); do head -c 1000 /dev/zero >/dev/udp/$0/9 || :; done";
  await rig.lab.host.run("bash", "-c", flood, address);
  const sent = await countersNow();
  t.true(sent.rxBytes - after.rxBytes >= 100_000n, `${sent.rxBytes - after.rxBytes}`);
  t.true(sent.txBytes - after.txBytes < 50_000n, `${sent.txBytes - after.txBytes}`);
});

test.serial("metrics sum up what pods receive and send", async (t) => {
  const total = async (direction: string): Promise<number> => {
    const { socket } = rig.daemon;
    const text = await rig.lab.host.run("curl", "-s", "--unix-socket", socket, "http://p/metrics");
    const line = `^podnet_traffic_bytes_total\\{direction="${direction}"\\} (\\d+)$`;
    return Number(new RegExp(line, "m").exec(text)?.[1]);
  };
  const before = await total("rx");
  await ping(10, 1000);
  const grown = (await total("rx")) - before;
  t.true(grown >= 10_420 && grown < 13_000, `${grown}`);
  t.true((await total("tx")) > 10_420);
});

test.serial(
  "rates are those since the answer before, over a NIC that comes anew too",
  async (t) => {
    const rates: (InterfaceStats | undefined)[] = [];
    const request = { idOrName: "one", everyMs: 200 };
    let pings: Promise<string> | undefined;
    for await (const { pods } of rig.client.pods.stats(request)) {
      rates.push(pods[0]?.interfaces[0]);
      // Some 50 a second, of 1,042 bytes.
      pings ??= ping(60, 1000);
      if (rates.length === 6) break;
    }
    await pings;
    t.is(rates[0]?.rates, undefined);
    const [, , middle] = rates;
    const perSecond = middle?.rates?.rxBytesPerS ?? 0;
    t.true(perSecond > 5000 && perSecond < 500_000, `${perSecond}`);
    t.true((middle?.rates?.rxPacketsPerS ?? 0) > 5);

    const seen: (InterfaceStats | undefined)[] = [];
    const again = (async () => {
      await rig.client.pods.stop({ idOrName: "one", force: true });
      await rig.client.pods.start({ idOrName: "one" });
    })();
    let over = false;
    void again.finally(() => {
      over = true;
    });
    let after = 0;
    for await (const { pods } of rig.client.pods.stats({ idOrName: "one", everyMs: 100 })) {
      seen.push(pods[0]?.interfaces[0]);
      if (over && ++after === 3) break;
    }
    await again;
    t.true(
      seen.some((each) => each === undefined),
      "while it was stopped there was nothing to count",
    );
    for (const each of seen)
      for (const rate of Object.values(each?.rates ?? {}))
        if (typeof rate === "number") t.true(rate >= 0 && rate < 10_000_000, `${rate}`);
    t.true((await countersNow()).rxBytes < 100_000n, "counted from zero again");
  },
);

test.serial("a capture holds the ping that was sent, both ways, as tcpdump reads it", async (t) => {
  const { file, lost } = await captured({}, () => ping(3, 777));
  t.is(lost, 0n);
  const requests = await read(file, "icmp[icmptype] == icmp-echo");
  const replies = await read(file, "icmp[icmptype] == icmp-echoreply");
  t.is(requests.length, 3, requests.join("\n"));
  t.is(replies.length, 3);
  for (const line of [...requests, ...replies]) t.regex(line, /length 819: .*length 785/);
  t.regex(requests[0] ?? "", new RegExp(`> ${address.replaceAll(".", "\\.")}: ICMP echo request`));
  const at = Number(requests[0]?.split(" ")[0]);
  t.true(Math.abs(at - Date.now() / 1000) < 60);
});

test.serial("it ends after so many packets, each cut to so many bytes", async (t) => {
  const { file } = await captured({ maxPackets: 4n, snapBytes: 64 }, () => ping(6, 777));
  const lines = await read(file);
  t.is(lines.length, 4);
  t.is(file.length, 24 + lines.length * (16 + 64) - shortOf(file));
  t.regex(lines.join("\n"), /length 819/);
});

/** Bytes by which packets are shorter than they could have been. */
function shortOf(file: Buffer): number {
  let short = 0;
  for (let at = 24; at < file.length; at += 16 + file.readUInt32LE(at + 8))
    short += 64 - file.readUInt32LE(at + 8);
  return short;
}

test.serial(
  "a reader that does not read loses packets, learns how many, and holds nothing up",
  async (t) => {
    const read: bigint[] = [];
    using capture = stepwise();
    await capture.next();
    const memory = async (): Promise<number> =>
      Number(
        /VmRSS:\s+(\d+)/.exec(
          await rig.lab.host.run("cat", `/proc/${rig.daemon.process.pid}/status`),
        )?.[1],
      );
    const before = await memory();
    // Some 60 MB, and all of it is answered while no client reads.
    const flood = await rig.lab.host.run(
      "ping",
      "-n",
      "-q",
      "-f",
      "-c",
      "20000",
      "-s",
      "1400",
      address,
    );
    t.regex(flood, / 0% packet loss|\b0\.\d+% packet loss/);
    t.true((await memory()) - before < 30_000, "kilobytes");
    let lost = 0n;
    let bytes = 0;
    for (let i = 0; i < 100_000 && lost === 0n; i++) {
      const { value, done } = await capture.next();
      if (done === true) break;
      ({ lost } = value);
      bytes += value.data.length;
      read.push(lost);
    }
    t.true(lost > 1000n, `${lost} lost after ${bytes} bytes`);
    t.true(bytes < 30_000_000);
    await ping(1, 56);
  },
);

test.serial(
  "captures end with their pod's machine, and a pod without one is not captured",
  async (t) => {
    using capture = stepwise();
    await capture.next();
    await rig.client.pods.stop({ idOrName: "one", force: true });
    let result = await capture.next();
    while (result.done !== true) result = await capture.next();
    const refused = { code: "WRONG_STATE", message: 'Pod "one" is stopped instead of running' };
    await t.throwsAsync(
      captured({}, () => Promise.resolve()),
      refused,
    );
    await rig.client.pods.start({ idOrName: "one" });
    const { file } = await captured({}, () => ping(1, 56));
    t.is((await read(file, "icmp")).length, 2);
  },
);

test.serial(
  "a capture of one interface has nothing of another, and ends when its NIC leaves",
  async (t) => {
    const { pods } = rig.client;
    const request = { idOrName: "one", interface: { network: "default", guestName: "eth1" } };
    const { pod } = await pods.addInterface(request);
    const tap = pod?.interfaces[1]?.tap ?? "";
    const { file } = await captured({ guestName: "eth1" }, () => ping(2, 333));
    t.is((await read(file, "icmp")).length, 0);
    using capture = stepwise("eth1");
    await capture.next();
    const counted = async (): Promise<(string | undefined)[]> => {
      for await (const answer of pods.stats({ idOrName: "one" }))
        return answer.pods[0]?.interfaces.map((each) => each.tap) ?? [];
      return [];
    };
    t.true((await counted()).includes(tap));
    await pods.removeInterface({ idOrName: "one", guestName: "eth1" });
    let result = await capture.next();
    while (result.done !== true) result = await capture.next();
    t.deepEqual((await counted()).length, 1);
    await t.throwsAsync(
      captured({ guestName: "eth1" }, () => Promise.resolve()),
      {
        code: "INVALID_ARGUMENT",
        message: /no interface "eth1"/,
      },
    );
  },
);

test.serial("what is asked for wrongly is refused, and so is one capture too many", async (t) => {
  for (const [request, field] of [
    [{ guestName: "eth7" }, "guest_name"],
    [{ guestName: "no/name" }, "guest_name"],
    [{ snapBytes: 63 }, "snap_bytes"],
  ] as const) {
    const error = await t.throwsAsync(
      captured(request, () => Promise.resolve()),
      {
        code: "INVALID_ARGUMENT",
      },
    );
    t.like(error, { field });
  }
  using one = stepwise();
  using other = stepwise();
  for (const each of [one, other]) await each.next();
  const error = await t.throwsAsync(
    captured({}, () => Promise.resolve()),
    {
      code: "LIMIT_REACHED",
    },
  );
  t.like(error, { details: { limit: "limits.captures_per_caller" } });
  for (const everyMs of [1, 99, 4_000_000]) {
    const stream = rig.client.pods.stats({ everyMs })[Symbol.asyncIterator]();
    t.like(await t.throwsAsync(stream.next()), { code: "INVALID_ARGUMENT", field: "every_ms" });
  }
});

test.serial("from the command line: a file that tcpdump reads, a pipe, and a table", async (t) => {
  const path = join(rig.directory, "cli.pcap");
  const capture = { over: false };
  const captured = rig.daemon.podnet("capture", "one", "-w", path, "-c", "4").finally(() => {
    capture.over = true;
  });
  // Nothing reports when it has begun.
  while (!capture.over) await ping(4, 321);
  await captured;
  const text = await rig.lab.host.run("tcpdump", "-n", "-r", path);
  t.regex(text, /ICMP echo request.*length 329/);
  const shown = await rig.daemon.podnet("stats", "one");
  t.regex(shown, /^POD +INTERFACE +RX +PACKETS/m);
  t.regex(shown, /^one +eth0 +\d/m);
  const { pods } = JSON.parse(await rig.daemon.podnet("stats", "-o", "json")) as {
    pods: { name: string; interfaces: { rxBytes: string }[] }[];
  };
  t.true(Number(pods[0]?.interfaces[0]?.rxBytes) > 0);
});

test.serial("nothing of it is left", async (t) => {
  await rig.client.pods.delete({ idOrName: "one" });
  t.deepEqual(await rig.changes(), []);
});
