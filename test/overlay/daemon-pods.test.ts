import path from "node:path";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { OverlayPhase } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { stateName } from "../../cli/views/pod-view.ts";
import { type HostsLab, openHosts } from "../lab/hosts.ts";
import type { OverlayLabHost } from "../lab/overlay-host.ts";
import { until } from "../lab/until.ts";
import { execIn } from "../vm/daemon-rig.ts";
import { snippets } from "../docs/snippets.ts";
import { program } from "../lab/etcd-member.ts";

// Two real podnetd, each with pods of its own, and what both see of them.

const top = path.resolve(import.meta.dirname, "../..");
let lab: HostsLab;
let one: OverlayLabHost;
let two: OverlayLabHost;
/** What is asked often is not asked by commands, each of which takes a process. */
const clients = new Map<OverlayLabHost, Podnet>();
const clientOf = (host: OverlayLabHost): Podnet => clients.get(host) as Podnet;

test.serial.before(async () => {
  lab = await openHosts({ kinds: ["podnet", "podnet"], podnetConfig: 'factory = "template"\n' });
  [one, two] = lab.hosts as [OverlayLabHost, OverlayLabHost];
  await Promise.all(
    [one, two].map(async (host) => {
      await host.start();
      clients.set(host, connectPodnet({ socket: host.podnetd.socket }));
      await onOverlay(host);
    }),
  );
});
test.serial.after.always(async () => {
  for (const client of clients.values()) {
    // Pods outlive their daemon by design.
    await client.node.down({}).catch(() => {});
    client.close();
  }
  await lab?.[Symbol.asyncDispose]();
});

/** Waits until new pods get an address of the host's subnet. */
async function onOverlay(host: OverlayLabHost): Promise<void> {
  const { subnet } = await host.joined();
  const gateway = subnet.replace(/\/.*/, "");
  await until(
    `${gateway} on host ${host.n}`,
    async () => {
      const { networks } = await clientOf(host).networks.list({});
      return networks.some(({ subnets }) => subnets.some((each) => each.gateway === gateway));
    },
    30_000,
    () => host.log(),
  );
}

/**
 * Makes a pod. A kernel that finds its timer too late, on a machine that is too busy, is started
 * again.
 */
async function create(host: OverlayLabHost, name: string): Promise<void> {
  for (let tries = 3; ; tries--)
    try {
      await clientOf(host).pods.create({ spec: { name } });
      return;
    } catch (error) {
      if (tries === 1 || !isPodnetError(error, "BOOT_FAILED")) throw error;
    }
}

const all = (host: OverlayLabHost) => clientOf(host).pods.list({ allHosts: true });

/** The name by which other hosts know a host. */
async function hostname(host: OverlayLabHost): Promise<string> {
  const { nodes } = await clientOf(host).overlays.listNodes({});
  return nodes.find(({ self }) => self)?.name ?? "";
}

/** A subnet that no host has. */
async function freeSubnet(): Promise<string> {
  const taken = new Set((await lab.leases()).keys());
  for (let n = 1; ; n++) if (!taken.has(`10.77.${n}.0-24`)) return `10.77.${n}.0/24`;
}

/** Waits until a host shows these, as `NAME STATE`, and `elsewhere` behind those of other hosts. */
async function shows(host: OverlayLabHost, ...wanted: readonly string[]): Promise<void> {
  let last: string[] = [];
  await until(
    `host ${host.n} to show ${wanted.join(", ")}`,
    async () => {
      const { pods } = await all(host);
      last = pods.map(
        (pod) => `${pod.name} ${stateName(pod.state)}${pod.host === "" ? "" : " elsewhere"}`,
      );
      return last.join() === wanted.join();
    },
    30_000,
    () => last.join(),
  );
}

async function addressOf(host: OverlayLabHost, name: string): Promise<string> {
  const found = (await all(host)).pods.find((pod) => pod.name === name);
  return found?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "none";
}

const runIn = async (host: OverlayLabHost, pod: string, ...words: string[]): Promise<string> =>
  (await execIn(clientOf(host), pod, ...words)).output;

test.serial("every host shows the pods of all, and its own alone unless asked", async (t) => {
  t.timeout(180_000);
  // One after the other: each host boots its template first.
  await create(one, "web");
  await create(two, "db");
  await shows(one, "web running", "db running elsewhere");
  await shows(two, "db running", "web running elsewhere");
  t.is(await addressOf(one, "db"), await addressOf(two, "db"));
  const listed = await one.podnetd.podnet("list", "--all-hosts");
  t.regex(listed, /NAME +ID +STATE +AGE +HOST +NETWORK.*\nweb .*\(this host\).*\ndb /);
  t.deepEqual(
    (await clientOf(one).pods.list({})).pods.map(({ name }) => name),
    ["web"],
  );
});

