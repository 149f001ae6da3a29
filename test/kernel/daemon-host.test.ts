import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { NotifySocket } from "../lab/notify-socket.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";

interface Stage extends AsyncDisposable {
  readonly lab: Lab;
  start(config?: string, env?: Readonly<Record<string, string>>): Promise<Podnetd>;
  forwarding(): Promise<string>;
}

let stages = 0;

/** A lab whose podnetd keeps its state from start to start. No pod is ever made here. */
async function openStage(): Promise<Stage> {
  await using opened = new AsyncDisposableStack();
  const lab = opened.use(await openLab(`h${process.pid}-${++stages}-`));
  const directory = mkdtempSync(join(tmpdir(), "podnet-host-"));
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const held = opened.move();
  return {
    lab,
    start: async (config = "", env = {}) =>
      held.use(await startPodnetd({ machine: lab.host, directory, config, env })),
    forwarding: async () => (await lab.host.run("cat", "/proc/sys/net/ipv4/ip_forward")).trim(),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

for (const before of ["0", "1"]) {
  test(`ip_forward was ${before}: 1 while podnetd works, over its restart too, ${before} after down`, async (t) => {
    await using stage = await openStage();
    await stage.lab.host.run("sysctl", "-q", "-w", `net.ipv4.ip_forward=${before}`);
    const first = await stage.start();
    t.is(await stage.forwarding(), "1");
    await first.kill();
    t.is(await stage.forwarding(), "1");
    const second = await stage.start();
    await second.podnet("down", "--yes");
    t.is(await stage.forwarding(), before);
    t.notRegex(await stage.lab.host.run("ip", "-o", "link"), /hyper0/);
    t.notRegex(await stage.lab.host.run("iptables-save"), /HYPER|podnet/);
  });
}

test("a start warns of the chain of others that keeps pods from being reached, and of none where there is none", async (t) => {
  await using stage = await openStage();
  const { host } = stage.lab;
  const nftables = 'firewall = "nftables"\niptables_variant = "nft"\n';
  let read = 0;
  const warned = async (): Promise<readonly string[]> => {
    const daemon = await stage.start(nftables);
    await daemon.stop();
    const said = daemon.log().slice(read);
    read += said.length;
    return said.split("\n").filter((line) => line.includes("drops what is forwarded"));
  };
  t.deepEqual(await warned(), []);
  await host.run("iptables-nft", "-P", "FORWARD", "DROP");
  const [line = "", ...more] = await warned();
  t.deepEqual(more, []);
  const { level, msg, hint } = JSON.parse(line) as Record<string, string>;
  t.is(level, "warn");
  t.regex(msg ?? "", /^table ip filter, chain FORWARD drops what is forwarded to hyper0/);
  t.regex(hint ?? "", /iptables -I FORWARD -o hyper0 -j ACCEPT/);
});

test("info names the firewall that is in use", async (t) => {
  await using stage = await openStage();
  const { host } = stage.lab;
  // A foreign rule is in the variant that is not this system's own.
  await host.run("iptables-legacy", "-A", "INPUT", "-p", "udp", "--dport", "9", "-j", "DROP");
  const reported = async (config?: string): Promise<string> => {
    const daemon = await stage.start(config);
    using client = connectPodnet({ socket: daemon.socket });
    const { firewall } = await client.node.info({});
    await daemon.stop();
    return firewall;
  };
  t.is(await reported(), "iptables-legacy");
  t.regex(await host.run("iptables-legacy-save"), /HYPER/);
  t.is(await reported("disable_iptables = true\n"), "disabled");
  await host.run("iptables-nft", "-A", "INPUT", "-p", "udp", "--dport", "9", "-j", "DROP");
  t.is(await reported('iptables_variant = "nft"\n'), "iptables-nft");
  t.regex(await host.run("iptables-nft-save"), /HYPER/);
  // From one driver to the other, the one that went leaves nothing.
  t.is(await reported('firewall = "nftables"\niptables_variant = "nft"\n'), "nftables");
  t.notRegex(await host.run("iptables-nft-save"), /HYPER|podnet/);
  t.regex(await host.run("nft", "list", "tables"), /inet podnet$/m);
  t.is(await reported(), "nftables", "what was configured stays without a line");
  t.is(await reported('firewall = "iptables"\niptables_variant = "nft"\n'), "iptables-nft");
  t.regex(await host.run("iptables-nft-save"), /HYPER/);
  t.notRegex(await host.run("nft", "list", "tables"), /inet podnet$/m);
  t.is(await reported('firewall = "nftables"\n'), "nftables");
  t.is(await reported('firewall = "nftables"\ndisable_iptables = true\n'), "disabled");
  t.notRegex(await host.run("nft", "list", "tables"), /podnet/);
});

test("without libnftables podnetd does not start with it, says what to install, and goes on with iptables", async (t) => {
  await using stage = await openStage();
  const directory = mkdtempSync(join(tmpdir(), "podnet-host-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const hide = `mount -n --bind /dev/null "$(readlink -f /usr/lib/*/libnftables.so.1)" && exec "$@"`;
  const start = (config: string): Promise<Podnetd> =>
    startPodnetd({
      machine: stage.lab.host,
      directory,
      config,
      through: ["unshare", "--mount", "sh", "-c", hide, "sh"],
    });
  await t.throwsAsync(start('firewall = "nftables"\n'), {
    message: /PREFLIGHT_FAILED.*libnftables.*apt-get install libnftables1/s,
  });
  await using daemon = await start("");
  t.regex(await stage.lab.host.run("iptables-save"), /HYPER/);
  await daemon.stop();
});

test("a first start without iptables takes nftables, and keeps it when iptables is installed", async (t) => {
  await using stage = await openStage();
  const { host } = stage.lab;
  const directory = mkdtempSync(join(tmpdir(), "podnet-host-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const hide = `for program in $(which -a iptables-restore); do mount -n --bind /dev/null "$(readlink -f "$program")"; done; exec "$@"`;
  const hidden = { through: ["unshare", "--mount", "sh", "-c", hide, "sh"] } as const;
  for (const on of [hidden, {}]) {
    await using daemon = await startPodnetd({ machine: host, directory, config: "", ...on });
    t.regex(await host.run("nft", "list", "tables"), /inet podnet$/m);
    t.notRegex(await host.run("iptables-save"), /HYPER/);
    await daemon.stop();
  }
  await t.throwsAsync(
    startPodnetd({
      machine: host,
      directory,
      config: 'firewall = "iptables"\n',
      ...hidden,
    }),
    { message: /PREFLIGHT_FAILED.*iptables is not installed/s },
  );
});

test("a network of IPv6 alone forwards no IPv4", async (t) => {
  await using stage = await openStage();
  await stage.lab.host.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=0");
  const daemon = await stage.start('[network]\ncidr = "fd00:123::/64"\n');
  using client = connectPodnet({ socket: daemon.socket });
  t.true((await client.node.health({})).ok);
  const { networks } = await client.networks.list({});
  t.deepEqual(
    networks.map(({ masquerade }) => masquerade),
    [true],
  );
  t.is(await stage.forwarding(), "0");
  t.regex(await stage.lab.host.run("ip", "-6", "addr", "show", "dev", "hyper0"), /fd00:123::1\/64/);
});

test("whoever started it as a service hears when it is ready and when it ends", async (t) => {
  await using stage = await openStage();
  const address = join(mkdtempSync(join(tmpdir(), "podnet-notify-")), "notify");
  using manager = new NotifySocket(address);
  const daemon = await stage.start("", { NOTIFY_SOCKET: address });
  using client = connectPodnet({ socket: daemon.socket });
  await client.node.info({});
  const reported = manager.read();
  await daemon.stop();
  t.deepEqual([...reported, ...manager.read()], ["READY=1", "STOPPING=1"]);
});
