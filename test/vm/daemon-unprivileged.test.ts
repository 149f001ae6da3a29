import { chownSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { unprivileged, unprivilegedWith, user } from "../lab/unprivileged.ts";

const firewalls = {
  "CAP_NET_ADMIN alone, with iptables-nft and no confinement, brings up a pod and takes all down again":
    'iptables_variant = "nft"\n',
  "CAP_NET_ADMIN alone, with nftables and no confinement, brings up a pod and takes all down again":
    'firewall = "nftables"\n',
};

for (const [title, firewall] of Object.entries(firewalls))
  test.serial(title, async (t) => {
    await using lab = await openLab(`cap${process.pid}-`);
    const directory = mkdtempSync(path.join(tmpdir(), "podnet-cap-"));
    chownSync(directory, user, user);
    const start = (config: string) =>
      startPodnetd({
        machine: lab.host,
        directory,
        config: `${config}[qemu]\nconfine = "off"\n`,
        through: unprivileged,
      });

    // What legacy rules there are is for root to know, and to guess that there are none could be
    // wrong.
    await lab.host.run("iptables-legacy", "-L", "-n");
    if (!firewall.includes("nftables"))
      await t.throwsAsync(start(""), {
        message: /FIREWALL_FAILED.*iptables_variant = \\"nft\\"/s,
      });

    await lab.host.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=0");
    await using daemon = await start(firewall);
    await daemon.podnet("create", "--name", "one");
    await lab.host.ping("192.168.123.2", 2);
    t.regex(
      await daemon.podnet("exec", "one", "--", "ping", "-c1", "-W2", "203.0.113.10"),
      /1 received|1 packets received/,
    );
    t.regex(await daemon.podnet("verify", "one"), /all as recorded/);
    const { vm } = JSON.parse(await daemon.podnet("get", "one", "-o", "json")) as {
      vm: { pid: number };
    };
    t.is(statSync(`/proc/${vm.pid}`).uid, user);
    await daemon.podnet("down", "--yes");
    t.notRegex(await lab.host.run("ip", "-o", "link"), /hyper0/);
    t.notRegex(await lab.host.run("iptables-save"), /podnet/);
    t.is(await lab.host.run("nft", "list", "tables", "inet"), "");
    t.is((await lab.host.run("cat", "/proc/sys/net/ipv4/ip_forward")).trim(), "0");
    rmSync(directory, { recursive: true, force: true });
  });

test.serial(
  "CAP_NET_ADMIN and CAP_NET_RAW see what iptables-legacy holds: it is written where it is in use, once its lock is shared",
  async (t) => {
    await using lab = await openLab(`leg${process.pid}-`);
    const directory = mkdtempSync(path.join(tmpdir(), "podnet-cap-"));
    chownSync(directory, user, user);
    const start = () =>
      startPodnetd({
        machine: lab.host,
        directory,
        config: '[qemu]\nconfine = "off"\n',
        through: unprivilegedWith("net_admin", "net_raw"),
      });
    const firewall = (daemon: { podnet(...args: readonly string[]): Promise<string> }) =>
      daemon
        .podnet("info", "-o", "json")
        .then((text) => (JSON.parse(text) as { firewall: string }).firewall);
    // Looked at once, its tables are there, and empty.
    await lab.host.run("iptables-legacy", "-L", "-n");
    await lab.host.run("chmod", "600", "/run/xtables.lock");
    const first = await start();
    t.is(await firewall(first), "iptables-nft");
    await first.podnet("down", "--yes");
    await lab.host.run("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP");
    const refused = await t.throwsAsync(start());
    t.regex(refused.message, /FIREWALL_FAILED[^\n]*"hint":"[^"]*share-xtables-lock podnet"/);
    const share = path.resolve(import.meta.dirname, "../../daemon/share-xtables-lock");
    await lab.host.run(share, `${user}`);
    await using second = await start();
    t.is(await firewall(second), "iptables-legacy");
    await second.podnet("down", "--yes");
    rmSync(directory, { recursive: true, force: true });
  },
);
