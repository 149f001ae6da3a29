import path from "node:path";
import test from "ava";
import { snippets } from "../docs/snippets.ts";
import { meet, openHosts } from "../lab/hosts.ts";
import { until } from "../lab/until.ts";

const top = path.resolve(import.meta.dirname, "../..");

test.serial("a host moves from flanneld to podnetd and back, as the page says", async (t) => {
  t.timeout(240_000);
  await using lab = await openHosts({ kinds: ["flannel", "flannel"], masquerade: true });
  const [a, b] = lab.hosts as [(typeof lab.hosts)[0], (typeof lab.hosts)[0]];
  await Promise.all([a.start(), b.start()]);
  const containers = [await a.container(), await b.container()] as const;
  await meet(containers);
  const lease = await lab.leaseOf(a);
  const value = (await lab.leases()).get(lease ?? "");
  const rules = (): Promise<string> => a.machine.run("iptables-save");
  for (const comment of ["flanneld masq", "flanneld forward"])
    t.true((await rules()).includes(comment), comment);

  await a.end();
  a.kind = "podnet";
  await a.start();
  t.is((await a.joined()).subnet, `${lease?.replace(/0-(\d+)$/, "1/$1")}`);
  t.is(await lab.leaseOf(a), lease);
  t.is((await lab.leases()).get(lease ?? ""), value, "the device has its MAC");
  const page = snippets().filter(({ where }) => where === "flannel");
  t.deepEqual([...new Set(page.map((block) => block.page))], ["docs/how-to/from-flannel.md"]);
  const env = [
    `PATH=${top}/bin:${process.env["PATH"]}`,
    `PODNET_SOCKET=${a.podnetd.socket}`,
  ] as const;
  const run = (block = 0): Promise<string> =>
    a.machine.run("env", ...env, "sh", "-euxc", page[block]?.commands.join("\n") ?? "exit 1");
  await t.notThrowsAsync(run());
  t.notRegex(await rules(), /FLANNEL|flanneld/);
  await meet(containers);
  await t.notThrowsAsync(run(1));
  await meet([await a.container(), containers[1]]);
  t.is(page.length, 2, "every block is run");

  await a.end();
  a.kind = "flannel";
  await a.start();
  await until(
    "flanneld to have its lease",
    () => a.log().includes("ready "),
    30_000,
    () => a.log(),
  );
  t.is(await lab.leaseOf(a), lease);
  t.is((await lab.leases()).get(lease ?? ""), value);
});
