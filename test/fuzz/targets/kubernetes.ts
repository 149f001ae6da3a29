import { deepStrictEqual } from "node:assert";
import { LineSplitter } from "../../../kubernetes/lines.ts";
import { readEvent, readPage } from "../../../kubernetes/objects.ts";
import type { Cidr } from "../../../core/address.ts";
import { parseConfig } from "../../../overlay/flannel/config.ts";
import { attributesOf, parseLeaseValue } from "../../../overlay/flannel/value.ts";
import { isDataOf, leaseTextOf, unreadAddress } from "../../../overlay/kube/annotations.ts";
import { readNode } from "../../../overlay/kube/node.ts";
import { NodeLeases } from "../../../overlay/kube/node-leases.ts";
import { Registry } from "../../../overlay/registry.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = [
  "KUBERNETES_FAILED",
  "KUBERNETES_EXPIRED",
  "KUBERNETES_DENIED",
  "KUBERNETES_CONFLICT",
  "KUBERNETES_UNREACHABLE",
] as const;
const prefix = "flannel.alpha.coreos.com";
const config = parseConfig(
  '{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan"}}',
);
const longest = 700;

/** Lines are alike wherever the stream is cut: at each byte, at a few, nowhere. */
function watch(bytes: Uint8Array): void {
  const [step = 0, ...rest] = bytes;
  const stream = Uint8Array.from(rest);
  const whole = valueOf(refusals, () => new LineSplitter(longest).push(stream));
  const cut = valueOf(refusals, () => {
    const lines = new LineSplitter(longest);
    const found: string[] = [];
    for (let at = 0; at < stream.length; at += 1 + (step % 7))
      found.push(...lines.push(stream.subarray(at, at + 1 + (step % 7))));
    return found;
  });
  deepStrictEqual(cut, whole);
  for (const line of whole ?? []) valueOf(refusals, () => readEvent(line));
}

function page(bytes: Uint8Array): void {
  valueOf(refusals, () => readPage(textOf(bytes)));
}

