import test from "ava";
import { parseIp } from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import {
  type AskEcho,
  type AskRefusal,
  probeChecksum,
  probePath,
} from "../../daemon/overlays/probes/tunnel-probes.ts";
import { EchoSocket } from "../../linux/sockets/echo-socket.ts";
import { leaveChecksums, leavesChecksums } from "../../linux/ethtool.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import { isDatagramRefused } from "../../linux/sockets/refused-datagram.ts";
import { overlayChangeText } from "../../network/overlay/change.ts";
import type { OverlayDesired } from "../../network/model/overlay.ts";
import { openOverlayHosts, type OverlayHost, overlayOf, vxlan } from "../lab/overlay.ts";

const { signal } = new AbortController();
const patient = { timeoutMs: 5000 };
/** For what is not answered. */
const brief = { timeoutMs: 50 };

const inHost = <T>(host: OverlayHost, body: () => T extends PromiseLike<unknown> ? never : T): T =>
  withNetns(`/run/netns/${host.name}`, body);

/** A socket is of the namespace it is born in: that is before anything is waited for. */
const refusalFrom =
  (host: OverlayHost): AskRefusal =>
  async (...args) => {
    let asked: Promise<boolean> | undefined;
    inHost(host, () => {
      asked = isDatagramRefused(...args);
    });
    return (await asked) ?? false;
  };

let lab: Awaited<ReturnType<typeof openOverlayHosts>>;
let first: OverlayHost;
let second: OverlayHost;

test.before(async () => {
  lab = await openOverlayHosts(2);
  [first, second] = lab.hosts as [OverlayHost, OverlayHost];
  for (const host of lab.hosts)
    await host.overlays.ensure(
      overlayOf(host.n, { families: [4, 6], peers: [1, 2].filter((n) => n !== host.n) }),
      signal,
    );
});

test.after.always(() => lab?.[Symbol.asyncDispose]());

test.serial(
  "peers are asked through the tunnel, of both families and many at once; who is not there does not answer",
  async (t) => {
    using four = inHost(first, () => new EchoSocket(4));
    using six = inHost(first, () => new EchoSocket(6));
    const asked = Array.from({ length: 200 }, () => four.ask(parseIp("10.77.2.0"), patient));
    for (const answer of await Promise.all(asked)) t.is(answer.kind, "answered");
    for (const address of ["10.77.2.1", "192.0.2.2"])
      t.is((await four.ask(parseIp(address), patient)).kind, "answered", address);
    for (const address of ["fd00:77:0:2::", "2001:db8:2::2"])
      t.is((await six.ask(parseIp(address), patient)).kind, "answered", address);
    t.deepEqual(await four.ask(parseIp("10.77.2.99"), brief), { kind: "silent" });
    t.deepEqual(await four.ask(parseIp("203.0.113.1"), brief), {
      kind: "unsent",
      errno: "ENETUNREACH",
    });
    t.deepEqual(await four.ask(parseIp("fd00::1"), brief), {
      kind: "unsent",
      errno: "EAFNOSUPPORT",
    });
    const waiting = four.ask(parseIp("10.77.2.99"), patient);
    four.close();
    t.deepEqual(await waiting, { kind: "silent" });
    t.deepEqual(await four.ask(parseIp("10.77.2.0"), patient), { kind: "unsent", errno: "EBADF" });
  },
);

test.serial(
  "an underlay that carries less than its links say is found out, to the byte",
  async (t) => {
    using four = inHost(first, () => new EchoSocket(4));
    using six = inHost(first, () => new EchoSocket(6));
    const ask = four.ask.bind(four);
    const address = parseIp("10.77.2.0");
    t.deepEqual(await probePath(ask, address, { mtu: 1450, ...patient }), { kind: "whole" });
    t.deepEqual(
      await probePath(six.ask.bind(six), parseIp("fd00:77:0:2::"), { mtu: 1430, ...patient }),
      { kind: "whole" },
    );
    // Longer than the host's own device takes.
    t.deepEqual(await ask(address, { bytes: 1451, ...brief }), { kind: "too-big", mtu: 0 });
    // Frames that are longer than this are lost at the other end: 1400 of IP, 50 of which are the
    // tunnel's.
    await second.run("nft add table netdev few");
    await second.run(
      "nft add chain netdev few in { type filter hook ingress device eth0 priority 0 ; }",
    );
    await second.run("nft add rule netdev few in ip length > 1400 drop");
    t.teardown(() => second.run("nft delete table netdev few"));
    const hurried: AskEcho = (to, { bytes = 0 }) =>
      ask(to, { bytes, ...(bytes > 1350 ? brief : patient) });
    t.deepEqual(await probePath(hurried, address, { mtu: 1450, ...patient }), {
      kind: "less",
      carries: 1350,
    });
  },
);

