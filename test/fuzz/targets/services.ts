import { create } from "@bufbuild/protobuf";
import {
  ServiceBackendSchema,
  ServiceSpecSchema,
} from "../../../api/gen/podnet/v1/service_service_pb.ts";
import { parseBackend, parseServicePort } from "../../../api/service-text.ts";
import { validateService } from "../../../api/validate/service.ts";
import { type NetworkName, isDnsLabel } from "../../../core/names.ts";
import { isUnroutable } from "../../../core/special-addresses.ts";
import { type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT", "ADDRESS_INVALID"] as const;

/** A service, a line each: ports, backends, addresses, network, and a label. None: no service. */
function service(bytes: Uint8Array): void {
  const [ports = "", backends = "", addresses = "", given = "", label = ""] =
    textOf(bytes).split("\n");
  const words = (line: string): string[] => line.split(" ").filter((word) => word !== "");
  const asked = create(ServiceSpecSchema, {
    name: "web",
    ports: words(ports).flatMap((text) => valueOf(refusals, () => parseServicePort(text)) ?? []),
    backends: words(backends).flatMap((text) => valueOf(refusals, () => parseBackend(text)) ?? []),
    addresses: words(addresses),
    network: given,
    select: label === "" ? {} : { [label]: "a" },
  });
  // (A backend that is neither pod nor address is not written as text.)
  if (ports === "9") asked.backends.push(create(ServiceBackendSchema, {}));
  const network = "default" as NetworkName;
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
  ],
  words: ["80", ":8080", "/udp", "/sctp", "=0", "=100", "[", "]:80", "192.0.2.9", "fd73::9", "web"],
  run: service,
};
