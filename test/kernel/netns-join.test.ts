import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import test from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import { openTap, type Tap } from "../../linux/tun.ts";
import { joinNamespace, leaveNamespace } from "../../network/tc-redirect/redirect.ts";
import type { TakenOver } from "../../network/tc-redirect/adopted.ts";
import { AttachmentSite, macOf } from "../lab/attachment-site.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();

let site: AttachmentSite;
const guestOf = (n: number): number => 100 + n;

test.before(async () => {
  site = await AttachmentSite.open();
  for (const n of [2, 3, 4, guestOf(2), guestOf(3)]) await site.container(n);
  for (const n of [2, 3, 4]) await site.attachments.ensure(site.fragment(n), signal);
});
test.after.always(() => site[Symbol.asyncDispose]());

const desired = (n: number) => ({
  netns: `/run/netns/${site.name(n)}`,
  link: "eth0",
  tap: `vm${n}` as IfName,
});

/** A machine: a namespace of its own behind a tap, set up by nothing but what was taken over. */
class Machine implements AsyncDisposable {
  readonly #relay: ChildProcess;
  readonly #own: Tap;
  readonly #nic: Tap;

  private constructor(own: Tap, nic: Tap) {
    this.#own = own;
    this.#nic = nic;
    const relay = `${import.meta.dirname}/../lab/frame-relay.ts`;
    const stdio = ["ignore", "inherit", "inherit", own.fd, nic.fd] as const;
    this.#relay = spawn(process.execPath, [relay], { stdio: [...stdio] });
  }

  static async boot(n: number, own: Tap, taken: TakenOver): Promise<Machine> {
    const guest = guestOf(n);
    const nic = withNetns(`/run/netns/${site.name(guest)}`, () => openTap("nic0" as IfName));
    const set = (words: string): Promise<string> => site.inside(guest, words);
    await set(`link set nic0 address ${taken.mac} mtu ${taken.mtu} up`);
    for (const prefix of taken.addresses) await set(`address add ${prefix} dev nic0 nodad`);
    for (const { destination, gateway } of taken.routes)
      await set(`route add ${destination}${gateway ? ` via ${gateway}` : ""} dev nic0`);
    for (const { address, mac } of taken.neighbours)
      await set(`neigh add ${address} lladdr ${mac} dev nic0`);
    return new Machine(own, nic);
  }

  pause(paused: boolean): void {
    this.#relay.kill(paused ? "SIGSTOP" : "SIGCONT");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#relay, "exit");
    this.#relay.kill("SIGKILL");
    await exited;
    await this.#own.close();
    await this.#nic.close();
  }
}

test.serial(
  "a machine is in a namespace what its link was, and nothing else answers for it",
  async (t) => {
    t.true(await site.reaches("host", "192.168.123.2"), "the namespace's own kernel");
    await site.inside(2, "neigh add 192.168.123.50 lladdr 02:00:00:00:00:50 dev eth0");
    await site.inside(2, "route add 10.9.0.0/16 dev eth0");
    const { tap, taken } = await joinNamespace(desired(2), signal);
    t.deepEqual(taken, {
      mac: macOf(2),
      mtu: 1400,
      addresses: site.fragment(2).addresses,
      routes: [
        { destination: "10.9.0.0/16" as Cidr },
        { destination: "0.0.0.0/0" as Cidr, gateway: "192.168.123.1" as Ip },
        { destination: "::/0" as Cidr, gateway: "fd00:123::1" as Ip },
      ],
      neighbours: [{ address: "192.168.123.50" as Ip, mac: "02:00:00:00:00:50" as never }],
    });
    {
      await using machine = await Machine.boot(2, tap, taken);
      await until("the machine", () => site.reaches(guestOf(2), "192.168.123.1"));
      for (const to of ["192.168.123.1", "192.168.123.4", "fd00:123::1", "fd00:123::4"])
        t.true(await site.reaches(guestOf(2), to), to);
      for (const to of ["192.168.123.2", "fd00:123::2"]) {
        t.true(await site.reaches("host", to), to);
        t.true(await site.reaches(4, to), to);
      }
      // Paused, it does not answer: that the namespace's kernel has the same addresses does not
      // show.
      machine.pause(true);
      t.false(await site.reaches("host", "192.168.123.2"));
      t.false(await site.reaches("host", "fd00:123::2"));
      t.true(await site.reaches("host", "192.168.123.4"));
      machine.pause(false);
      await until("the machine again", () => site.reaches("host", "192.168.123.2"));
      // The plugins that made the link find it as they made it.
      t.deepEqual(await site.attachments.check(site.fragment(2), signal), []);
    }
    await leaveNamespace(desired(2));
    t.true(await site.reaches("host", "192.168.123.2"), "the namespace's own kernel again");
    t.notRegex(await site.inside(2, "-o link show"), /vm2/);
  },
);

