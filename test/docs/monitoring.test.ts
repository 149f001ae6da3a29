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
import { connectPodnet } from "../../api/client.ts";
import { ended } from "../lab/relay-site.ts";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
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

test("the alerts and the dashboard name metrics and labels that podnetd has", (t) => {
  const page = readFileSync(path.join(top, "docs/reference/metrics.md"), "utf8");
  const known = new Map(
    [...page.matchAll(/^\| `(\w+)` \| (\w+) \| (.*?) \|/gm)].map(([, name = "", kind, labels]) => [
      name,
      { kind, labels: new Set(labels?.match(/\w+/g)) },
    ]),
  );
  t.true(known.size > 40);
  const alerts = read("alerts.yaml");
  const conditions = alerts.match(/expr: [^]*?(?=\n {8}\w)/g) ?? [];
  t.is(conditions.length, alerts.match(/- alert:/g)?.length ?? 0, "every alert is looked at");
  t.true(conditions.length > 0);
  for (const text of [...queries, ...conditions])
    for (const [, name = "", selector = ""] of text.matchAll(/\b(podnet_\w+)(?:\{([^}]*)\})?/g)) {
      const metric = known.get(name.replace(/_bucket$/, ""));
      t.not(metric, undefined, name);
      if (name.endsWith("_bucket")) t.is(metric?.kind, "histogram", name);
      for (const [, label = ""] of selector.matchAll(/(\w+)=/g))
        t.true(label === "instance" || metric?.labels.has(label), `${name}: ${label}`);
    }
});

test("promtool finds nothing wrong with the alerts, and their tests pass", async (t) => {
  const run = (...args: string[]) => exec(program("promtool"), args, { cwd: examples });
  await t.notThrowsAsync(run("check", "rules", "alerts.yaml"));
  await t.notThrowsAsync(run("test", "rules", "alerts-test.yaml"));
});

test("Prometheus scrapes podnetd as the example says, and understands each query of the dashboard", async (t) => {
  t.timeout(120_000);
  await using stack = new AsyncDisposableStack();
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-monitoring-"));
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const at = (name: string): string => path.join(directory, name);
  await makeCertificates(directory, "IP:127.0.0.1");
  const lab = stack.use(await openLab("monitoring-"));
  const tcp = `[tcp]\naddress = "127.0.0.1:7443"\ncert = "${at("server.crt")}"\nkey = "${at("server.key")}"\nclient_ca = "${at("ca.crt")}"\n`;
  const config = `${tcp}[access]\nviewer = ["cert:client"]\n`;
  const daemon = stack.use(await startPodnetd({ machine: lab.host, directory, config }));
  using podnet = connectPodnet({ socket: daemon.socket });
  await podnet.pods.create({ spec: { name: "web" } });
  stack.defer(() => podnet.node.down({}).then(() => {}));

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
