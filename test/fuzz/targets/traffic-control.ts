import { parseNamespaceId } from "../../../linux/rtnetlink/namespace-id.ts";
import { addIngress, parseQdisc, setTokenBucket } from "../../../linux/rtnetlink/qdisc.ts";
import { addRedirect, parseFilter } from "../../../linux/rtnetlink/redirect.ts";
import { readTcmsg } from "../../../linux/rtnetlink/traffic-control.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { type Target, valueOf } from "../engine/target.ts";
import { attributeLengths, payload } from "./rtnetlink-bytes.ts";

const folder = "linux/rtnetlink";
const refusals = ["NETLINK_FAILED"] as const;
const header = 20;
const bucket = { rate: 125_000, burst: 102_400, limit: 20_000 };

const message = (kind: string, options?: Uint8Array): Uint8Array => {
  const writer = new Writer().raw(new Uint8Array(header)).attributeText(1, kind);
  return (options === undefined ? writer : writer.attribute(2, options)).finish();
};

/**
 * What holds a rate beyond 32 bits: the field that holds it, or too few bytes of it, or none.
 */
const fast = (rate64: Uint8Array | undefined): Uint8Array => {
  const parms = new Uint8Array(36).fill(255);
  const writer = new Writer().attribute(1, parms);
  return message("tbf", (rate64 ? writer.attribute(4, rate64) : writer).finish());
};

const queues: Target = {
  name: "rtnetlink-queues",
  files: [`${folder}/qdisc.ts`, `${folder}/traffic-control.ts`],
  only: ["parseQdisc", "readBucket", "readRate64", "readTcmsg"],
  seeds: [
    setTokenBucket(3, bucket).payload,
    setTokenBucket(3, { ...bucket, rate: 2 ** 40 }).payload,
    addIngress(3).payload,
    message("tbf"),
    message("tbf", new Uint8Array(0)),
    message("noqueue"),
    fast(new Uint8Array(8)),
    fast(new Uint8Array(4)),
    fast(undefined),
    new Uint8Array(header),
    new Uint8Array(3),
  ],
  words: ["tbf", "ingress", "noqueue", "\0\0\0\0"],
  generate: payload(header),
  lengths: (bytes) => attributeLengths(bytes, header),
  run: (bytes) => {
    const whole = valueOf(refusals, () => readTcmsg(bytes, "a queue"));
    const queue = valueOf(refusals, () => parseQdisc(bytes));
    if (queue !== undefined && whole?.header.index !== queue.index)
      throw new Error("Another link's queue");
    if (queue?.tbf !== undefined && !(queue.tbf.rate >= 0)) throw new Error("No rate");
  },
};

const selector = (flags: number, keys: number, mask: number): Uint8Array =>
  new Writer()
    .u8(flags)
    .u8(0)
    .u8(keys)
    .u8(0)
    .raw(new Uint8Array(12))
    .u32(mask)
    .raw(new Uint8Array(12))
    .finish();

const filter = (chosen: Uint8Array, actions?: Uint8Array): Uint8Array => {
  const writer = new Writer().attribute(5, chosen);
  return message("u32", (actions ? writer.attribute(7, actions) : writer).finish());
};

const action = (kind: string, own?: Uint8Array): Uint8Array => {
  const writer = new Writer().attributeText(1, kind);
  return new Writer().attribute(1, (own ? writer.attribute(2, own) : writer).finish()).finish();
};

const mirred = (verdict: number, how: number): Uint8Array =>
  new Writer()
    .attribute(2, new Writer().u32(0).u32(0).i32(verdict).i32(0).i32(0).i32(how).u32(5).finish())
    .finish();

const all = selector(1, 1, 0);
const filters: Target = {
  name: "rtnetlink-filters",
  files: [`${folder}/redirect.ts`],
  only: ["parseFilter", "matchesAll", "redirection"],
  seeds: [
    addRedirect(3, 5).payload,
    message("u32"),
    message("u32", new Uint8Array(0)),
    message("matchall", new Uint8Array(0)),
    message("matchall"),
    filter(all),
    filter(selector(0, 1, 0)),
    filter(selector(1, 2, 0)),
    filter(selector(1, 1, 7)),
    filter(new Uint8Array(3)),
    filter(all, new Uint8Array(0)),
    filter(all, action("gact")),
    filter(all, action("mirred")),
    filter(all, action("mirred", new Uint8Array(0))),
    filter(all, action("mirred", mirred(4, 1))),
    filter(all, action("mirred", mirred(4, 2))),
    filter(all, action("mirred", mirred(3, 1))),
  ],
  words: ["u32", "mirred", "matchall", "\0\0\0\0"],
  generate: payload(header),
  lengths: (bytes) => attributeLengths(bytes, header),
  run: (bytes) => {
    const found = valueOf(refusals, () => parseFilter(bytes));
    if (found?.redirectsTo !== undefined && found.kind !== "u32")
      throw new Error("Another kind redirects");
  },
};

const identified = (id: number): Uint8Array => new Writer().u32(0).attributeU32(1, id).finish();
const namespaceIds: Target = {
  name: "rtnetlink-namespace-id",
  files: [`${folder}/namespace-id.ts`],
  only: ["parseNamespaceId"],
  seeds: [identified(0), identified(0xffffffff), new Uint8Array(4), new Uint8Array(2)],
  lengths: (bytes) => attributeLengths(bytes, 4),
  run: (bytes) => {
    const id = valueOf(refusals, () => parseNamespaceId(bytes));
    if (id === -1) throw new Error("None is no number");
  },
};

export const trafficControl = [queues, filters, namespaceIds];
