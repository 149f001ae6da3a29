/**
 * docs/examples/monitoring, by Debian's Prometheus: promtool checks and tests the alerts, and
 * Prometheus scrapes a podnetd with a pod as the example says.
 */
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { ended } from "../lab/relay-site.ts";
import { startEtcd } from "../lab/etcd.ts";
import { labAddresses, type Machine, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { until } from "../lab/until.ts";
import { makeCertificates } from "../unit/api/fixtures/certificates.ts";

const exec = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../..");
const examples = path.join(top, "docs/examples/monitoring");
const read = (name: string): string => readFileSync(path.join(examples, name), "utf8");
const program = (name: string): string => path.join(top, "build/prometheus/usr/bin", name);

interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string }[];
  }[];
}
const { panels } = JSON.parse(read("grafana.json")) as Dashboard;
const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
/** What each alert waits for. */
const conditions = read("alerts.yaml").match(/(?<=expr: )[^]*?(?=\n {8}\w)/g) ?? [];

/** Labels that Prometheus adds, and those of a histogram's buckets. */
const foreign = new Set(["instance", "job", "le"]);

/** Each metric that the dashboard or an alert names, with the labels that the expression uses. */
const uses = [...queries, ...conditions].flatMap((expression) => {
  const grouped = [...expression.matchAll(/\b(?:by|without) \(([^)]*)\)/g)];
  const groups = grouped.flatMap(([, labels = ""]) => labels.match(/\w+/g) ?? []);
  const metrics = expression.matchAll(/\b((?:podnet|process|nodejs)_\w+)(?:\{([^}]*)\})?/g);
  return Array.from(metrics, ([, name = "", selector = ""]) => {
    const selected = Array.from(selector.matchAll(/(\w+)=/g), ([, label = ""]) => label);
    const labels = [...selected, ...groups].filter((label) => !foreign.has(label));
    return { name, labels, expression };
  });
});

test("the alerts and the dashboard name metrics and labels that podnetd has", (t) => {
  const page = readFileSync(path.join(top, "docs/reference/metrics.md"), "utf8");
  const known = new Map(
    [...page.matchAll(/^\| `(\w+)` \| (\w+) \| (.*?) \|/gm)].map(([, name = "", kind, labels]) => [
      name,
      { kind, labels: new Set(labels?.match(/\w+/g)) },
    ]),
  );
  t.true(known.size > 40);
  t.is(conditions.length, read("alerts.yaml").match(/- alert:/g)?.length ?? 0);
  t.true(conditions.length > 0);
  for (const { name, labels, expression } of uses) {
    // (Those of every program of Node's are on no page; the test of a podnetd looks for them.)
    if (!name.startsWith("podnet_")) continue;
    const metric = known.get(name.replace(/_bucket$/, ""));
    t.not(metric, undefined, name);
    if (name.endsWith("_bucket")) t.is(metric?.kind, "histogram", name);
    for (const label of labels)
      t.true(metric?.labels.has(label), `${name}: ${label}: ${expression}`);
  }
});

test("promtool finds nothing wrong with the alerts, and their tests pass", async (t) => {
  const run = (...args: string[]) => exec(program("promtool"), args, { cwd: examples });
  await t.notThrowsAsync(run("check", "rules", "alerts.yaml"));
  await t.notThrowsAsync(run("test", "rules", "alerts-test.yaml"));
});

/** Metrics of the examples whose series appear with trouble, or with a second host. */
const unusual = [
  "podnet_api_refused_total",
  "podnet_defects_total",
  "podnet_drift_alarms_total",
  "podnet_overlay_peer_reachable",
  "podnet_overlay_peer_rtt_seconds",
];