test.serial("a router that says what fits is believed", async (t) => {
  // Behind the first host's pod is a way that takes 1,300 bytes.
  await second.run("ip link set pod0 mtu 1300");
  t.teardown(() => second.run("ip link set pod0 mtu 1500"));
  using four = inHost(first, () => new EchoSocket(4));
  using six = inHost(first, () => new EchoSocket(6));
  const reported = await four.ask(parseIp("10.77.2.2"), { bytes: 1400, ...patient });
  t.deepEqual(reported, { kind: "too-big", mtu: 1300 });
  const reported6 = await six.ask(parseIp("fd00:77:0:2::2"), { bytes: 1400, ...patient });
  t.deepEqual(reported6, { kind: "too-big", mtu: 1300 });
  t.is((await four.ask(parseIp("10.77.2.2"), { bytes: 1300, ...patient })).kind, "answered");
});

/**
 * What stands in a datagram's checksum while it is left to the card: the sum of the addresses, the
 * protocol and the length.
 */
function unfinished(from: string, to: string, length: number): string {
  const words = [from, to].flatMap((ip) => {
    const [a = 0, b = 0, c = 0, d = 0] = ip.split(".").map(Number);
    return [a * 256 + b, c * 256 + d];
  });
  let sum = [...words, 17, length].reduce((a, b) => a + b, 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return `0x${sum.toString(16)}`;
}

test.serial(
  "checksums that are damaged on their way are found out, and no longer are when the tunnel's device does not leave them to others",
  async (t) => {
    const device = parseIfName("flannel.1");
    const address = parseIp("10.77.2.0");
    const ask = refusalFrom(first);
    const probe = (hurried: (checksum: boolean) => boolean = () => false) =>
      probeChecksum(
        (to, options) => ask(to, { ...options, ...(hurried(options.checksum) ? brief : patient) }),
        address,
        { ...patient, signal },
      );
    // Hosts refuse as often as they are asked to.
    for (const host of lab.hosts) await host.run("sysctl -qw net.ipv4.icmp_ratelimit=0");
    t.is(await probe(), "sound");
    t.true(inHost(first, () => leavesChecksums(device)));
    // A card that leaves them as they are: what was left to it arrives unfinished, and is dropped.
    const left = unfinished("10.77.1.0", "10.77.2.0", 72);
    await second.run("nft add table ip card");
    await second.run("nft add chain ip card in { type filter hook prerouting priority -500 ; }");
    await second.run(`nft add rule ip card in iifname flannel.1 udp checksum ${left} counter drop`);
    t.is(await probe((checksum) => checksum), "damaged");
    inHost(first, () => leaveChecksums(device, false));
    t.false(inHost(first, () => leavesChecksums(device)));
    t.is(await probe(), "sound");
    // Nothing is refused at all: the reason is unknown.
    await second.run("nft add rule ip card in iifname flannel.1 udp dport 49152-65535 drop");
    t.is(await probe(() => true), "unknown");
    await second.run("nft delete table ip card");
    inHost(first, () => leaveChecksums(device, true));
    t.true(inHost(first, () => leavesChecksums(device)));
  },
);

test.serial(
  "a tunnel's device sums by itself when asked to, also after an outside change or when it is made anew",
  async (t) => {
    const desired = (txChecksum: boolean): OverlayDesired =>
      overlayOf(1, { families: [4, 6], peers: [2], backend: { ...vxlan, txChecksum } });
    const made = async (txChecksum: boolean): Promise<readonly string[]> =>
      (await first.overlays.ensure(desired(txChecksum), signal)).changes.map(overlayChangeText);
    const left = (): boolean[] =>
      ["flannel.1", "flannel-v6.1"].map((name) =>
        inHost(first, () => leavesChecksums(parseIfName(name))),
      );
    const off = ["link ~ flannel.1 tx off", "link ~ flannel-v6.1 tx off"];
    t.deepEqual(await made(true), []);
    t.deepEqual(await made(false), off);
    t.deepEqual(left(), [false, false]);
    t.deepEqual(await made(false), [], "twice is once");
    inHost(first, () => leaveChecksums(parseIfName("flannel.1"), true));
    t.deepEqual(await made(false), off.slice(0, 1));
    await first.run("ip link del flannel-v6.1");
    const again = await made(false);
    t.true(again.includes("link ~ flannel-v6.1 tx off"));
    t.true(
      again.indexOf("link ~ flannel-v6.1 tx off") < again.indexOf("link ~ flannel-v6.1 up"),
      again.join("\n"),
    );
    t.deepEqual(left(), [false, false]);
    // Nothing is said: it stays as it is.
    const silent = overlayOf(1, { families: [4, 6], peers: [2] });
    t.deepEqual((await first.overlays.ensure(silent, signal)).changes, []);
    t.deepEqual(await made(true), ["link ~ flannel.1 tx on", "link ~ flannel-v6.1 tx on"]);
  },
);

test.serial("a link that is not there has no checksums", (t) => {
  const nowhere = parseIfName("nowhere0");
  for (const call of [() => void leavesChecksums(nowhere), () => leaveChecksums(nowhere, false)])
    t.throws(() => inHost(first, call), { code: "SYSCALL_FAILED", message: /ENODEV/ });
});
