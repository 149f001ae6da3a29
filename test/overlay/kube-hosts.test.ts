import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { snippets } from "../docs/snippets.ts";
import { meet, reaches } from "../lab/hosts.ts";
import { type KubeLab, startKube } from "../lab/kube.ts";
import { OverlayLabHost } from "../lab/overlay-host.ts";
import { Underlay, underlayAddress6 } from "../lab/underlay.ts";
import { until } from "../lab/until.ts";

const netConf = {
  Network: "10.244.0.0/16",
  EnableIPv6: true,
  IPv6Network: "fd00:10:244::/48",
  Backend: { Type: "vxlan" },
};

/** Hosts with podnetd whose subnets an API server's Nodes give, which is played. */
async function openCluster(count: number) {
  await using made = new AsyncDisposableStack();
  const name = `k${process.pid}`;
  const directory = mkdtempSync(path.join(tmpdir(), `${name}-`));
  made.defer(() => rmSync(directory, { recursive: true, force: true }));
  const underlay = made.use(await Underlay.open(count, name));
  const kube = made.use(await startKube(underlay.store, underlay.storeAddresses[0] as string));
  const conf = path.join(directory, "net-conf.json");
  writeFileSync(conf, JSON.stringify(netConf));
  const manager = (n: number): string => `subnet_manager = "kubernetes"
kubernetes.kubeconfig = "${kube.kubeconfig}"
kubernetes.net_conf = "${conf}"
kubernetes.node_name = "worker-${n}"`;
  const settings = {
    prefix: "",
    client: { endpoints: [] },
    tls: undefined,
    ttlSeconds: 0,
    podnetConfig: "drift_s = 1",
    manager,
  };
  const hosts = underlay.machines.map((machine, index) => {
    const place = path.join(directory, `h${index + 1}`);
    return made.use(new OverlayLabHost(index + 1, "podnet", machine, place, settings));
  });
  const owned = made.move();
  return { kube, hosts, underlay, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** The number of items in a list that a command prints. */
const countOf = (text: string): number => (JSON.parse(text) as { items: unknown[] }).items.length;

const key = (name: string, value: string): string => `flannel.alpha.coreos.com/${name}=${value}`;

/** Says of a Node what flannel would. */
const annotate = (kube: KubeLab, node: string, mac: string, ip: string): Promise<string> =>
  kube.kubectl(
    "annotate",
    "--overwrite",
    "node",
    node,
    key("kube-subnet-manager", "true"),
    key("backend-type", "vxlan"),
    key("backend-data", JSON.stringify({ VNI: 1, VtepMAC: mac })),
    key("public-ip", ip),
  );

test("hosts whose subnets Kubernetes gives reach each other, and a hostile Node changes no route of theirs", async (t) => {
  t.timeout(300_000);
  await using cluster = await openCluster(2);
  const { kube, hosts } = cluster;
  const [a, b] = hosts as [OverlayLabHost, OverlayLabHost];
  await kube.createNode("worker-1", "10.244.1.0/24", "fd00:10:244:1::/64");
  await kube.createNode("worker-2", "10.244.7.0/24", "fd00:10:244:7::/64");
  await Promise.all([a.start(), b.start()]);
  t.is((await a.joined()).subnet, "10.244.1.1/24");
  t.is((await b.joined()).subnet, "10.244.7.1/24");

  // Packets of containers go from host to host, and kubectl sees what podnetd wrote.
  const containers = [await a.container(), await b.container()] as const;
  await meet(containers);
  await until("the condition", async () => (await kube.condition("worker-1")) === "False");
  const mac = async (host: OverlayLabHost, device: string): Promise<string> =>
    /link\/ether (\S+)/.exec(await host.machine.run("ip", "link", "show", device))?.[1] ?? "";
  const macs = { b: await mac(b, "flannel.1"), b6: await mac(b, "flannel-v6.1") };
  t.deepEqual(await kube.annotations("worker-2"), {
    "kube-subnet-manager": "true",
    "backend-type": "vxlan",
    "backend-data": JSON.stringify({ VNI: 1, VtepMAC: macs.b }),
    "backend-v6-data": JSON.stringify({ VNI: 1, VtepMAC: macs.b6 }),
    "public-ip": b.address,
    "public-ipv6": underlayAddress6(2),
  });
  const nodes = await a.podnetd.podnet("nodes");
  t.regex(nodes, /worker-2 .*10\.244\.7\.0\/24/);

  // Hostile Nodes: with all addresses, with another's, with another's MAC; one that is honest.
  const kernel = async (): Promise<string> => {
    const shown = [
      await a.machine.run("ip", "route", "show", "dev", "flannel.1"),
      await a.machine.run("ip", "neigh", "show", "dev", "flannel.1"),
      await a.machine.run("bridge", "fdb", "show", "dev", "flannel.1"),
    ];
    return shown.join("\n");
  };
  const before = await kernel();
  await kube.createNode("evil-1", "0.0.0.0/0");
  await kube.createNode("evil-2", "10.244.7.0/25");
  await kube.createNode("evil-3", "10.244.9.0/24");
  await annotate(kube, "evil-1", "02:00:00:00:00:01", "192.168.77.9");
  await annotate(kube, "evil-2", "02:00:00:00:00:02", "192.168.77.9");
  await annotate(kube, "evil-3", macs.b, "192.168.77.9");
  await until("the refusals", async () =>
    (await a.podnetd.podnet("overlay", "list")).includes("3 nodes are refused"),
  );
  t.is(await kernel(), before);
  await kube.createNode("honest", "10.244.10.0/24");
  await annotate(kube, "honest", "02:00:00:00:00:10", "192.168.77.10");
  const route = "10.244.10.0/24 via 10.244.10.0";
  await until("the honest one's route", async () => (await kernel()).includes(route));
  await kube.kubectl("delete", "node", "honest", "--wait=false");
  await until("it to be gone", async () => !(await kernel()).includes(route));
  t.is(await kernel(), before);
  for (const evil of ["evil-1", "evil-2", "evil-3"])
    await kube.kubectl("delete", "node", evil, "--wait=false");

  // What the pages say is run as it stands there.
  const commands = snippets()
    .filter(({ where }) => where === "cluster")
    .flatMap((snippet) => snippet.commands);
  t.true(commands.length > 0);
  for (const command of commands) {
    const [name, ...words] = command.replace(/ +#.*$/, "").split(" ");
    if (name === "kubectl") await kube.kubectl(...words);
    else await a.podnetd.podnet(...words);
  }
  const overwritten = async (ip: string): Promise<unknown> =>
    until(ip, async () => (await kube.annotations("worker-1"))["public-ip"] === ip);
  await overwritten("203.0.113.1");
  // A token that is replaced in its file is used at once.
  kube.replaceToken();
  await kube.kubectl(
    "annotate",
    "node",
    "worker-1",
    "flannel.alpha.coreos.com/public-ip-overwrite-",
  );
  await overwritten(a.address);
  await reaches(...([containers[0], containers[1].address] as const));

  const reserve = ["overlay", "reserve", "10.244.9.0/24", "--public-ip", "192.0.2.9"];
  const refused = await a.podnetd.tryPodnet(...reserve);
  t.regex(refused.stderr, /Kubernetes gives each host its subnet.*UNSUPPORTED/);
  t.is(await a.podnetd.podnet("overlay", "reservations", "-o", "json").then(countOf), 0);

  // Killed, and started again while the API server is away, podnetd leaves everything as it was.
  const known = await kube.annotations("worker-1");
  await cluster.underlay.cut(1, "store");
  await a.end("SIGKILL");
  await a.start();
  await until("podnetd to say so", async () =>
    /Kubernetes.*has not been heard/.test(await a.podnetd.podnet("info")),
  );
  await meet(containers);
  t.is(await kernel(), before);
  await cluster.underlay.mend(1, "store");
  await until("phase held", async () => /held/.test(await a.podnetd.podnet("overlay", "list")));
  t.deepEqual(await kube.annotations("worker-1"), known);
  t.is(await kernel(), before);

  // A host that leaves is none for the others, until it joins again.
  const routed = async (): Promise<boolean> =>
    (await b.machine.run("ip", "route")).includes("10.244.1.0/24 via");
  t.true(await routed());
  await a.podnetd.podnet("overlay", "leave");
  t.deepEqual(await kube.annotations("worker-1"), {});
  t.is(await kube.condition("worker-1"), "True");
  await until("the route to be gone", async () => !(await routed()));
  await a.podnetd.podnet("overlay", "join");
  await until("the route", routed);
  await until("the condition", async () => (await kube.condition("worker-1")) === "False");
});