test.serial(
  "a pod reaches one of another host by its name, and learns that name of its address",
  async (t) => {
    await shows(one, "web running", "db running elsewhere");
    await shows(two, "db running", "web running elsewhere");
    const [web, db] = [await addressOf(one, "web"), await addressOf(two, "db")];
    t.true((await runIn(one, "web", "ping", "-c", "1", "-W", "9", "db")).includes(`from ${db}`));
    t.true((await runIn(one, "web", "nslookup", "db.podnet")).includes(`Address: ${db}\n`));
    t.regex(await runIn(one, "web", "nslookup", db), /name = db\.podnet/);
    t.true(
      (await runIn(two, "db", "nslookup", "web.default.podnet")).includes(`Address: ${web}\n`),
    );
    t.regex(await runIn(one, "web", "nslookup", "missing.podnet"), /NXDOMAIN/);
  },
);

test.serial(
  "a service of the overlay: made on one host, served on both, by its name",
  async (t) => {
    t.timeout(120_000);
    const answers = (text: string) =>
      ["sh", "-c", `while true; do echo ${text} | nc -l -p 5432; done >/dev/null 2>&1 &`] as const;
    for (const [host, pod] of [
      [one, "web"],
      [two, "db"],
    ] as const)
      await runIn(host, pod, ...answers(`from ${pod}`));
    const made = await clientOf(one).services.create({
      spec: { name: "sql", ports: [{ port: 5432 }], backends: [{ pod: "db" }], scope: "overlay" },
    });
    t.like(made.service?.endpoints[0], { pod: "db", host: await hostname(two) });
    const served = await until("the other host to serve it", async () => {
      const { services } = await clientOf(two).services.list({});
      return services.find(({ name }) => name === "sql");
    });
    t.deepEqual(served.addresses, made.service?.addresses);
    t.like(served.endpoints[0], { pod: "db", host: "" });
    // Through the tunnel from the one, on the bridge of the other, and by the same name on both.
    const asks = ["sh", "-c", "nc -w 9 sql.service.podnet 5432 </dev/null"];
    const hears = async (host: OverlayLabHost, pod: string, what: string): Promise<void> => {
      let heard = "";
      await until(
        `${pod} to hear "${what}"`,
        async () => (heard = await runIn(host, pod, ...asks)).trim() === what,
        30_000,
        () => heard,
      );
    };
    await hears(one, "web", "from db");
    await hears(two, "db", "from db");
    await clientOf(two).services.changeBackends({
      name: "sql",
      set: [{ pod: "web" }],
      remove: ["db"],
    });
    await hears(two, "db", "from web");
    await hears(one, "web", "from web");
    await t.throwsAsync(
      clientOf(two).services.create({
        spec: { name: "sql", ports: [{ port: 1 }], scope: "overlay" },
      }),
      { code: "NAME_IN_USE" },
    );
    t.regex(
      await two.podnetd.podnet("service", "inspect", "sql"),
      /Scope +overlay, changed last by/,
    );
    t.true((await clientOf(two).services.delete({ name: "sql" })).existed);
    await until(
      "its end",
      async () => (await clientOf(one).services.list({})).services.length === 0,
    );
  },
);

test.serial("nodes, what differs and reservations, as podnetd has them", async (t) => {
  const { overlays } = clientOf(one);
  const others = await until("the other host's name", async () => {
    const { nodes } = await overlays.listNodes({});
    const found = nodes.filter(({ self, name }) => !self && name !== "");
    return found.length > 0 && found;
  });
  t.is(others.length, 1);
  t.like(others[0], { publicIps: [two.address], backend: "vxlan" });
  t.regex(await one.podnetd.podnet("nodes"), /^HOST .*\n.* \(this host\) |\n.* \(this host\) /);
  const [flannel] = (await overlays.list({})).overlays;
  t.like(flannel, { name: "flannel", phase: OverlayPhase.HELD, network: "default", peers: 1 });
  await until("nothing to differ", async () => (await overlays.diff({})).lines.length === 0);
  const kept = [await freeSubnet()];
  await overlays.addReservation({ subnets: kept, publicIps: ["192.168.77.99"] });
  const reserved = async () => (await clientOf(two).overlays.listReservations({})).reservations;
  t.like(await until("it to be heard of", async () => (await reserved())[0]), { subnets: kept });
  await t.throwsAsync(
    clientOf(two).overlays.addReservation({ subnets: kept, publicIps: ["192.168.77.98"] }),
    { code: "SUBNET_TAKEN" },
  );
  t.true((await clientOf(two).overlays.removeReservation({ subnets: kept })).existed);
  await until("its end to be heard of", async () => (await reserved()).length === 0);
});

