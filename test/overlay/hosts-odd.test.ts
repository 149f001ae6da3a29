import test from "ava";
import { hostGwOverlay, type HostsLab, openHosts } from "../lab/hosts.ts";
import type { OverlayLabHost } from "../lab/overlay-host.ts";
import { batch } from "../lab/underlay.ts";
import { until } from "../lab/until.ts";

// What leases of others, and what is left on the host, may be like alongside flannel's plainest
// case.

type Two = [OverlayLabHost, OverlayLabHost];

const open = (overlay?: Readonly<Record<string, unknown>>): Promise<HostsLab> =>
  openHosts({
    kinds: ["podnet", "flannel"],
    ...(overlay === undefined ? {} : { overlay }),
    podnetConfig: "drift_s = 1",
  });

const routes = ({ machine }: OverlayLabHost): Promise<string> => machine.run("ip", "route");

test.serial(
  "a host with two leases is reached in both subnets, after a restart as before",
  async (t) => {
    await using lab = await open();
    const [podnet, peer] = lab.hosts as Two;
    await Promise.all([podnet.start(), peer.start()]);
    const { subnet: ownSubnet } = await podnet.joined();
    await peer.joined();
    const inside = await podnet.container();
    const first = (await lab.leaseOf(peer)) ?? "";
    const value = (await lab.leases()).get(first) ?? "";
    const free = [240, 241].find(
      (n) => ![first, ownSubnet].some((text) => text.includes(`.${n}.`)),
    );
    const second = `10.77.${free}.0`;
    await lab.etcd.etcdctl("put", `${lab.prefix}/subnets/${second}-24`, value);
    await batch(peer.machine, [`addr add 10.77.${free}.9/32 dev lo`]);
    const both = [first.replace(/-24$/, ""), second];
    const all = async (): Promise<boolean> => {
      const shown = await routes(podnet);
      return both.every((base) => shown.includes(`${base}/24 via ${base} dev flannel.1`));
    };
    await until("both routes", all, 20_000, () => podnet.log());
    const reached = (): Promise<boolean> => inside.machine.reaches(`10.77.${free}.9`);
    await until("the second subnet to be reached", reached);
    await podnet.end();
    await podnet.start();
    await until("podnetd to have listed the hosts", async () =>
      / held /.test(await podnet.podnetd.podnet("overlay")),
    );
    t.true(await all());
    // One of them ends: what it shares with the other stays.
    await lab.etcd.etcdctl("del", `${lab.prefix}/subnets/${first}`);
    await until("its route to go", async () => !(await routes(podnet)).includes(`${both[0]}/24`));
    t.true(await reached());
  },
);

test.serial(
  "an address that is no single host's is refused, reported once, and gets nothing in the kernel",
  async (t) => {
    await using lab = await open();
    const [podnet] = lab.hosts as Two;
    await podnet.start();
    await podnet.joined();
    const bad = ["224.0.0.5", "127.0.0.1", "255.255.255.255", "192.168.77.255"];
    for (const [i, ip] of bad.entries()) {
      const VtepMAC = `02:00:00:00:99:0${i}`;
      const value = {
        PublicIP: ip,
        PublicIPv6: null,
        BackendType: "vxlan",
        BackendData: { VNI: 1, VtepMAC },
      };
      await lab.etcd.etcdctl(
        "put",
        `${lab.prefix}/subnets/10.77.24${i}.0-24`,
        JSON.stringify(value),
      );
    }
    const value = {
      PublicIP: "192.168.77.9",
      PublicIPv6: null,
      BackendType: "vxlan",
      BackendData: { VNI: 1, VtepMAC: "02:00:00:00:99:99" },
    };
    await lab.etcd.etcdctl("put", `${lab.prefix}/subnets/10.77.249.0-24`, JSON.stringify(value));
    await until("the good one's route", async () => (await routes(podnet)).includes("10.77.249.0"));
    t.notRegex(await routes(podnet), /10\.77\.24[0-4]\.0/);
    t.notRegex(await podnet.machine.run("bridge", "fdb", "show", "dev", "flannel.1"), /99:0[0-4]/);
    const shown = await podnet.podnetd.podnet("overlay");
    for (const ip of bad) t.true(shown.includes(`${ip} is no address of a single host`), shown);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    for (const ip of bad) t.is(podnet.log().split(`at ${ip}: `).length, 2, `${ip} in the log`);
  },
);

test.serial(
  "a bridge that still has the gateway's address is named, in the diff as well, until it is gone",
  async (t) => {
    await using lab = await open();
    const [podnet] = lab.hosts as Two;
    await podnet.start();
    const { subnet } = await podnet.joined();
    const diff = async (): Promise<string> =>
      (await podnet.podnetd.tryPodnet("overlay", "diff")).stdout;
    await until("all to be as planned", async () => (await diff()) === "As planned\n");
    await batch(podnet.machine, [
      "link add br0 type bridge",
      "link set br0 up",
      `addr add ${subnet} dev br0`,
    ]);
    t.regex(await diff(), new RegExp(`address ${subnet} of "br0"; remove that link`));
    t.regex(await podnet.podnetd.podnet("overlay"), /is on another link, too: address .* of "br0"/);
    await batch(podnet.machine, ["link delete br0"]);
    t.is(await diff(), "As planned\n");
  },
);

test.serial(
  "a backend that is not supported is all that is said of a host without a place",
  async (t) => {
    await using lab = await open();
    const [podnet] = lab.hosts as Two;
    const configure = (config: unknown): Promise<unknown> =>
      lab.etcd.etcdctl("put", `${lab.prefix}/config`, JSON.stringify(config));
    await configure({ Network: "10.77.0.0/16", Backend: { Type: "wireguard" } });
    await podnet.start();
    const shown = await until("the backend to be refused", async () => {
      const text = await podnet.podnetd.podnet("overlay");
      return text.includes('"wireguard" cannot be used') ? text : undefined;
    });
    t.notRegex(shown, /no address of IPv4/);
    await configure({ Network: "10.77.0.0/16", Backend: { Type: "vxlan" } });
    await podnet.joined();
    t.notRegex(await podnet.podnetd.podnet("overlay"), /no address of IPv4/);
  },
);

test.serial(
  "a flannel host without a bridge is there: it says from its own address that it has no way on",
  async (t) => {
    await using lab = await openHosts({
      kinds: ["podnet", "flannel"],
      overlay: hostGwOverlay,
      podnetConfig: "",
    });
    const [podnet, peer] = lab.hosts as Two;
    await peer.machine.run("sysctl", "-qw", "net.ipv4.ip_forward=1");
    await lab.underlay.cut(1, 2);
    await Promise.all([podnet.start(), peer.start()]);
    await Promise.all([podnet.joined(), peer.joined()]);
    const reachable = async (): Promise<unknown> => {
      const { items } = JSON.parse(await podnet.podnetd.podnet("nodes", "--output", "json"));
      return items.find(({ self }: { self?: boolean }) => self !== true)?.reachable;
    };
    await until("it to be asked", async () => (await reachable()) !== undefined);
    t.false(await reachable(), "nothing of it arrives");
    await lab.underlay.mend(1, 2);
    // A start asks at once.
    await podnet.end();
    await podnet.start();
    await until("it to be asked", async () => (await reachable()) !== undefined);
    t.true(await reachable());
  },
);
