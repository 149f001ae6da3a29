import { validatePorts } from "../../../api/validate/ports.ts";
import { readGo } from "../../../daemon/hyperd/requests/go-json.ts";
import { podRequest } from "../../../daemon/hyperd/requests/pod-request.ts";
import {
  isMapped,
  mappingView,
  portMappings,
  publishedOf,
} from "../../../daemon/hyperd/requests/port-mappings.ts";
import { findRoute, readTarget } from "../../../daemon/hyperd/routes.ts";
import { userPod } from "../../../daemon/hyperd/requests/user-pod.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

/** All that a pod of hyperd may be refused with. */
const refusals = [
  "INVALID_ARGUMENT",
  "UNSUPPORTED",
  "LIMIT_REACHED",
  "ADDRESS_INVALID",
  "ADDRESS_OUT_OF_RANGE",
  "ADDRESS_RESERVED",
  "ADDRESS_IN_USE",
  "MAC_INVALID",
  "MAC_IN_USE",
  "NAME_IN_USE",
  "MTU_OUT_OF_RANGE",
  "GATEWAY_CONFLICT",
  "MEMORY_TOO_SMALL",
] as const;
const networks = [{ name: "default", bridge: "podnet0" }];
const defaults = { network: "default" as never };

const container = {
  name: "web",
  image: "nginx:1.25",
  workdir: "/",
  command: ["-g", "daemon off;"],
  entrypoint: ["nginx"],
  envs: [{ env: "A", value: "b" }],
  ports: [{ hostPort: 8080, containerPort: 80, protocol: "TCP" }],
  files: [{ path: "/etc/a", filename: "a", perm: "0644", user: "root", group: "7" }],
  user: { name: "www", group: "www" },
  restartPolicy: "onFailure",
  StopSignal: "SIGQUIT",
  labels: { tier: "front" },
};
const pod = {
  id: "web-1.25",
  hostname: "web",
  labels: { app: "web" },
  resource: { vcpu: 2, memory: 256 },
  dns: ["9.9.9.9"],
  dnsSearch: ["example.org"],
  dnsOptions: ["ndots:2"],
  log: { type: "json-file", config: null },
  tty: true,
  containers: [container],
  files: [{ name: "a", encoding: "base64", content: "YQ==" }],
  interfaces: [
    { bridge: "podnet0", mac: "52:54:00:12:34:56", mtu: 1400 },
    { bridge: "br0", ip: "10.0.0.5/24", ifname: "tap7", gateway: "10.0.0.1" },
  ],
  portmappings: [
    { containerPort: "53", hostPort: "", protocol: "udp" },
    { containerPort: "8000-8009", hostPort: "9000-9009" },
  ],
};
const inContainer = (more: object): object => ({ ...pod, containers: [{ ...container, ...more }] });
const ofFile = (more: object): object => ({ ...pod, files: [{ name: "a", ...more }] });
const seeds: readonly object[] = [
  pod,
  {},
  { id: "pod-one", containers: null, interfaces: null },
  { id: ".a" },
  { id: "Web" },
  { containers: [container, container] },
  { containers: [null] },
  { type: "service-discovery" },
  { type: "kubernetes", restartPolicy: "always", containers: [{ image: "a" }] },
  { volumes: [{}] },
  { services: [{}] },
  { portmappingWhiteLists: { internalNetworks: ["10.0.0.0/8"], externalNetworks: [] } },
  { log: { type: "fluentd" } },
  { log: { config: { a: "b" } } },
  { colour: 1 },
  { interfaces: [{ colour: 1 }] },
  { interfaces: [{ bridge: "br0" }] },
  { portmappings: [{ containerPort: "80", hostPort: "80-90" }] },
  { portmappings: [{ containerPort: "80-90", hostPort: "80" }] },
  { portmappings: [{ containerPort: "90-80", hostPort: "0" }] },
  { portmappings: [{ containerPort: "70000", hostPort: "a" }] },
  inContainer({ image: "" }),
  inContainer({ name: "a b" }),
  inContainer({ name: "" }),
  inContainer({ sysctl: { a: "b" } }),
  inContainer({ volumes: [1] }),
  inContainer({ ulimits: [1] }),
  inContainer({ logPath: "/a" }),
  inContainer({ user: { additionalGroups: ["a"] } }),
  inContainer({ ports: [{ servicePort: 1 }] }),
  inContainer({ restartPolicy: "constructor" }),
  inContainer({ files: [{ path: "/a", filename: "b" }] }),
  inContainer({ files: [{ path: "/a", detail: { content: "x", encoding: "raw" } }] }),
  inContainer({ files: [{ path: "/a", filename: "a", perm: "0" }] }),
  inContainer({ files: [{ path: "/a", filename: "a", perm: "rwx" }] }),
  inContainer({ files: [{ path: "/a", filename: "a", user: "www" }] }),
  inContainer({ files: [{ path: "/a", filename: "a" }] }),
  ofFile({ uri: "http://example.org" }),
  ofFile({ encoding: "base64", content: "?" }),
  ofFile({ encoding: "gzip" }),
  ofFile({ content: "text" }),
  {
    ...pod,
    volumes: [{ name: "v" }, { name: "w", source: "/srv/a", format: "vfs" }],
    containers: [
      { ...container, restartPolicy: "never", volumes: [{ path: "/d", volume: "v" }] },
      { image: "a", volumes: [{ path: "/e", detail: { name: "x", source: "/srv/b" } }] },
    ],
  },
  { volumes: [{ name: "v", format: "raw" }] },
  { volumes: [{ name: "v" }, { name: "v" }] },
  inContainer({ volumes: [{ path: "/d", volume: "none" }] }),
  inContainer({ volumes: [{ path: "/d", detail: { name: "" } }] }),
  inContainer({ id: "a" }),
  inContainer({ envs: [{ env: "A" }, { env: "A" }] }),
  { interfaces: [{ id: "eth7" }] },
  {
    ...pod,
    portmappingWhiteLists: { internalNetworks: ["10.0.0.0/8"], externalNetworks: ["::/0"] },
  },
  { id: 7 },
  [],
];