/** The overlay as this host sees it. */
class Overlay {
  readonly #leases = new NodeLeases({
    own: "own",
    wasKnown: (network) => network === "10.244.3.0/24",
  });
  readonly #registry = new Registry();

  constructor() {
    this.#leases.configure(config);
  }

  apply(change: (leases: NodeLeases) => ReturnType<NodeLeases["put"]>): void {
    const events = change(this.#leases);
    this.#registry.apply({ kind: "changes", revision: this.#leases.revision, events });
  }

  get keys(): Set<string> {
    return new Set([...this.#registry].map(({ key }) => key));
  }
}

/** Whatever foreign Nodes say, and in whatever order, this host and the other keep their leases. */
function node(bytes: Uint8Array): void {
  const events = textOf(bytes)
    .split("\n")
    .slice(0, 4)
    .flatMap((line) => valueOf(refusals, () => readEvent(line)) ?? []);
  const foreign = events.flatMap((event, i) =>
    event.kind === "bookmark" ? [] : [readNode({ ...event.object, name: `foreign-${i}` }, prefix)],
  );
  const ours = [known("own", 1), known("other", 2)];
  const overlay = new Overlay();
  overlay.apply((leases) => leases.replace(ours));
  const before = overlay.keys;
  for (const each of foreign) overlay.apply((leases) => leases.put(each));
  for (const each of foreign.toReversed())
    overlay.apply((leases) => leases.put({ ...each, name: foreign[0]?.name ?? "" }));
  overlay.apply((leases) => leases.replace([...foreign, ...ours]));
  // Pods of this host have a subnet that its Node lost.
  overlay.apply((leases) => leases.keep({ v4: "10.244.3.0/24" as Cidr, v6: undefined }));
  overlay.apply((leases) => leases.keep(undefined));
  overlay.apply((leases) => leases.configure(config));
  for (const each of foreign) overlay.apply((leases) => leases.delete(each.name, each.uid));
  overlay.apply((leases) => leases.replace(ours));
  deepStrictEqual(overlay.keys, before);

  // What this host's own Node says may have been written by others, too.
  for (const { annotations: said } of foreign) {
    const unread = unreadAddress(said, config);
    if (unread?.text === "") throw new Error("An annotation that is not there is not read");
    const value = parseLeaseValue(leaseTextOf(said) ?? "");
    const attributes = value && attributesOf(value);
    if (attributes !== undefined) isDataOf(said, { attributes });
  }

  // This host's own Node comes last, and has its lease all the same.
  const late = new Overlay();
  late.apply((leases) => leases.replace(foreign));
  for (const each of ours) late.apply((leases) => leases.put(each));
  if (!late.keys.has([...before][0] ?? "")) throw new Error("This host has no lease");
}

const annotations = (n: number, more: object = {}): object => ({
  [`${prefix}/kube-subnet-manager`]: "true",
  [`${prefix}/backend-type`]: "vxlan",
  [`${prefix}/backend-data`]: `{"VNI":1,"VtepMAC":"02:00:00:00:00:0${n}"}`,
  [`${prefix}/public-ip`]: `192.0.2.${n}`,
  ...more,
});

const nodeJson = (n: number, more: object = {}, notes: object = {}): object => ({
  metadata: {
    name: `node-${n}`,
    uid: `${n}`,
    resourceVersion: `${n}`,
    creationTimestamp: "2026-01-01T00:00:00Z",
    annotations: annotations(n, notes),
  },
  spec: { podCIDR: `10.244.${n}.0/24`, podCIDRs: [`10.244.${n}.0/24`, `fd00:0:0:${n}::/64`] },
  status: { conditions: [{ type: "NetworkUnavailable", status: "True" }] },
  ...more,
});

const known = (name: string, n: number) =>
  readNode({ name, uid: name, resourceVersion: "1", json: nodeJson(n) }, prefix);

const put = (object: object): object => ({ type: "MODIFIED", object });

/** A watch of Kubernetes' API server, its lists, and what its Nodes say. */
export const kubernetes: Target = {
  name: "kubernetes",
  files: [
    "kubernetes/lines.ts",
    "kubernetes/objects.ts",
    "kubernetes/json.ts",
    "overlay/kube/node.ts",
    "overlay/kube/node-leases.ts",
    "overlay/kube/occupied.ts",
    "overlay/kube/annotations.ts",
  ],
  except: [
    "ownAnnotations",
    "firstAddress",
    "isAnnotated",
    "nodeOfKey",
    "get own",
    "get refused",
    "addressIn",
  ],
  seeds: [
    ...[
      `${JSON.stringify(put(nodeJson(3)))}\n`,
      '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n\n{"type":"BOOKMARK"}\n',
      '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}\n',
      '{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}}\n',
      "ü\n緑",
      `${"x".repeat(800)}\n`,
      "{\n",
    ].map((text) => chosen(0, Uint8Array.of(2, ...utf8(text)))),
    ...[
      { items: [nodeJson(3)], metadata: { resourceVersion: "7", continue: "next" } },
      { items: null, metadata: { resourceVersion: "7" } },
      { items: 5, metadata: { resourceVersion: "7" } },
      { items: [{ metadata: {} }], metadata: { resourceVersion: "7" } },
      {},
      [],
    ].map((one) => chosen(1, json(one))),
    ...[
      nodeJson(3),
      nodeJson(1),
      nodeJson(3, { spec: { podCIDR: "0.0.0.0/0" } }),
      nodeJson(3, { spec: { podCIDR: "10.244.2.128/25" } }),
      nodeJson(3, { spec: { podCIDR: "10.244.0.0/18" } }),
      nodeJson(3, { spec: { podCIDRs: ["fd00:0:0:2::/64"] } }),
      nodeJson(3, { spec: { podCIDRs: ["fd00:0:0:9::/64", "10.244.9.0/24"] } }),
      nodeJson(3, { spec: { podCIDRs: ["10.244.9.0/24", "10.244.8.0/24", "10.244.7.0/24"] } }),
      nodeJson(3, { spec: { podCIDRs: [5, null] }, status: { conditions: [null, 5, {}] } }),
      nodeJson(3, { spec: null, status: { conditions: 5 } }),
      nodeJson(3, {}, { [`${prefix}/backend-data`]: '{"VtepMAC":"02:00:00:00:00:02"}' }),
      nodeJson(3, {}, { [`${prefix}/backend-data`]: "{" }),
      nodeJson(3, {}, { [`${prefix}/backend-v6-data`]: "null" }),
      nodeJson(3, {}, { [`${prefix}/backend-type`]: "host-gw" }),
      nodeJson(3, {}, { [`${prefix}/public-ip`]: 5 }),
      nodeJson(3, {}, { [`${prefix}/public-ip-overwrite`]: "192.0.2.77" }),
      nodeJson(3, {}, { [`${prefix}/public-ipv6-overwrite`]: "host" }),
      nodeJson(3, {}, { [`${prefix}/kube-subnet-manager`]: "no" }),
      nodeJson(3, {}, { [`${prefix}/backend-data`]: "x".repeat(5000) }),
      { metadata: { name: "a", uid: "a", resourceVersion: "1", annotations: 7 } },
    ].map((one) => chosen(2, json(put(one)))),
    ...[
      [nodeJson(3), nodeJson(4)],
      [nodeJson(3), nodeJson(3)],
      [nodeJson(1, { spec: { podCIDR: "10.244.1.0/25" } }), nodeJson(2)],
      [nodeJson(3), nodeJson(4, { spec: { podCIDR: "10.244.3.0/25" } }), nodeJson(4)],
      [nodeJson(3), { metadata: { name: "a", uid: "b", resourceVersion: "1" } }],
    ].map((some) => chosen(2, utf8(some.map((one) => JSON.stringify(put(one))).join("\n")))),
  ],
  words: [
    '"podCIDR":"',
    '"podCIDRs":["',
    "10.244.2.0/24",
    "10.244.0.0/17",
    "fd00:0:0:2::/64",
    "0.0.0.0/0",
    "02:00:00:00:00:02",
    `"${prefix}/backend-data":"`,
    '"type":"ADDED"',
    "__proto__",
    "\n",
  ],
  longest: 8192,
  run: choosing([watch, page, node]),
};
