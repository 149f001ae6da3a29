import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { kubernetesPod, parseArgs } from "../../../../cni/protocol/args.ts";
import { renderError } from "../../../../cni/protocol/error.ts";
import {
  parseExchange,
  parseOutcome,
  renderExchange,
  renderOutcome,
} from "../../../../cni/protocol/exchange.ts";
import {
  isPendingName,
  parsePending,
  pendingName,
  renderPending,
} from "../../../../cni/protocol/pending.ts";
import { parseRequest } from "../../../../cni/protocol/request-read.ts";
import { cniVersions, versionAnswer } from "../../../../cni/protocol/version.ts";

const env = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/blue",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin:/usr/lib/cni",
};
const config = { cniVersion: "1.1.0", name: "podnet", type: "podnet-cni" };
const bytes = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));
type Environment = Readonly<Record<string, string>>;
const asked = (more: object, variables: Environment = {}) =>
  parseRequest({ ...env, ...variables }, bytes({ ...config, ...more }));

test("an ADD is read whole", (t) => {
  const request = asked({ network: "lan", mtu: 1400, serviceCidr: "172.30.0.0/16" });
  t.like(request, {
    command: "ADD",
    containerId: "c1",
    ifName: "eth0",
    netns: "/run/netns/blue",
    path: ["/opt/cni/bin", "/usr/lib/cni"],
    config: {
      version: "1.1.0",
      name: "podnet",
      network: "lan",
      mtu: 1400,
      serviceCidrs: ["172.30.0.0/16"],
      portsHeldByRuntime: false,
    },
  });
  t.like(asked({ portsHeldByRuntime: true }), { config: { portsHeldByRuntime: true } });
  t.like(asked({ serviceCidr: ["172.30.0.0/16", "fd30::/112"] }), {
    config: { serviceCidrs: ["172.30.0.0/16", "fd30::/112"] },
  });
});

/** As containerd 1.6 sends it: Go's own field names, an empty address, the largest burst. */
const containerd = {
  capabilities: { portMappings: true },
  runtimeConfig: {
    portMappings: [
      { HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "" },
      { HostPort: 0, ContainerPort: 81, Protocol: "TCP", HostIP: "" },
      { hostPort: 53, containerPort: 53, protocol: "UDP", hostIP: "192.0.2.1" },
    ],
    bandwidth: { IngressRate: 1e6, IngressBurst: 4294967295, EgressRate: 0, EgressBurst: 0 },
    dns: { Servers: ["10.0.0.10"], Searches: ["svc"], Options: ["ndots:5"] },
    "io.kubernetes.cri.pod-annotations": { a: "b" },
    IPs: ["10.0.0.5", "10.0.0.6/24"],
    Mac: "0A:58:0A:00:00:05",
    ipRanges: [[{ subnet: "10.0.0.0/24", RangeStart: "10.0.0.9", gateway: "10.0.0.1" }]],
    aliases: ["db"],
  },
};

test("capabilities are read in any letter case", (t) => {
  const request = asked(containerd);
  t.not(request.command, "VERSION");
  t.deepEqual((request as { config: { capabilities: object } }).config.capabilities, {
    portMappings: [
      { hostPort: 8080, containerPort: 80, protocol: "tcp" },
      { hostPort: 53, containerPort: 53, protocol: "udp", hostIp: "192.0.2.1" },
    ],
    bandwidth: { ingressRate: 1e6, ingressBurst: 4294967295 },
    dns: { nameservers: ["10.0.0.10"], search: ["svc"], options: ["ndots:5"] },
    annotations: new Map([["a", "b"]]),
    ips: ["10.0.0.5", "10.0.0.6/24"],
    mac: "0a:58:0a:00:00:05",
    ipRanges: [[{ subnet: "10.0.0.0/24", rangeStart: "10.0.0.9", gateway: "10.0.0.1" }]],
    aliases: ["db"],
  });
});

test("the very name counts before one in another letter case", (t) => {
  t.like(asked({ MTU: 1300, mtu: 1400 }), { config: { mtu: 1400 } });
  t.like(asked({ MTU: 1300 }), { config: { mtu: 1300 } });
});

test("a DEL goes on whatever has become of the rest", (t) => {
  for (const more of [
    { prevResult: 5 },
    { runtimeConfig: [] },
    { runtimeConfig: { portMappings: [{ hostPort: "x" }] } },
    { mtu: "large" },
  ]) {
    const request = asked(more, { CNI_COMMAND: "DEL", CNI_NETNS: "", CNI_ARGS: "garbage" });
    t.like(request, {
      command: "DEL",
      containerId: "c1",
      netns: undefined,
      config: { name: "podnet" },
    });
    t.throws(() => asked(more), { instanceOf: PodnetError });
  }
  t.like(asked({}, { CNI_COMMAND: "DEL" }), { netns: "/run/netns/blue" });
});

