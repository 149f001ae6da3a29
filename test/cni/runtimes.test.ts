/**
 * Debian's runtimes with podnet's plugin, installed as its users do: what they send, in the order
 * in which they do.
 */
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { type RecordedCall, recordCalls, withoutOrder } from "../lab/cni-recorder.ts";
import {
  type ContainerHost,
  containerHostAddresses,
  openContainerHost,
} from "../lab/container-host.ts";
import { startContainerd } from "../lab/containerd.ts";
import { Protocol } from "../../daemon/cri/gen/cri_pb.ts";
import type { Machine } from "../lab/lab.ts";
import {
  answerOfPause,
  askPause,
  buildPauseImage,
  pauseImage,
  pausePort,
} from "../lab/pause-image.ts";
import { openPodman } from "../lab/podman.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";
import { until } from "../lab/until.ts";

const { host: hostAddress, lan: lanAddress } = containerHostAddresses;
const gateway = "192.168.123.1";

interface Opening {
  /** Of podnetd, at the top of its configuration. */
  readonly settings?: string;
  /** More words of `podnet cni install`. */
  readonly install?: readonly string[];
}

interface Opened {
  readonly host: ContainerHost;
  readonly daemon: Podnetd;
  readonly directory: string;
  readonly image: string;
  /** Starts podnetd again, after its end. */
  restart(): Promise<Podnetd>;
}

/** A host whose podnetd serves the plugin that it has installed where runtimes look. */
async function openHost(
  stack: AsyncDisposableStack,
  { settings = "", install = [] }: Opening = {},
): Promise<Opened> {
  const directory = mkdtempSync(path.join(tmpdir(), "runtimes-"));
  const host = stack.use(await openContainerHost(path.join(directory, "host")));
  const machines = await standInConfig(path.join(directory, "standin"));
  const config = `quarantine_s = 0\n${settings}${machines}`;
  const start = (): Promise<Podnetd> => startPodnetd({ machine: host, directory, config });
  let daemon = await start();
  stack.defer(async () => {
    await daemon.tryPodnet("down", "--yes");
    await daemon.stop();
  });
  await daemon.podnet("cni", "install", ...install);
  const restart = async (): Promise<Podnetd> => (daemon = await start());
  return { host, daemon, directory, image: buildPauseImage(directory), restart };
}

const recordings = path.join(import.meta.dirname, "../fixtures/cni");

/**
 * What a runtime sent is what is recorded of it, which test/cni/replay.test.ts sends in its place.
 * PODNET_RECORD=1 records it anew, into the repository.
 */
function comparesWithRecorded(t: ExecutionContext, name: string, calls: readonly RecordedCall[]) {
  const file = path.join(recordings, `${name}.json`);
  if (process.env["PODNET_RECORD"] === "1")
    writeFileSync(file, `${JSON.stringify(calls, undefined, 2)}\n`);
  const recorded = JSON.parse(readFileSync(file, "utf8")) as RecordedCall[];
  t.deepEqual(calls.map(withoutOrder), recorded.map(withoutOrder));
}

/** Waits until no container's link is left on the host. */
async function linksEnded(host: Machine): Promise<void> {
  await until("the links of containers to end", async () => {
    const links = JSON.parse(await host.run("ip", "-json", "link")) as { ifalias?: string }[];
    return !links.some(({ ifalias }) => ifalias?.startsWith("podnet:attachment:"));
  });
}

