import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { create, fromJson, type JsonObject } from "@bufbuild/protobuf";
import test from "ava";
import { NetworkSchema } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { InfoResponseSchema } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { archiveOf } from "../../cli/bugreport/archive.ts";
import { redactJson } from "../../cli/bugreport/redact.ts";
import { toPlain } from "../../cli/output.ts";
import { run } from "../../linux/processes/command.ts";

const top = path.resolve(import.meta.dirname, "../..");
const program = path.join(top, "scripts/node");
const script = path.join(top, "test/sim/replay-report.ts");
const directory = mkdtempSync("/tmp/podnet-replay-");
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

const networks = [
  {
    name: "default",
    default: true,
    bridge: "hyper0",
    mtu: 1450,
    masquerade: true,
    subnets: [
      { cidr: "192.168.50.0/24", gateway: "192.168.50.1" },
      { cidr: "fd50::/64", gateway: "fd50::1" },
    ],
  },
  {
    name: "blue",
    bridge: "pn-blue",
    mtu: 1500,
    isolated: true,
    subnets: [{ cidr: "10.20.0.0/24", gateway: "10.20.0.254", ranges: ["10.20.0.16-10.20.0.31"] }],
  },
];

/** A pod with interfaces as podnetd shows them. */
const podOf = (name: string, state: string, last: number, more: JsonObject = {}): JsonObject => ({
  name,
  id: `${name}aaaaaaaaaaaa`.slice(0, 12),
  state,
  createdAt: `2026-01-01T00:00:0${9 - last}Z`,
  interfaces: [
    {
      network: "default",
      guestName: "eth0",
      mac: `52:54:00:00:00:0${last}`,
      mtu: 1450,
      addresses: [`192.168.50.${last}/24`, `fd50::${last}/64`],
    },
  ],
  ...more,
});

/** The archive of a report of these pods, as `podnet bugreport` writes it. */
function reportOf(name: string, pods: readonly JsonObject[]): string {
  const json = {
    "pods.json": pods.map((pod) => toPlain(PodSchema, fromJson(PodSchema, pod))),
    "networks.json": networks.map((each) => toPlain(NetworkSchema, create(NetworkSchema, each))),
    "versions.json": {
      podnetd: toPlain(InfoResponseSchema, create(InfoResponseSchema, { firewall: "nftables" })),
    },
  };
  const files = new Map(
    Object.entries(json).map(([file, value]) => [file, JSON.stringify(redactJson(value))]),
  );
  const file = path.join(directory, `${name}.tar.gz`);
  writeFileSync(file, archiveOf(name, files, new Date()));
  return file;
}

async function replayed(file: string) {
  const { stdout, exitCode } = await run([program, script, file], {
    okCodes: [0, 1],
    timeoutMs: 120_000,
  });
  return { stdout, exitCode, last: JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "") };
}

const web = podOf("web", "POD_STATE_RUNNING", 7, {
  labels: { app: "shop" },
  ports: [{ hostPort: 8080, podPort: 80, count: 1, protocol: "tcp" }],
  spec: {
    labels: { app: "shop" },
    resources: { vcpu: 1, memoryMib: 256 },
    process: { args: ["secret"], env: { A: "B" } },
  },
});

test.serial(
  "a report is made again on a simulated host: networks, pods, addresses, states",
  async (t) => {
    t.timeout(120_000);
    const blue = {
      network: "blue",
      guestName: "eth1",
      mac: "52:54:00:00:01:01",
      mtu: 1500,
      addresses: ["10.20.0.20/24"],
    };
    const db = podOf("db", "POD_STATE_PAUSED", 3);
    const file = reportOf("well", [
      web,
      { ...db, interfaces: [...(db["interfaces"] as JsonObject[]), blue] },
      podOf("job", "POD_STATE_STOPPED", 4),
    ]);
    const { stdout, exitCode, last } = await replayed(file);
    t.deepEqual(last, { networks: 2, pods: 3, leftOut: 1, differences: 0, violations: 0 }, stdout);
    t.is(exitCode, 0);
    t.regex(stdout, /^left out: pod web: process$/m);
    t.is((await replayed(file)).stdout, stdout, "it is the same each time");
  },
);

test.serial("what today's podnetd would do otherwise than reported is named", async (t) => {
  t.timeout(120_000);
  // Two pods of one address: one of them cannot have been made so.
  const twin = { ...podOf("twin", "POD_STATE_RUNNING", 7), id: "b".repeat(12) };
  const { stdout, exitCode, last } = await replayed(reportOf("twins", [web, twin]));
  t.is(exitCode, 1);
  t.like(last, { pods: 2, differences: 1, violations: 0 }, stdout);
  t.regex(stdout, /^differs: pod (?:twin|web): Address 192\.168\.50\.7 is held by pod "/m);
});

test.serial(
  "a report without podnetd's answers, or no report, is refused with a text",
  async (t) => {
    const folder = path.join(directory, "alone");
    mkdirSync(folder);
    for (const name of ["networks.json", "versions.json"])
      writeFileSync(path.join(folder, name), "[]");
    writeFileSync(path.join(folder, "pods.json"), '{"missing":"DAEMON_UNREACHABLE: x"}');
    for (const [file, text] of [
      [folder, /made without podnetd: .*DAEMON_UNREACHABLE/],
      [path.join(directory, "nosuch"), /ENOENT/],
    ] as const) {
      const { stderr } = await run([program, script, file], {
        okCodes: [2],
        timeoutMs: 120_000,
      });
      t.regex(stderr, text);
      t.notRegex(stderr, /\n\s+at /);
    }
  },
);