test.serial("two machines reach each other, each by a namespace of its own", async (t) => {
  const [two, three] = [
    await joinNamespace(desired(2), signal),
    await joinNamespace(desired(3), signal),
  ];
  {
    await using _first = await Machine.boot(2, two.tap, two.taken);
    await using _second = await Machine.boot(3, three.tap, three.taken);
    await until("the machines", () => site.reaches(guestOf(2), "192.168.123.3"));
    t.true(await site.reaches(guestOf(3), "fd00:123::2"));
    t.false(await site.reaches(guestOf(3), "192.168.123.77"));
    const neighbours = await site.inside(guestOf(2), "neigh show 192.168.123.3");
    t.true(neighbours.includes(macOf(3)));
  }
  await leaveNamespace(desired(2));
  await leaveNamespace(desired(3));
});

test.serial(
  "a join that a crash cut short is taken up anew; leaving twice is as good as once",
  async (t) => {
    const { tap } = await joinNamespace(desired(3), signal);
    // What a podnetd that was killed leaves: the tap goes with it, the redirection stays.
    await tap.close();
    t.false(await site.reaches("host", "192.168.123.3"));
    await site.inside(3, "link set eth0 arp off");
    const again = await joinNamespace(desired(3), signal);
    await site.inside(3, "link set eth0 arp on");
    t.like(again.taken, { mac: macOf(3), noArp: true });
    await again.tap.close();
    await leaveNamespace(desired(3));
    await leaveNamespace(desired(3));
    // (Who asked in vain goes on asking for a while.)
    await until("the namespace's own kernel", () => site.reaches("host", "192.168.123.3"));
    t.pass();
  },
);

test.serial(
  "a second machine is refused a namespace, and takes nothing from the first",
  async (t) => {
    const { tap } = await joinNamespace(desired(3), signal);
    const second = { ...desired(3), tap: "vm33" as IfName };
    await t.throwsAsync(joinNamespace(second, signal), { code: "TAP_CONFLICT" } as never);
    // As what fails is undone.
    await leaveNamespace(second);
    t.false(
      await site.reaches("host", "192.168.123.3"),
      "nothing answers for a machine that is off",
    );
    await tap.close();
    await leaveNamespace(desired(3));
    await until("the namespace's own kernel", () => site.reaches("host", "192.168.123.3"));
  },
);

test.serial("a foreign tap or tun in a namespace keeps no link from its machine", async (t) => {
  await site.inside(3, "tuntap add dev vpn0 mode tun");
  await site.inside(3, "tuntap add dev vpn1 mode tap");
  const { tap } = await joinNamespace(desired(3), signal);
  await tap.close();
  await leaveNamespace(desired(3));
  await until("the namespace's own kernel", () => site.reaches("host", "192.168.123.3"));
  for (const name of ["vpn0", "vpn1"]) await site.inside(3, `link del ${name}`);
  t.notRegex(await site.inside(3, "-o link show"), /tun|vpn/);
});

test.serial("what cannot be joined is said, and nothing is left of the attempt", async (t) => {
  const missing = { ...desired(3), link: "eth7" };
  await t.throwsAsync(joinNamespace(missing, signal), { code: "INTERFACE_NOT_FOUND" } as never);
  await t.throwsAsync(joinNamespace({ ...desired(3), link: "lo" }, signal), {
    code: "INTERFACE_NOT_FOUND",
  } as never);
  const gone = { ...desired(3), netns: "/run/netns/none" };
  await t.throwsAsync(joinNamespace(gone, signal), { code: "NETNS_UNUSABLE" } as never);
  await leaveNamespace(gone);
  await site.inside(3, "link add vm3 type bridge");
  await t.throwsAsync(joinNamespace(desired(3), signal), { code: "SYSCALL_FAILED" } as never);
  await leaveNamespace(desired(3));
  await site.inside(3, "link del vm3");
  t.true(await site.reaches("host", "192.168.123.3"));
});

test.serial("many joins and leaves leave nothing", async (t) => {
  const rounds = process.env["PODNET_TEST_FULL"] === "1" ? 1000 : 40;
  const held = (): number => readdirSync("/proc/self/fd").length;
  const before = [held(), await site.inside(3, "-o link show")] as const;
  for (let i = 0; i < rounds; i++) {
    const { tap } = await joinNamespace(desired(3), signal);
    await leaveNamespace(desired(3));
    await tap.close();
  }
  const links = await site.inside(3, "-o link show");
  const bare = (text: string): string => text.replaceAll(/qlen \d+|^\d+: /gm, "");
  t.is(held(), before[0]);
  t.is(bare(links), bare(before[1]));
  t.true(await site.reaches("host", "192.168.123.3"));
  t.deepEqual(await site.attachments.check(site.fragment(3), signal), []);
});