function readPod(bytes: Uint8Array): void {
  const spec = valueOf(refusals, () => {
    const asked = readGo(userPod, textOf(bytes), "The pod");
    return podRequest(asked, networks, defaults).spec;
  });
  const { id, container: named } = spec?.hyperd ?? {};
  // They are parts of lines that colons divide.
  for (const text of [id, named?.name])
    if (text !== undefined && /[:\p{Cc}]/u.test(text)) throw new Error(`Accepted as id: ${text}`);
}

/** A mapping that is published is listed so that it can be deleted. */
function readMappings(bytes: Uint8Array): void {
  const ports = valueOf(refusals, () =>
    readGo(portMappings, textOf(bytes), "The port mappings").map((each, i) =>
      publishedOf(each, `[${i}]`),
    ),
  );
  const specs = ports && valueOf(refusals, () => validatePorts(ports));
  for (const spec of specs ?? []) {
    if (spec.hostPort === 0) continue;
    if (!isMapped(spec, publishedOf(mappingView(spec), "port")))
      throw new Error(`Listed as another: ${JSON.stringify(spec)}`);
  }
}

const routes = [
  { method: "GET", path: "/list" },
  { method: "PUT", path: "/pod/{id}/portmappings/{action}" },
] as const;

function readPath(bytes: Uint8Array): void {
  const { path } = readTarget(textOf(bytes));
  for (const method of ["GET", "PUT"]) {
    const found = findRoute(routes, method, path);
    if (found?.open.some((part) => part === "" || part.includes("/")) === true)
      throw new Error(`A part of ${path} is open to more than one`);
  }
}

const mappings: readonly object[] = [
  pod.portmappings,
  [{ containerPort: "80", hostPort: "80" }],
  [{ containerPort: "80", hostPort: "80", protocol: "SCTP" }],
  [{ containerPort: "80", hostPort: "81-82" }],
];

export const hyperd: readonly Target[] = [
  {
    name: "hyperd-requests",
    files: [
      "daemon/hyperd/requests/go-json.ts",
      "daemon/hyperd/requests/pod-files.ts",
      "daemon/hyperd/requests/pod-request.ts",
      "daemon/hyperd/requests/port-mappings.ts",
      "daemon/hyperd/requests/refusals.ts",
      "daemon/hyperd/routes.ts",
    ],
    only: [
      "foldKeys",
      "readGo",
      "parsed",
      "issueText",
      "filesOf",
      "contentOf",
      "modeOf",
      "numberOf",
      "podRequest",
      "podName",
      "hyperdOf",
      "resourcesOf",
      "dnsOf",
      "portsOf",
      "interfaceOf",
      "containerOf",
      "publishedOf",
      "readRange",
      "mappingView",
      "rangeText",
      "isMapped",
      "refuseUnsupported",
      "refuseInContainer",
      "refuseFirst",
      "readTarget",
      "findRoute",
    ],
    // More than the longest object has keys: those that are beyond the limit grow from it.
    longest: 16 << 10,
    words: ['"containerPort":"', '"hostPort":"', '"protocol":"', "null", "8000-8009", "/v1.1.0/"],
    seeds: [
      ...seeds.map((each) => chosen(0, json(each))),
      chosen(0, utf8("{")),
      chosen(0, utf8('{"__proto__":{}}')),
      chosen(0, utf8(`[${"{},".repeat(4200)}{}]`)),
      ...mappings.map((each) => chosen(1, json(each))),
      ...["/v1.1.0/list?item=pod&pod=a", "/list", "/pod/web/portmappings/add", "/pod//a/b"].map(
        (each) => chosen(2, utf8(each)),
      ),
    ],
    run: choosing([readPod, readMappings, readPath]),
  },
];
