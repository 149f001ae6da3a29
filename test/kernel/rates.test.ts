import test from "ava";
import { run } from "../../linux/command.ts";
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
      const free = await measured(direction, {}, 1);
      t.true(free.bits > 4 * bandwidth, `${free.bits} bits a second without a limit`);
      await limit({ [direction]: { bitsPerSecond: bandwidth } });
      for (const [protocol, more] of Object.entries({ tcp: {}, udp })) {
        const { bits } = await measured(direction, more);
        const off = bits / bandwidth - 1;
        t.log(`${direction} ${protocol}: ${(off * 100).toFixed(1)} %`);
        t.true(Math.abs(off) <= tolerance, `${protocol} is ${bits} bits a second`);
      }
      const unlimited = await measured(other[direction], {}, 1);
      t.true(unlimited.bits > 4 * bandwidth, `${unlimited.bits} bits a second the other way`);
    },
  );

for (const direction of directions)
  test.serial(`a packet rate holds ${direction}, whatever the packets' size`, async (t) => {
    await limit(undefined);
    const free = await measured(direction, small, 1);
    t.true(free.packets > 2 * packets, `${free.packets} packets a second without a limit`);
    await limit({ [direction]: { packetsPerSecond: packets } });
    for (const more of [small, { udp: { bitsPerSecond: 4 * packets * 512 * 8, bytes: 512 } }]) {
      const arrived = await measured(direction, more);
      const off = arrived.packets / packets - 1;
      t.log(`${direction} ${more.udp.bytes} bytes: ${(off * 100).toFixed(1)} %`);
      t.true(Math.abs(off) <= tolerance, `${arrived.packets} packets a second`);
    }
  });

test.serial("of a bandwidth and a packet rate the lower one decides", async (t) => {
  await limit({ toGuest: { bitsPerSecond: bandwidth, packetsPerSecond: packets } });
  const { packets: few } = await measured("toGuest", small);
  t.true(Math.abs(few / packets - 1) <= tolerance, `${few} packets a second`);
  await limit({ toGuest: { bitsPerSecond: bandwidth / 10, packetsPerSecond: packets } });
  const { bits } = await measured("toGuest", udp);
  t.true(Math.abs(bits / (bandwidth / 10) - 1) <= tolerance, `${bits} bits a second`);
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
