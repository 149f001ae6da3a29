import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";

const snapshot = path.resolve(import.meta.dirname, "../../scripts/host-snapshot");

/** What `diff` shows of two snapshots of a machine of its own, with a change in between. */
async function seen(change: string): Promise<string> {
  // The script and its snapshots go to /mnt: /tmp is hidden, for other tests use it, and a checkout
  // may be below it.
  const script = `mount -n -t tmpfs tmpfs /mnt && cp "$0" /mnt/snapshot &&
    mount -n -t tmpfs tmpfs /run && mount -n -t tmpfs tmpfs /tmp &&
    ip link set dev lo up && ip link add name here type bridge && ip link set dev here addrgenmode none &&
    ip link set dev here up || exit 99
    /mnt/snapshot >/mnt/before && [ -s /mnt/before ] || exit 97
    ${change} || exit 98
    /mnt/snapshot >/mnt/after || exit 97
    diff /mnt/before /mnt/after || true`;
  const argv = ["--net", "--mount", "sh", "-c", script, snapshot];
  return (await promisify(execFile)("unshare", argv)).stdout;
}

test("nothing changed is nothing seen", async (t) => {
  t.is(await seen("true"), "");
});

const rule = "-A FORWARD -s 192.0.2.0/24 -j DROP";
const changes: readonly (readonly [what: string, change: string, sign: RegExp])[] = [
  ["a link", "ip link add name more type bridge", /> .* more: /],
  ["a link's state", "ip link set dev here down", /> .* here: /],
  ["an address", "ip address add 192.0.2.1/24 dev here", /> .*192\.0\.2\.1\/24/],
  ["a route", "ip route add 192.0.2.0/24 dev here", /> 192\.0\.2\.0\/24/],
  ["an IPv6 route", "ip route add 2001:db8::/64 dev here", /> 2001:db8::\/64/],
  ["a routing rule", "ip rule add fwmark 7 lookup 7", /fwmark 0x7/],
  ["a network namespace", "ip netns add more", /> more/],
  ...["iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"].map(
    (program) =>
      [
        `a rule of ${program}`,
        `${program} ${program.startsWith("ip6") ? rule.replace("192.0.2.0/24", "2001:db8::/64") : rule}`,
        /> -A FORWARD -s .* -j DROP/,
      ] as const,
  ),
  ["forwarding", "sysctl -qw net.ipv4.ip_forward=1", /> ipv4\/ip_forward 1/],
  ["a file in /run", "touch /run/more", /> more f/],
  ["a file of ours in /tmp", "mkdir /tmp/podnet-more", /> podnet-more d/],
  ["a file's rights in /run", "chmod 700 /run", /> +d 700/],
];

for (const [what, change, sign] of changes) {
  test(`a snapshot of the host shows ${what}`, async (t) => {
    t.regex(await seen(change), sign);
  });
}
