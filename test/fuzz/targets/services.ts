import { deepStrictEqual } from "node:assert";
import { create } from "@bufbuild/protobuf";
import {
  ServiceBackendSchema,
  ServiceSpecSchema,
} from "../../../api/gen/podnet/v1/service_service_pb.ts";
import { parseBackend, parseBackendCheck, parseServicePort } from "../../../api/service-text.ts";
import { validateService } from "../../../api/validate/service.ts";
import { type NetworkName, isDnsLabel } from "../../../core/names.ts";
import { isUnroutable } from "../../../core/special-addresses.ts";
import { parseShared, sharedText } from "../../../daemon/services/shared/definition-text.ts";
import { json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT", "ADDRESS_INVALID"] as const;

/**
 * A service, a line each: ports, backends, addresses, network, a label, a check, affinity and
 * scope. None: no service.
 */
function service(bytes: Uint8Array): void {
  const [ports = "", backends = "", addresses = "", given = "", label = "", ...more] =
    textOf(bytes).split("\n");
  const [check = "", affinity = "", scope = ""] = more;
  const words = (line: string): string[] => line.split(" ").filter((word) => word !== "");
  const asked = create(ServiceSpecSchema, {
    name: "web",
    ports: words(ports).flatMap((text) => valueOf(refusals, () => parseServicePort(text)) ?? []),
    backends: words(backends).flatMap((text) => valueOf(refusals, () => parseBackend(text)) ?? []),
    addresses: words(addresses),
    network: given,
    select: label === "" ? {} : { [label]: "a" },
    ...(check !== "" && { check: valueOf(refusals, () => parseBackendCheck(check)) }),
    affinity,
    scope,
  });
  // (A backend that is neither pod nor address is not written as text.)
  if (ports === "9") asked.backends.push(create(ServiceBackendSchema, {}));
  const spec = valueOf(refusals, () =>
    validateService(bytes.length === 0 ? undefined : asked, { network }),
  );
  for (const { port, target } of spec?.ports ?? [])
    if (!isPort(port) || !isPort(target)) throw new Error(`Ports ${port}:${target}`);
  for (const { pod, address, weight, port = 1 } of spec?.backends ?? []) {
    if (weight > 100 || !isPort(port)) throw new Error(`Weight ${weight}, port ${port}`);
    if (pod === undefined ? isUnroutable(address) : !isDnsLabel(pod))
      throw new Error(`A backend ${pod ?? address}`);
  }
}

const network = "default" as NetworkName;

/** What is read of etcd is written as it was read. */
function shared(bytes: Uint8Array): void {
  const read = (text: string): ReturnType<typeof parseShared> =>
    parseShared("web", text, (overlay) => (overlay === "flannel" ? network : undefined));
  const definition = valueOf(refusals, () => read(textOf(bytes)));
  if (definition !== undefined) deepStrictEqual(read(sharedText(definition)), definition);
}

const isPort = (port: number): boolean => port >= 1 && port <= 65_535;

export const services: Target = {
  name: "services",
  files: ["api/service-text.ts", "api/validate/service.ts"],
  seeds: [
    utf8("80 80:8080 53/udp 9/sctp\nweb web2=3 192.0.2.9 [2001:db8::9]\n10.73.0.9 fd73::9"),
    utf8("80\nweb:81=0 192.0.2.9:80=100 [2001:db8::9]:80=1\n10.73.0.9"),
    utf8("80 80\nweb web=2"),
    utf8("0 70000 80:0 80/icmp x\nA web= =1 [web] 1.2.3 127.0.0.1 ::1 fe80::1=2"),
    utf8("1 2\nweb:3"),
    utf8("80\nweb=101 web=99999\n10.73.0.9 10.73.0.10"),
    utf8("80\n169.254.169.254 224.0.0.1 0.0.0.0"),
    utf8(`${"1 ".repeat(33)}\n`),
    utf8("\n"),
    utf8(""),
    utf8("9\n\n\ngreen\napp"),
    utf8("9 8\nweb web2\n10.73.0.9 fd73::9\nGREEN\n-"),
    utf8("80\nweb\n\n\n\n/healthz,interval=5,timeout=1,rise=1,fall=2\nclient\noverlay"),
    utf8("80/udp\nweb\n\n\n\ntcp,port=80,port=81\nserver\nhost"),
    utf8("80/udp\nweb\n\n\n\ntcp\n\nworld"),
    utf8("80\nweb\n\n\n\n/a b,port=70000"),
    utf8("80\nweb\n\n\n\n/a,port=70000"),
    utf8("80\nweb\n\n\n\ntcp,fall=11"),
    utf8("80\nweb\n\n\n\nudp,fall=1,size=1"),
  ],
  words: ["80", ":8080", "/udp", "/sctp", "=0", "=100", "[", "]:80", "192.0.2.9", "fd73::9", "web"],
  run: service,
};

const spec = {
  name: "web",
  addresses: ["10.73.0.9"],
  ports: [{ protocol: "tcp", port: 80, targetPort: 8080 }],
  backends: [
    { pod: "front", weight: 2 },
    { address: "192.0.2.9", port: 81 },
  ],
  select: { app: "web" },
};
const definition = (over: object, inSpec: object = {}): Uint8Array =>
  json({ version: 1, overlay: "flannel", host: "one", spec: { ...spec, ...inSpec }, ...over });

export const sharedServices: Target = {
  name: "shared-services",
  files: ["daemon/services/shared/definition-text.ts"],
  except: ["sharedText"],
  apart: ["api/validate/service.ts"],
  longest: 4096,
  seeds: [
    definition({}),
    definition({}, { check: { kind: "http", path: "/" }, affinity: "client" }),
    definition({ version: 2 }),
    definition({ overlay: 7 }),
    definition({ overlay: "No!" }),
    definition({ overlay: "other" }),
    definition({ host: "x".repeat(256) }),
    definition({ host: "\u001b[2J" }),
    definition({}, { name: "db" }),
    definition({}, { addresses: [] }),
    definition({}, { network: "blue" }),
    definition({}, { unknown: true }),
    definition({ spec: 7 }),
    utf8("null"),
    utf8("{"),
    utf8(""),
  ],
  words: ["version", "overlay", "flannel", "spec", "backends", "weight", "check", "affinity"],
  run: shared,
};