test.serial(
  "containerd: by ctr, and by its CRI with a port and with limits, until removed",
  async (t) => {
    t.timeout(90_000);
    await using stack = new AsyncDisposableStack();
    const { host, daemon, directory, image } = await openHost(stack);
    const recorder = recordCalls(host);
    const containerd = stack.use(await startContainerd(host, image));

    await containerd.ctr("run", "--detach", "--cni", "--snapshotter=native", pauseImage, "one");
    t.is(await answerOfPause(host, "192.168.123.2", pausePort), `::ffff:${gateway}`);
    t.regex(await daemon.podnet("cni"), /^default-one +eth0 +ready/m);

    const { podSandboxId } = await containerd.cri.runPodSandbox({
      config: {
        metadata: { name: "web", uid: "1", namespace: "default", attempt: 0 },
        hostname: "web",
        logDirectory: directory,
        annotations: {
          "kubernetes.io/ingress-bandwidth": "40M",
          "kubernetes.io/egress-bandwidth": "20M",
        },
        dnsConfig: { servers: ["10.0.0.10"], searches: ["svc.local"], options: ["ndots:5"] },
        portMappings: [{ protocol: Protocol.TCP, containerPort: pausePort, hostPort: 8080 }],
        linux: {},
      },
    });
    const { status } = await containerd.cri.podSandboxStatus({ podSandboxId });
    t.is(status?.network?.ip, "192.168.123.3");
    t.is(await answerOfPause(host.lan, hostAddress, 8080), `::ffff:${lanAddress}`);
    t.is(await answerOfPause(host, "127.0.0.1", 8080), `::ffff:${gateway}`);
    const queues = await host.run("tc", "qdisc", "show");
    t.regex(queues, /tbf .*rate 40Mbit/);
    t.regex(queues, /tbf .*rate 20Mbit/);
    // No other pod gets this port; the error names the holder, as far as kubelet.
    const second = containerd.cri.runPodSandbox({
      config: {
        metadata: { name: "other", uid: "2", namespace: "default", attempt: 0 },
        hostname: "other",
        logDirectory: directory,
        portMappings: [{ protocol: Protocol.TCP, containerPort: pausePort, hostPort: 8080 }],
        linux: {},
      },
    });
    t.regex(String(await t.throwsAsync(second)), /port 8080.*is published by container/);
    await containerd.cri.stopPodSandbox({ podSandboxId });
    await t.throwsAsync(askPause(host.lan, hostAddress, 8080));
    // (Removing sends DEL again, without a namespace.)
    await containerd.cri.removePodSandbox({ podSandboxId });
    await containerd.ctr("task", "kill", "one");
    // ctr never sends DEL for what it has run detached.
    t.regex(await daemon.podnet("cni"), /^default-one/m);
    comparesWithRecorded(t, "containerd-1.6", recorder.calls());
    await daemon.podnet("down", "--yes");
    await linksEnded(host);
  },
);

test.serial(
  "containerd, while podnetd is stopped: pods stop, and no new one gets another network",
  async (t) => {
    t.timeout(90_000);
    await using stack = new AsyncDisposableStack();
    const { host, daemon, directory, image, restart } = await openHost(stack);
    // What runtimes would take next, of plugins that work.
    const ipam = { type: "host-local", ranges: [[{ subnet: "10.77.0.0/24" }]] };
    host.writeList("20-other.conflist", {
      cniVersion: "1.0.0",
      name: "other",
      plugins: [{ type: "bridge", bridge: "other0", isGateway: true, ipam }],
    });
    const { cri } = stack.use(await startContainerd(host, image));
    const config = (name: string) => ({
      metadata: { name, uid: name, namespace: "default", attempt: 0 },
      hostname: name,
      logDirectory: directory,
      linux: {},
    });
    const { podSandboxId } = await cri.runPodSandbox({ config: config("web") });
    const { status } = await cri.podSandboxStatus({ podSandboxId });
    t.is(status?.network?.ip, "192.168.123.2");
    t.is(await daemon.stop(), 0);
    // containerd reads the directory anew whenever it changes.
    await delay(500);
    const meanwhile = cri.runPodSandbox({ config: config("meanwhile") });
    t.regex(String(await t.throwsAsync(meanwhile)), /podnetd does not answer at .*Start podnetd/);
    await t.throwsAsync(host.run("ip", "link", "show", "other0"));
    await cri.stopPodSandbox({ podSandboxId });
    await cri.removePodSandbox({ podSandboxId });
    const next = await restart();
    t.is((await next.podnet("cni")).trim(), "");
    await linksEnded(host);
    // Until it is uninstalled, which is refused while containers would lose their way back.
    const { podSandboxId: again } = await cri.runPodSandbox({ config: config("again") });
    const refused = await next.tryPodnet("cni", "uninstall");
    t.regex(refused.stderr, /^error: 1 container is attached.*WRONG_STATE/);
    await cri.stopPodSandbox({ podSandboxId: again });
    await cri.removePodSandbox({ podSandboxId: again });
    t.regex(await next.podnet("cni", "uninstall"), /Removed .*10-podnet\.conflist/);
  },
);

