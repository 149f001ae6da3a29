import { deepStrictEqual } from "node:assert";
import type { PodId } from "../../../core/names.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import { healthRecordText, parseHealthRecord } from "../../../overlay/pods/health-record.ts";
import {
  hostIdOf,
  healthKey,
  hostKey,
  parseRecordKey,
  type RecordKey,
  serviceKey,
  podKey,
  recordsPrefix,
} from "../../../overlay/pods/keys.ts";
import {
  hostRecordText,
  parseHostRecord,
  parsePodRecord,
  podRecordText,
} from "../../../overlay/pods/record.ts";
import { RemotePods } from "../../../overlay/pods/remote-pods.ts";
import { choosing, chosen, json, type Target, textOf, utf8 } from "../engine/target.ts";

const prefix = recordsPrefix(parsePrefix("/coreos.com/network"));
const self = hostIdOf(1 as OwnerId, "one");
const other = hostIdOf(2 as OwnerId, "two");
const pod = "abcdefghijkl" as PodId;

/** What is read is written as it was read, and can be looked for. */
function podRecord(bytes: Uint8Array): void {
  const text = textOf(bytes);
  const record = parsePodRecord(text);
  if (record !== undefined) deepStrictEqual(parsePodRecord(podRecordText(record)), record);
  const remote = new RemotePods(prefix, self);
  remote.put({ key: podKey(prefix, other, record?.id ?? pod), text });
  if (remote.list().length + remote.skipped !== 1) throw new Error("Neither there nor skipped");
  for (const { overlay } of record?.interfaces ?? [])
    if (overlay !== undefined) remote.addressesOf(overlay, record?.name ?? "");
  remote.replace([]);
  if (remote.list().length + remote.skipped !== 0) throw new Error("It is still there");
}

function hostRecord(bytes: Uint8Array): void {
  const text = textOf(bytes);
  const record = parseHostRecord(text);
  if (record !== undefined) deepStrictEqual(parseHostRecord(hostRecordText(record)), record);
  const remote = new RemotePods(prefix, self);
  remote.put({ key: hostKey(prefix, other), text });
  for (const lease of record?.leases ?? [])
    if (remote.hostOf(lease) !== record?.name) throw new Error("Its lease is not known");
}

/** What is published is sorted, so that it is written alike each time. */
function healthRecord(bytes: Uint8Array): void {
  const read = parseHealthRecord(textOf(bytes));
  if (read === undefined) return;
  const text = healthRecordText(read);
  deepStrictEqual(healthRecordText(parseHealthRecord(text) ?? []), text);
}

function key(bytes: Uint8Array): void {
  const text = textOf(bytes);
  const read = parseRecordKey(prefix, text);
  if (read === undefined) return;
  const again = keyAgain(read);
  if (again !== undefined) deepStrictEqual(again, text);
}

function keyAgain(read: RecordKey): string | undefined {
  switch (read.kind) {
    case "host":
      return hostKey(prefix, read.host);
    case "pod":
      return podKey(prefix, read.host, read.pod);
    case "health":
      return healthKey(prefix, read.host);
    case "service":
      return serviceKey(prefix, read.service);
    case "service-address":
    default:
      return undefined;
  }
}

const record = {
  version: 1,
  id: pod,
  name: "web",
  state: "running",
  createdMs: 1000,
  labels: { app: "front" },
  interfaces: [
    { network: "default", overlay: "flannel", name: "eth0", addresses: ["10.5.2.7/24"] },
    { name: "eth1", addresses: ["fd00:5::7/64"] },
  ],
};
const self1 = { version: 1, name: "one", leases: ["/coreos.com/network/subnets/10.5.1.0-24"] };
const unhealthy = { service: "web", address: "10.5.2.7", port: 80, why: "connection refused" };
const health = (...list: unknown[]): Uint8Array => json({ version: 1, unhealthy: list });
const many = <T>(count: number, one: T): T[] => Array.from({ length: count }, () => one);
const record2 = (over: object): Uint8Array => json({ ...record, ...over });

export const podRecords: Target = {
  name: "pod-records",
  files: ["overlay/pods/keys.ts", "overlay/pods/record.ts", "overlay/pods/health-record.ts"],
  only: [
    "parseRecordKey",
    "parsePodRecord",
    "parseHostRecord",
    "parseHealthRecord",
    "backendIn",
    "recordOf",
    "interfaceOf",
    "labelsOf",
    "objectIn",
    "textIn",
    "shortIn",
    "listIn",
  ],
  words: ["version", "overlay", "addresses", "leases", "running", "unhealthy", "/pods/", "/hosts/"],
  longest: 70_000,
  seeds: [
    ...[
      json(record),
      utf8(""),
      utf8("[]"),
      utf8("null"),
      utf8("7"),
      utf8(" ".repeat(65_537)),
      record2({ version: 2 }),
      record2({ id: "web" }),
      record2({ id: 7 }),
      record2({ name: "Web" }),
      record2({ state: "dancing" }),
      record2({ createdMs: -1 }),
      record2({ createdMs: "1" }),
      record2({ createdMs: 1.5 }),
      record2({ labels: [] }),
      record2({ labels: null }),
      record2({ labels: "" }),
      record2({ labels: { a: 1 } }),
      record2({ labels: { a: "v".repeat(256) } }),
      record2({ labels: Object.fromEntries(many(65, "").map((_, i) => [`k${i}`, ""])) }),
      record2({ interfaces: {} }),
      record2({ interfaces: many(33, record.interfaces[0]) }),
      record2({ interfaces: [null] }),
      record2({ interfaces: [{ name: "a b", addresses: [] }] }),
      record2({ interfaces: [{ name: "a", addresses: ["10.5.2.7"] }] }),
      record2({ interfaces: [{ name: "a", addresses: [], network: "No!" }] }),
      record2({ interfaces: [{ name: "a", addresses: [], overlay: 7 }] }),
    ].map((bytes) => chosen(0, bytes)),
    ...[
      json(self1),
      utf8("{"),
      json({ ...self1, name: "x".repeat(256) }),
      json({ ...self1, leases: [7] }),
      json({ ...self1, leases: many(65, "") }),
    ].map((bytes) => chosen(1, bytes)),
    ...[
      hostKey(prefix, other),
      podKey(prefix, other, pod),
      podKey(prefix, other, "web" as PodId),
      `${podKey(prefix, other, pod)}/more`,
      `${hostKey(prefix, other)}/${pod}`,
      `${prefix}/pods/${other}`,
      `${prefix}/pods/two/${pod}`,
      `${prefix}/else/${other}`,
      `${prefix}/hosts/${"a".repeat(600)}`,
      "/coreos.com/network/subnets/10.5.2.0-24",
    ].map((text) => chosen(2, utf8(text))),
    ...[
      health(unhealthy, { ...unhealthy, address: "fd00:5::7" }),
      health(unhealthy, unhealthy),
      health(...many(2049, 7)),
      health(7, null),
      health({ ...unhealthy, service: "No!" }),
      health({ ...unhealthy, address: "10.5.2" }),
      health({ ...unhealthy, port: 0 }),
      health({ ...unhealthy, why: "x".repeat(129) }),
      json({ version: 2, unhealthy: [] }),
      json({ version: 1 }),
    ].map((bytes) => chosen(3, bytes)),
  ],
  run: choosing([podRecord, hostRecord, key, healthRecord]),
};