test("GC spares the named containers, and is refused when it names none", (t) => {
  const gc = { CNI_COMMAND: "GC" };
  const key = "cni.dev/valid-attachments";
  t.like(asked({ [key]: [{ containerID: "c1", ifname: "eth0" }] }, gc), {
    config: { validAttachments: [{ containerId: "c1", ifName: "eth0" }] },
  });
  t.like(asked({ [key]: null }, gc), { config: { validAttachments: [] } });
  for (const more of [{}, { [key]: [{ containerID: "c1" }] }, { [key]: [{}] }])
    t.is(t.throws(() => asked(more, gc), { instanceOf: PodnetError }).details["cni"], 7);
});

test("what cannot be served is refused with CNI's number and the variable or key at fault", (t) => {
  const rows: readonly (readonly [Environment, unknown, number, string])[] = [
    [{ CNI_COMMAND: "" }, config, 4, "CNI_COMMAND"],
    [{ CNI_COMMAND: "UPDATE" }, config, 4, "CNI_COMMAND"],
    [{ CNI_CONTAINERID: "" }, config, 4, "CNI_CONTAINERID"],
    [{ CNI_CONTAINERID: "a/b" }, config, 4, "CNI_CONTAINERID"],
    [{ CNI_CONTAINERID: "a".repeat(256) }, config, 4, "CNI_CONTAINERID"],
    [{ CNI_NETNS: "" }, config, 4, "CNI_NETNS"],
    [{ CNI_IFNAME: "" }, config, 4, "CNI_IFNAME"],
    [{ CNI_IFNAME: ".." }, config, 4, "CNI_IFNAME"],
    [{ CNI_IFNAME: "sixteen-letters-" }, config, 4, "CNI_IFNAME"],
    [{ CNI_IFNAME: "a:b" }, config, 4, "CNI_IFNAME"],
    [{ CNI_IFNAME: "all" }, config, 4, "CNI_IFNAME"],
    [{ CNI_IFNAME: "default" }, config, 4, "CNI_IFNAME"],
    [{ CNI_ARGS: "FOO=bar" }, config, 4, "CNI_ARGS"],
    [{ CNI_ARGS: "IgnoreUnknown=1;novalue" }, config, 4, "CNI_ARGS"],
    [{}, "text", 6, "stdin"],
    [{}, { ...config, cniVersion: "1.2.0" }, 1, "cniVersion"],
    [{}, { ...config, cniVersion: 1 }, 6, "cniVersion"],
    [{}, { ...config, name: "" }, 7, "name"],
    [{}, { ...config, name: "a b" }, 7, "name"],
    [{ CNI_COMMAND: "CHECK" }, { ...config, cniVersion: "0.3.1" }, 1, "cniVersion"],
    [{ CNI_COMMAND: "CHECK" }, config, 7, "prevResult"],
    [{ CNI_COMMAND: "GC" }, { ...config, cniVersion: "1.0.0" }, 1, "cniVersion"],
    [{ CNI_COMMAND: "STATUS" }, { ...config, cniVersion: "1.0.0" }, 1, "cniVersion"],
    [{}, { ...config, runtimeConfig: { mac: "x" } }, 7, "runtimeConfig.mac"],
    [{}, { ...config, runtimeConfig: { ips: ["x"] } }, 7, "runtimeConfig.ips[0]"],
    [
      {},
      { ...config, runtimeConfig: { portMappings: [{ hostPort: 1 }] } },
      7,
      "runtimeConfig.portMappings[0].containerPort",
    ],
    [
      {},
      { ...config, runtimeConfig: { portMappings: [{ hostPort: 70000 }] } },
      6,
      "runtimeConfig.portMappings[0].hostPort",
    ],
    [
      {},
      {
        ...config,
        runtimeConfig: { portMappings: [{ hostPort: 1, containerPort: 1, protocol: "icmp" }] },
      },
      7,
      "runtimeConfig.portMappings[0].protocol",
    ],
    [
      {},
      { ...config, runtimeConfig: { ipRanges: [[{}]] } },
      7,
      "runtimeConfig.ipRanges[0][0].subnet",
    ],
  ];
  for (const [variables, stdin, cni, field] of rows) {
    const error = t.throws(() => parseRequest({ ...env, ...variables }, bytes(stdin)), {
      instanceOf: PodnetError,
    });
    t.is(error.field, field);
    t.is(error.details["cni"], cni, field);
    t.truthy(error.hint);
    const said = JSON.parse(renderError(error)) as Record<string, unknown>;
    t.deepEqual(Object.keys(said), ["code", "msg", "details"]);
    t.is(said["code"], cni);
  }
  t.is(
    t.throws(() => parseRequest(env, Buffer.from("{")), { instanceOf: PodnetError }).details["cni"],
    6,
  );
});

test("what is nested deeper than the plugin's engine can read is refused, much side by side is not", (t) => {
  const deep = (levels: number, more = "") =>
    Buffer.from(`{"name":"a","a":"[${more}","b":${'{"c":['.repeat(levels)}${"]}".repeat(levels)}}`);
  const refused = { instanceOf: PodnetError, message: /nested too deep/ } as const;
  t.is(t.throws(() => parseRequest(env, deep(1024)), refused).details["cni"], 6);
  t.throws(() => parseRequest(env, Buffer.from("[".repeat(1024 * 1024))), refused);
  t.like(parseRequest(env, deep(1023)), { command: "ADD" });
  // What stands in a text opens nothing, and what is closed again is no depth.
  t.like(parseRequest(env, deep(1, `\\"${"[{".repeat(3000)}\\\\`)), { command: "ADD" });
  const portMappings = Array.from({ length: 3000 }, (_, i) => ({ hostPort: i, containerPort: 1 }));
  t.like(asked({ runtimeConfig: { portMappings } }), { command: "ADD" });
});