for (const firewall of ["iptables", "nftables"])
  test.serial(
    `containerd, with Debian's portmap for hostPort: reached from outside, by ${firewall}`,
    async (t) => {
      t.timeout(90_000);
      await using stack = new AsyncDisposableStack();
      const settings = `firewall = "${firewall}"\ndrift_s = 1\n`;
      const { host, daemon, directory, image } = await openHost(stack, { settings });
      const installed = JSON.parse(await host.run("cat", "/etc/cni/net.d/10-podnet.conflist"));
      host.writeList("05-portmap.conflist", {
        ...installed,
        plugins: [
          { type: "podnet-cni", socket: installed.plugins[0].socket },
          { type: "portmap", capabilities: { portMappings: true }, snat: true },
        ],
      });
      const { cri } = stack.use(await startContainerd(host, image));
      const run = async (name: string, hostPort: number): Promise<string> => {
        const mapping = { protocol: Protocol.TCP, containerPort: pausePort, hostPort };
        const { podSandboxId } = await cri.runPodSandbox({
          config: {
            metadata: { name, uid: name, namespace: "default", attempt: 0 },
            hostname: name,
            logDirectory: directory,
            portMappings: [mapping],
            linux: {},
          },
        });
        return podSandboxId;
      };
      const podSandboxId = await run("web", 8080);
      t.is(await answerOfPause(host.lan, hostAddress, 8080), `::ffff:${lanAddress}`);
      // Control: nothing but what was translated.
      await host.lan.run("ip", "route", "add", "192.168.123.0/24", "via", hostAddress);
      await t.throwsAsync(askPause(host.lan, "192.168.123.2", pausePort));
      // Another program removes the rule, and drift repair writes it again.
      await removeAcceptOf(host, firewall, "192.168.123.2");
      await until("drift repair", () =>
        askPause(host.lan, hostAddress, 8080).then(
          (said) => said === `::ffff:${lanAddress}`,
          () => false,
        ),
      );
      t.regex(await daemon.podnet("diff"), /as planned|no difference|Nothing/i);
      await cri.stopPodSandbox({ podSandboxId });
      await cri.removePodSandbox({ podSandboxId });
      await linksEnded(host);
      await until("the rule to go", async () => {
        return !(await host.run(...rulesOf(firewall))).includes("192.168.123.2");
      });
    },
  );

/** Where what containers take is written. */
const tableOf = (firewall: string): string =>
  firewall === "nftables" ? "podnet" : "podnet_published";

const rulesOf = (firewall: string): [string, ...string[]] => [
  ...(["nft", "list", "table", "inet"] as const),
  tableOf(firewall),
];

async function removeAcceptOf(host: Machine, firewall: string, address: string): Promise<void> {
  const set = [tableOf(firewall), "translated4"];
  await host.run("nft", "delete", "element", "inet", ...set, `{ ${address} }`);
}

test.serial("podman, with Debian's plugins after podnet's", async (t) => {
  t.timeout(90_000);
  await using stack = new AsyncDisposableStack();
  const { host, daemon, image } = await openHost(stack, { install: ["--for", "podman"] });
  const installed = JSON.parse(await host.run("cat", "/etc/cni/net.d/10-podnet.conflist"));
  host.writeList("20-chained.conflist", {
    ...installed,
    name: "chained",
    plugins: [
      installed.plugins[0],
      { type: "tuning", sysctl: { "net.ipv4.conf.all.accept_redirects": "0" } },
      { type: "firewall" },
    ],
  });
  const recorder = recordCalls(host);
  const podman = await openPodman(host, image);
  for (const network of ["podnet", "chained"]) {
    const words = ["--detach", "--name=two", `--network=${network}`, "--network-alias=Web-1"];
    await podman(
      "run",
      ...words,
      "--network-alias=no_label",
      `--publish=8081:${pausePort}`,
      pauseImage,
    );
    t.is(await answerOfPause(host.lan, hostAddress, 8081), `::ffff:${lanAddress}`);
    // podman listens there, and never accepts.
    t.is(await answerOfPause(host, "127.0.0.1", 8081), `::ffff:${gateway}`, network);
    t.regex(await host.run("ss", "-Hlntp"), /:8081 .*"conmon"|:8081 .*"podman"/);
    const netns = await podman("inspect", "--format={{.NetworkSettings.SandboxKey}}", "two");
    const lookUp = (name: string): Promise<string> =>
      host.run(
        "nsenter",
        `--net=${netns.trim()}`,
        process.execPath,
        "-e",
        `const { Resolver } = require("node:dns").promises; const r = new Resolver({ timeout: 2000 });
        r.setServers(["${gateway}"]); r.resolve4("${name}").then((all) => console.log(all.join()), (e) => console.log(e.code))`,
      );
    const [, row] = (await daemon.podnet("cni")).trim().split("\n");
    const address = /192\.168\.123\.\d+/.exec(row ?? "")?.[0] ?? "none";
    t.is(await answerOfPause(host, address, pausePort), `::ffff:${gateway}`, network);
    for (const name of ["two", "web-1", "two.podnet"])
      t.is((await lookUp(name)).trim(), address, `${network}: ${name}`);
    t.is((await lookUp("no_label")).trim(), "ENOTFOUND");
    await podman("rm", "--force", "--time=0", "two");
    await t.throwsAsync(askPause(host, address, pausePort));
    await linksEnded(host);
    t.is((await daemon.podnet("cni")).trim().split("\n").length, 1);
  }
  comparesWithRecorded(t, "podman-4.3", recorder.calls());
});
