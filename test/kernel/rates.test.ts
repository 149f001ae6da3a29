import test from "ava";
import { run } from "../../linux/processes/command.ts";
import type { PortRates } from "../../network/model/rates.ts";
import { AttachmentSite } from "../lab/attachment-site.ts";
import { measure } from "../lab/iperf.ts";
import { ip } from "../lab/network.ts";

const { signal } = new AbortController();
const full = process.env["PODNET_TEST_FULL"] === "1";
/** The whole run measures as long as the promise says; a short one shows what is far off. */
const seconds = full ? 10 : 2;
const tolerance = full ? 0.05 : 0.15;

/** Bits a second: what a busy machine brings easily. */
const bandwidth = 50e6;
const packets = 5000;

let site: AttachmentSite;
test.before(async () => {
  site = await AttachmentSite.open();
  await site.container(2);
});
test.after.always(() => site[Symbol.asyncDispose]());

const limit = async (rates: PortRates | undefined): Promise<void> => {
  const fragment = site.fragment(2, rates === undefined ? {} : { rates });
  await site.attachments.ensure(fragment, signal);
};

const address = "192.168.123.2";
const measured = (direction: keyof PortRates, more: object, lasting = seconds) =>
  measure({
    server: site.name(2),
    client: undefined,
    address,
    back: direction === "fromGuest",
    seconds: lasting,
    ...more,
  });
/** Measurements, of which one shows what a limit lets through on a machine that is busy. */
const attempts = 6;

/**
 * How far what arrives is from a limit. A machine that is busy elsewhere sends less, and measures
 * again; more than the limit is never by chance.
 */
async function deviation(
  of: "bits" | "packets",
  wanted: number,
  direction: keyof PortRates,
  more: object,
): Promise<number> {
  let off = Number.NEGATIVE_INFINITY;
  for (let attempt = 0; attempt < attempts && off < -tolerance; attempt++)
    off = Math.max(off, (await measured(direction, more))[of] / wanted - 1);
  return off;
}

/** What arrives without a limit, at least so much, or the most of some measurements. */
async function free(
  of: "bits" | "packets",
  enough: number,
  direction: keyof PortRates,
  more: object,
): Promise<number> {
  let most = 0;
  for (let attempt = 0; attempt < attempts && most <= enough; attempt++)
    most = Math.max(most, (await measured(direction, more, 1))[of]);
  return most;
}

const udp = { udp: { bitsPerSecond: 3 * bandwidth } };
const small = { udp: { bitsPerSecond: 4 * packets * 64 * 8, bytes: 64 } };
const directions = ["toGuest", "fromGuest"] as const;
const other = { toGuest: "fromGuest", fromGuest: "toGuest" } as const;

for (const direction of directions)
  test.serial(
    `a bandwidth holds ${direction}, for TCP and UDP, and the other way has none`,
    async (t) => {
      // The control: without a limit far more arrives.
      await limit(undefined);
      const most = await free("bits", 4 * bandwidth, direction, {});
      t.true(most > 4 * bandwidth, `${most} bits a second without a limit`);
      await limit({ [direction]: { bitsPerSecond: bandwidth } });
      for (const [protocol, more] of Object.entries({ tcp: {}, udp })) {
        const off = await deviation("bits", bandwidth, direction, more);
        t.log(`${direction} ${protocol}: ${(off * 100).toFixed(1)} %`);
        t.true(Math.abs(off) <= tolerance, `${protocol} is off by ${off}`);
      }
      const back = await free("bits", 4 * bandwidth, other[direction], {});
      t.true(back > 4 * bandwidth, `${back} bits a second the other way`);
    },
  );

for (const direction of directions)
  test.serial(`a packet rate holds ${direction}, whatever the packets' size`, async (t) => {
    await limit(undefined);
    const most = await free("packets", 2 * packets, direction, small);
    t.true(most > 2 * packets, `${most} packets a second without a limit`);
    await limit({ [direction]: { packetsPerSecond: packets } });
    for (const more of [small, { udp: { bitsPerSecond: 4 * packets * 512 * 8, bytes: 512 } }]) {
      const off = await deviation("packets", packets, direction, more);
      t.log(`${direction} ${more.udp.bytes} bytes: ${(off * 100).toFixed(1)} %`);
      t.true(Math.abs(off) <= tolerance, `off by ${off}`);
    }
  });

test.serial("of a bandwidth and a packet rate the lower one decides", async (t) => {
  await limit({ toGuest: { bitsPerSecond: bandwidth, packetsPerSecond: packets } });
  const few = await deviation("packets", packets, "toGuest", small);
  t.true(Math.abs(few) <= tolerance, `packets are off by ${few}`);
  await limit({ toGuest: { bitsPerSecond: bandwidth / 10, packetsPerSecond: packets } });
  const slow = await deviation("bits", bandwidth / 10, "toGuest", udp);
  t.true(Math.abs(slow) <= tolerance, `bits are off by ${slow}`);
});

test.serial(
  "a limit changes while traffic passes, and loses no packet of a slow stream",
  async (t) => {
    await limit({ toGuest: { bitsPerSecond: bandwidth }, fromGuest: { bitsPerSecond: bandwidth } });
    const argv = ["ping", "-q", "-i", "0.005", "-c", "300", "-W", "2", address] as const;
    const echoes = run(argv);
    const rates: PortRates[] = [
      { toGuest: { bitsPerSecond: 2 * bandwidth }, fromGuest: { bitsPerSecond: bandwidth / 2 } },
      { toGuest: { packetsPerSecond: packets }, fromGuest: { bitsPerSecond: bandwidth } },
      {
        toGuest: { bitsPerSecond: bandwidth, packetsPerSecond: packets },
        fromGuest: { packetsPerSecond: packets },
      },
      { toGuest: { bitsPerSecond: bandwidth }, fromGuest: { bitsPerSecond: bandwidth } },
    ];
    for (let round = 0; round < 3; round++) for (const each of rates) await limit(each);
    t.regex((await echoes).stdout, / 0% packet loss/);
  },
);

test.serial("no limit any more leaves no queue, no filter and no link", async (t) => {
  await limit({ toGuest: { bitsPerSecond: bandwidth }, fromGuest: { packetsPerSecond: packets } });
  t.regex(await ip("-o link show pic2"), /group 73/);
  await limit(undefined);
  t.notRegex(await ip("-o link show"), /pic2/);
  const { stdout: queues } = await run(["tc", "qdisc", "show", "dev", "pc2"]);
  t.notRegex(queues, /tbf/);
  const { stdout: filters } = await run(["tc", "filter", "show", "dev", "pc2", "ingress"]);
  t.is(filters.trim(), "");
  t.true(await site.reaches(2, "192.168.123.1"));
});

test.serial("a foreign link with the name of ours is refused and stays", async (t) => {
  await limit(undefined);
  await ip("link add pic2 type bridge");
  await t.throwsAsync(limit({ fromGuest: { bitsPerSecond: bandwidth } }), {
    code: "NAME_IN_USE",
  } as never);
  t.regex(await ip("-d -o link show pic2"), /bridge/);
  await ip("link del pic2");
});
