import test from "ava";
import { openHosts } from "../lab/hosts.ts";
import { underlayAddress } from "../lab/underlay.ts";
import { until } from "../lab/until.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
/** Addresses that the host is given, one after the other. */
const moves = full ? 30 : 2;

test("a host whose only way to etcd is by the address that it loses moves its lease to the next one", async (t) => {
  t.timeout(full ? 600_000 : 120_000);
  await using lab = await openHosts({ kinds: ["podnet"], members: 3 });
  const [host] = lab.hosts as [(typeof lab.hosts)[0] & {}];
  await host.start();
  const key = await until("its lease", () => lab.leaseOf(host));
  const ip = (words: string): Promise<string> => host.machine.run("ip", ...words.split(" "));
  // Of the overlay's families only; nothing is reached by it.
  await ip("-6 addr flush dev eth0 scope global");
  const isMissed = async (): Promise<boolean> => {
    const { items } = JSON.parse(await host.podnetd.podnet("overlay", "list", "-o", "json")) as {
      readonly items: readonly { readonly staleMs?: string }[];
    };
    return items[0]?.staleMs !== undefined;
  };
  const names = async (address: string): Promise<string | undefined> =>
    [...(await lab.leases())].find(([, value]) => value.includes(`"PublicIP":"${address}"`))?.[0];
  let address = host.address;
  for (let move = 1; move <= moves; move++) {
    const next = underlayAddress(100 + move);
    await ip(`addr del ${address}/24 dev eth0`);
    // Now and then long enough for everybody to have given the old connections up.
    if (move % 2 === 0) await until("etcd to be missed", isMissed);
    await ip(`addr add ${next}/24 dev eth0`);
    t.is(
      await until(
        `a lease of ${next}`,
        () => names(next),
        30_000,
        () => host.log(),
      ),
      key,
    );
    await until("etcd to be heard", async () => !(await isMissed()));
    await until("packets to leave from there", async () =>
      (await ip("-d link show flannel.1")).includes(` local ${next} `),
    );
    address = next;
  }
  t.is((await lab.leases()).size, 1);
});
