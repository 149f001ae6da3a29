import { create, type MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PublishedPortSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { PortSpec } from "../../../../api/pod-spec.ts";
import { parsePortText, type PortText, portText } from "../../../../api/port-text.ts";
import { validateCreate } from "../../../../api/validate/validate.ts";
import { type ErrorCode, PodnetError } from "../../../../core/errors.ts";

type PortInit = MessageInitShape<typeof PublishedPortSchema>;

const portsOf = (...ports: PortInit[]): readonly PortSpec[] =>
  validateCreate(create(CreatePodRequestSchema, { spec: { ports } }), {
    network: "default" as never,
  }).spec.ports ?? [];

const text = (
  hostIp: string,
  hostPort: number,
  podPort: number,
  count = 1,
  protocol = "",
): PortText => ({ hostIp, hostPort, podPort, count, protocol });

const meant: readonly [string, PortText, string][] = [
  ["80", text("", 0, 80), "0:80"],
  ["0:80", text("", 0, 80), "0:80"],
  [":80", text("", 0, 80), "0:80"],
  ["8080:80", text("", 8080, 80), "8080:80"],
  ["8080:80/tcp", text("", 8080, 80, 1, "tcp"), "8080:80"],
  ["53:53/udp", text("", 53, 53, 1, "udp"), "53:53/udp"],
  ["8000-8010:80-90/udp", text("", 8000, 80, 11, "udp"), "8000-8010:80-90/udp"],
  ["80-90", text("", 0, 80, 11), "0:80-90"],
  ["0:80-90", text("", 0, 80, 11), "0:80-90"],
  ["[::1]:8080:80", text("::1", 8080, 80), "[::1]:8080:80"],
  ["[::]:8080:80", text("::", 8080, 80), "[::]:8080:80"],
  ["*:8080:80", text("*", 8080, 80), "*:8080:80"],
  ["*::80", text("*", 0, 80), "*:0:80"],
  ["10.0.0.1:8080:80/sctp", text("10.0.0.1", 8080, 80, 1, "sctp"), "10.0.0.1:8080:80/sctp"],
  ["0.0.0.0:65535:65535", text("0.0.0.0", 65535, 65535), "0.0.0.0:65535:65535"],
];

for (const [written, wanted, back] of meant) {
  test(`port "${written}" is read, and written again`, (t) => {
    t.deepEqual(parsePortText(written), wanted);
    t.is(portText(wanted), back);
    t.deepEqual(parsePortText(back), {
      ...wanted,
      protocol: wanted.protocol === "tcp" ? "" : wanted.protocol,
    });
  });
}

const noPorts = [
  "",
  ":",
  "web",
  "0",
  "8080:0",
  "65536",
  "99999999999",
  "8080:",
  "8000-8010:80-89",
  "8000:80-90",
  "90-80",
  "80-",
  "-80",
  "1-65536",
  "8080:80/",
  "8080:80/TCP",
  "8080:80/tcp/udp",
  "::1:8080:80",
  "[::1:8080:80",
  "[10.0.0.1]:8080:80",
  "[fe80::1%eth0]:1:1",
  "1.2.3:8080:80",
  "10.0.0.1:80",
  "a:8080:80",
  " 80",
  "0x50",
  "0-5:80-85",
  "1".repeat(100),
];

for (const written of noPorts) {
  test(`"${written.slice(0, 30)}" is no port to publish`, (t) => {
    const error = t.throws(() => parsePortText(written, "--publish"), { instanceOf: PodnetError });
    t.is(error.code, "INVALID_ARGUMENT");
    t.is(error.field, "--publish");
  });
}

test("published ports are filled in", (t) => {
  t.deepEqual(portsOf({ podPort: 80 }), [{ hostPort: 0, podPort: 80, count: 1, protocol: "tcp" }]);
  t.deepEqual(
    portsOf({ hostIp: "fd00:0::1", hostPort: 61440, podPort: 61440, count: 4096, protocol: "udp" }),
    [{ hostIp: "fd00::1" as never, hostPort: 61440, podPort: 61440, count: 4096, protocol: "udp" }],
  );
  t.deepEqual(portsOf(), []);
});

test("what does not collide is taken: another protocol, address or port, and chosen ones", (t) => {
  const at = (hostIp: string, hostPort: number, protocol = ""): PortInit => ({
    hostIp,
    hostPort,
    podPort: 80,
    protocol,
  });
  t.is(portsOf(at("", 80), at("", 80, "udp"), at("", 81), at("", 0), at("", 0)).length, 5);
  t.is(portsOf(at("0.0.0.0", 80), at("::", 80)).length, 2);
  t.is(portsOf(at("10.0.0.1", 80), at("10.0.0.2", 80), at("", 80)).length, 3);
});

const bad: readonly [readonly PortInit[], ErrorCode, string][] = [
  [[{}], "INVALID_ARGUMENT", "ports[0].pod_port"],
  [[{ podPort: 65536 }], "INVALID_ARGUMENT", "ports[0].pod_port"],
  [[{ podPort: 65535, count: 2 }], "INVALID_ARGUMENT", "ports[0].pod_port"],
  [[{ podPort: 1, hostPort: 65536 }], "INVALID_ARGUMENT", "ports[0].host_port"],
  [[{ podPort: 1, hostPort: 65000, count: 537 }], "INVALID_ARGUMENT", "ports[0].host_port"],
  [[{ podPort: 1, count: 4097 }], "INVALID_ARGUMENT", "ports[0].count"],
  [[{ podPort: 1, protocol: "icmp" }], "INVALID_ARGUMENT", "ports[0].protocol"],
  [[{ podPort: 1, protocol: "TCP" }], "INVALID_ARGUMENT", "ports[0].protocol"],
  [[{ podPort: 1, protocol: "sctp" }], "UNSUPPORTED", "ports[0].host_ip"],
  [[{ podPort: 1, protocol: "sctp", hostIp: "127.0.0.2" }], "UNSUPPORTED", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "localhost" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "224.0.0.1" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "255.255.255.255" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "0.0.0.1" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "fe80::1" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "ff02::1" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [[{ podPort: 1, hostIp: "::ffff:10.0.0.1" }], "ADDRESS_INVALID", "ports[0].host_ip"],
  [Array.from({ length: 65 }, () => ({ podPort: 1 })), "INVALID_ARGUMENT", "ports"],
  [[{ podPort: 1, count: 4096 }, { podPort: 1 }], "INVALID_ARGUMENT", "ports"],
  [
    [
      { podPort: 1, hostPort: 80 },
      { podPort: 2, hostPort: 80 },
    ],
    "INVALID_ARGUMENT",
    "ports[1]",
  ],
  [
    [
      { podPort: 1, hostPort: 80, count: 10 },
      { podPort: 2, hostPort: 89, hostIp: "*" },
    ],
    "INVALID_ARGUMENT",
    "ports[1]",
  ],
  [
    [
      { podPort: 1, hostPort: 80, hostIp: "10.0.0.1" },
      { podPort: 2, hostPort: 80, hostIp: "0.0.0.0" },
    ],
    "INVALID_ARGUMENT",
    "ports[1]",
  ],
];

for (const [ports, code, field] of bad) {
  test(`refused: ${JSON.stringify(ports).slice(0, 90)} (${ports.length})`, (t) => {
    const error = t.throws(() => portsOf(...ports), { instanceOf: PodnetError });
    t.is(error.code, code);
    t.is(error.field, field);
    t.truthy(error.hint);
  });
}