test("Prometheus scrapes a busy podnetd as the example says, and every query finds its metrics there", async (t) => {
  t.timeout(240_000);
  await using stack = new AsyncDisposableStack();
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-monitoring-"));
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const at = (name: string): string => path.join(directory, name);
  await makeCertificates(directory, "IP:127.0.0.1");
  const lab = stack.use(await openLab("monitoring-"));
  const etcd = stack.use(await startEtcd({ machines: [lab.host] }));
  const overlay = { Network: "10.77.0.0/16", Backend: { Type: "vxlan" } };
  await etcd.etcdctl("put", "/coreos.com/network/config", JSON.stringify(overlay));
  const daemon = stack.use(
    await startPodnetd({
      machine: lab.host,
      directory,
      config: `factory = "pool"
[tcp]
address = "127.0.0.1:7443"
cert = "${at("server.crt")}"
key = "${at("server.key")}"
client_ca = "${at("ca.crt")}"
[access]
viewer = ["cert:client"]
[pool]
size = 1
[overlay]
etcd.endpoints = ${JSON.stringify(etcd.client.endpoints)}
public_ip = "${labAddresses.hostUplink}"
subnet_file = "${at("subnet.env")}"
`,
    }),
  );
  await makeBusy(daemon, lab.host);

  const scraped = await lab.host.run(
    "curl",
    "-s",
    "--unix-socket",
    daemon.socket,
    "http://d/metrics",
  );
  const kinds = new Map(
    [...scraped.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name, kind]) => [name, kind]),
  );
  const samples = [...scraped.matchAll(/^(\w+)(?:\{(.*)\})? /gm)];
  for (const { name, labels, expression } of uses) {
    t.true(kinds.has(name.replace(/_bucket$/, "")), name);
    const those = samples.filter(([, each]) => each === name);
    if (!unusual.includes(name)) t.not(those.length, 0, `${name} has no series: ${expression}`);
    for (const [line, , has = ""] of those)
      for (const label of labels)
        t.true(has.includes(`${label}="`), `${line}: ${label}: ${expression}`);
  }

  for (const name of ["alerts.yaml", "prometheus.yaml"])
    cpSync(path.join(examples, name), at(name));
  writeFileSync(
    at("prometheus.yaml"),
    read("prometheus.yaml").replace("scrape_interval: 15s", "scrape_interval: 1s"),
  );
  await exec(program("promtool"), ["check", "config", "prometheus.yaml"], { cwd: directory });
  const words = [
    `--config.file=${at("prometheus.yaml")}`,
    `--storage.tsdb.path=${at("data")}`,
    "--web.listen-address=127.0.0.1:9090",
  ];
  const prometheus = lab.host.spawn([program("prometheus"), ...words], { stdio: "ignore" });
  stack.adopt(prometheus, ended);
  const ask = async (query: string): Promise<{ status: string; result: unknown[] }> => {
    const words = ["-sG", "--data-urlencode", `query=${query}`];
    const said = await lab.host.run("curl", ...words, "http://127.0.0.1:9090/api/v1/query");
    const { status, data } = JSON.parse(said) as { status: string; data?: { result: unknown[] } };
    return { status, result: data?.result ?? [] };
  };
  await until("a scrape", async () => {
    const { result } = await ask('up{job="podnet"} == 1').catch(() => ({ result: [] }));
    return result.length === 1;
  });
  for (const query of queries) {
    const { status } = await ask(query.replaceAll("$instance", ".*"));
    t.is(status, "success", query);
  }
  t.is((await ask('podnet_pods{state="running"} == 1')).result.length, 1);
  t.is((await ask('podnet_pod_memory_bytes{pod="web"}')).result.length, 1);
});

/** Has a podnetd do what its metrics count: a pod with a policy, a service, a name, a container. */
async function makeBusy(daemon: Podnetd, host: Machine): Promise<void> {
  await daemon.podnet("create", "web", "--label", "app=web");
  const policy = path.join(daemon.directory, "policy.yaml");
  writeFileSync(policy, "name: closed\napplies_to: {labels: {app: web}}\ndefault: deny\n");
  await daemon.podnet("policy", "apply", "-f", policy);
  await daemon.podnet("service", "create", "front", "--port", "80", "--select", "app=web");
  await daemon.tryPodnet("exec", "web", "--", "ping", "-c", "1", "-W", "1", labAddresses.internet);
  await daemon.tryPodnet("exec", "web", "--", "nslookup", "web");
  // An address that is not the pod's, which the guard drops.
  await daemon.podnet("exec", "web", "--", "ip", "address", "add", "192.0.2.99/32", "dev", "lo");
  await daemon.tryPodnet(
    "exec",
    "web",
    "--",
    ..."ping -c 1 -W 1 -I 192.0.2.99 192.168.123.1".split(" "),
  );
  await host.run("ip", "link", "set", "hyper0", "down");
  await until("podnetd to repair it", async () =>
    (await host.run("ip", "link", "show", "hyper0")).includes(",UP"),
  );
  const config = {
    cniVersion: "1.0.0",
    name: "podnet",
    type: "podnet-cni",
    socket: path.join(daemon.runDir, "cni.sock"),
  };
  const asked = "CNI_COMMAND=DEL CNI_CONTAINERID=one CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin";
  await host.run(
    "sh",
    "-c",
    `echo '${JSON.stringify(config)}' | ${asked} ${top}/build/cni-plugin/podnet-cni`,
  );
}