test.serial(
  "an overlay that carries less: a new pod gets the smaller MTU, and those that were there keep theirs and are named",
  async (t) => {
    t.timeout(180_000);
    const carries = async (mtu: number): Promise<void> => {
      const backend = { Type: "vxlan", MTU: mtu + 50 };
      const config = JSON.stringify({ Network: "10.77.0.0/16", Backend: backend });
      await lab.etcd.etcdctl("put", `${lab.prefix}/config`, config);
      for (const host of [one, two])
        await until(
          `host ${host.n} to give pods MTU ${mtu}`,
          async () => (await clientOf(host).networks.list({})).networks[0]?.mtu === mtu,
          30_000,
          () => host.log(),
        );
    };
    const mtus = async (): Promise<unknown> =>
      (await clientOf(one).pods.list({})).pods.map(({ name, interfaces }) => [
        name,
        interfaces[0]?.mtu,
        interfaces[0]?.observedMtu,
      ]);
    const troubles = async () => (await clientOf(one).overlays.list({})).overlays[0]?.troubles;
    t.deepEqual(await mtus(), [["web", 1450, 1450]]);
    t.deepEqual(await troubles(), []);
    await carries(1350);
    await create(one, "narrow");
    t.deepEqual(await mtus(), [
      ["web", 1450, 1450],
      ["narrow", 1350, 1350],
    ]);
    t.regex(
      (await troubles())?.join() ?? "",
      /these have a larger MTU: pod web \(1450\); podnet interface/,
    );
    const { checks } = await clientOf(one).node.health({});
    t.true(checks.some(({ message }) => message.includes("pod web (1450)")));
    // What fits on the bridge and not through the overlay: with the first packet the sender learns
    // the MTU, and the following ones arrive.
    const db = await addressOf(two, "db");
    const narrow = await addressOf(one, "narrow");
    const large = ["ping", "-c", "4", "-W", "3", "-s", "1400"];
    t.regex(await runIn(one, "web", ...large, db), /1408 bytes from/);
    t.regex(await runIn(one, "narrow", "ping", "-c", "2", "-s", "1300", db), /1308 bytes from/);
    t.regex(await runIn(one, "web", "ping", "-c", "2", "-s", "1300", narrow), /1308 bytes from/);
    await one.podnetd.podnet("interface", "set", "web", "eth0", "--mtu", "1350");
    await until("no pod to have more", async () => (await troubles())?.length === 0);
    await clientOf(one).pods.delete({ idOrName: "narrow" });
    await carries(1450);
    await shows(two, "db running", "web running elsewhere");
  },
);

test.serial(
  "etcd away: pods of others are as last known, with their age; what was made meanwhile comes when it is back",
  async (t) => {
    const [member] = lab.etcd.members;
    await member?.kill();
    await until("it to be missed", async () => (await all(one)).staleMs !== undefined);
    await clientOf(two).pods.delete({ idOrName: "db" });
    await create(two, "late");
    await shows(two, "late running", "web running elsewhere");
    await shows(one, "web running", "db running elsewhere");
    member?.start();
    await lab.etcd.ready();
    await shows(one, "web running", "late running elsewhere");
    t.is((await all(one)).staleMs, undefined);
  },
);

test.serial("the commands of docs for many hosts work as written, top to bottom", async (t) => {
  t.timeout(180_000);
  await create(two, "db");
  await shows(one, "web running", "late running elsewhere", "db running elsewhere");
  const free = await freeSubnet();
  const commands = snippets()
    .filter(({ where }) => where === "hosts")
    .flatMap((block) => block.commands)
    // Either host may have got that one.
    .map((command) => command.replace("10.77.34.0/24", free));
  t.true(commands.length > 10);
  const env = [
    `PATH=${top}/bin:${path.dirname(program("etcdctl"))}:${process.env["PATH"]}`,
    `PODNET_SOCKET=${one.podnetd.socket}`,
    `ETCDCTL_ENDPOINTS=${lab.etcd.client.endpoints.join()}`,
  ];
  await t.notThrowsAsync(one.machine.run("env", ...env, "sh", "-euxc", commands.join("\n")));
  await onOverlay(one);
  await create(one, "web");
});

test.serial("a host that is taken down is not shown any more; its lease stays", async (t) => {
  await clientOf(two).node.down({});
  await shows(one, "web running");
  t.truthy(await lab.leaseOf(two));
});