test("every version is answered, and none is the first", (t) => {
  for (const cniVersion of cniVersions)
    t.like(parseRequest(env, bytes({ ...config, cniVersion })), {
      config: { version: cniVersion },
    });
  t.like(parseRequest(env, bytes({ name: "a" })), { config: { version: "0.1.0", type: "" } });
  t.deepEqual(parseRequest({ CNI_COMMAND: "VERSION" }, Buffer.from("")), { command: "VERSION" });
  t.deepEqual(JSON.parse(versionAnswer()), {
    cniVersion: "1.1.0",
    supportedVersions: ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
  });
});

test("CNI_ARGS name the pod of kubelet's runtimes", (t) => {
  const text =
    "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=i;K8S_POD_UID=u;IgnoreUnknown=1;X=1";
  t.deepEqual(kubernetesPod(parseArgs(text, true)), {
    namespace: "ns",
    name: "web",
    uid: "u",
    infraContainerId: "i",
  });
  t.is(kubernetesPod(parseArgs("K8S_POD_NAME=web", true)), undefined);
  t.deepEqual(kubernetesPod(parseArgs("K8S_POD_NAME=web;K8S_POD_NAMESPACE=ns", true)), {
    namespace: "ns",
    name: "web",
  });
});

test("what CNI_ARGS hold that is unknown is reported, as far as a line goes", (t) => {
  const refused = (text: string): string | undefined =>
    t.throws(() => parseArgs(text, true), { code: "INVALID_ARGUMENT" })?.message;
  t.is(refused("X=1;IP=;Y=2"), "CNI_ARGS holds what podnet does not know: X, Y");
  const long = refused(`${"X".repeat(1000)}=1;${"Y".repeat(1000)}=1`) ?? "";
  t.true(long.length < 200, long);
});

test("an error that is none of CNI's has a number of podnet's", (t) => {
  const code = (error: unknown): unknown =>
    (JSON.parse(renderError(error)) as { code: number }).code;
  t.is(code(new PodnetError("POOL_EXHAUSTED", "full")), 104);
  t.is(code(new PodnetError("DAEMON_UNREACHABLE", "away")), 11);
  t.is(code(new PodnetError("INTERNAL", "?")), 999);
  t.is(code(new Error("?")), 999);
});

test("the plugin and podnetd understand each other, and what a DEL left behind", (t) => {
  const stdin = Buffer.from('{"name":"é"}');
  const body = renderExchange(env, stdin.toString("base64"));
  const exchange = parseExchange(Buffer.from(body));
  t.deepEqual(exchange.env, env);
  t.deepEqual(Buffer.from(exchange.stdin), stdin);
  const outcome = { exit: 1, stdout: "{}" };
  t.deepEqual(parseOutcome(Buffer.from(renderOutcome(outcome))), outcome);
  const pending = parsePending(Buffer.from(renderPending(env, stdin.toString("base64"), 17)));
  t.is(pending.atMs, 17);
  t.deepEqual(pending.env, env);
  t.is(pendingName("c1", "eth0"), "c1@eth0.json");
  t.true(isPendingName("c1@eth0.json"));
  t.false(isPendingName(".17"));
  t.like(parseExchange(bytes({ env, config: "", hostVeth: "veth0" })), { hostVeth: "veth0" });
  for (const wrong of [
    { env, config: "?" },
    { env: { a: 1 }, config: "" },
    [],
    { env, config: "A" },
  ])
    t.is(
      t.throws(() => parseExchange(bytes(wrong)), { instanceOf: PodnetError }).details["cni"],
      6,
    );
  t.throws(() => parsePending(Buffer.from(body)), { instanceOf: PodnetError });
  for (const wrong of ["{", "{}", '{"exit":300}', '{"exit":0,"stdout":5}'])
    t.throws(() => parseOutcome(Buffer.from(wrong)), { instanceOf: PodnetError });
});

test("aliases are a list, or podman's map of networks, and whatever else they are fails nothing", (t) => {
  const aliasesOf = (aliases: unknown): unknown => {
    const request = asked({ runtimeConfig: { aliases } });
    return "config" in request && "capabilities" in request.config
      ? request.config.capabilities.aliases
      : undefined;
  };
  t.deepEqual(aliasesOf(["db", "db", 7, null, "web"]), ["db", "web"]);
  t.deepEqual(aliasesOf({ podnet: ["db", {}], other: ["web"] }), ["db"]);
  for (const aliases of [{ other: ["web"] }, { podnet: "db" }, "db", 7, true, null, [[]]])
    t.deepEqual(aliasesOf(aliases), [], JSON.stringify(aliases));
  t.is((aliasesOf(Array.from({ length: 1000 }, (_, i) => `a${i}`)) as unknown[]).length, 32);
});
