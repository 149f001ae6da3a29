import type { MessageInitShape } from "@bufbuild/protobuf";
import { assertNever } from "../core/brand.ts";
import type {
  Answer,
  Compare,
  KeyValue,
  Operation,
  OperationResult,
  Value,
  WatchEvent,
  Where,
} from "./etcd.ts";
import {
  Compare_CompareResult as Result,
  Compare_CompareTarget as Target,
  type CompareSchema,
  type RequestOpSchema,
  type ResponseHeader,
  type ResponseOp,
} from "./gen/etcdserverpb/rpc_pb.ts";
import { type Event, Event_EventType, type KeyValue as WireKeyValue } from "./gen/mvccpb/kv_pb.ts";

/** Between what `etcd.ts` says and what travels. */

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export const bytesOf = (value: Value): Uint8Array<ArrayBuffer> =>
  typeof value === "string" ? encoder.encode(value) : new Uint8Array(value);

/** The key, or the range from a prefix to the first key behind all that begin with it. */
export function rangeOf(where: Where): {
  key: Uint8Array<ArrayBuffer>;
  rangeEnd: Uint8Array<ArrayBuffer>;
} {
  if ("key" in where) return { key: bytesOf(where.key), rangeEnd: new Uint8Array() };
  const key = bytesOf(where.prefix);
  // To etcd a zero byte alone is: from the first key on, to the last.
  if (key.length === 0) return { key: Uint8Array.of(0), rangeEnd: Uint8Array.of(0) };
  // (UTF-8 has no byte 0xff.)
  const rangeEnd = key.slice();
  rangeEnd[rangeEnd.length - 1] = (rangeEnd.at(-1) ?? 0) + 1;
  return { key, rangeEnd };
}

export const answerOf = (header: ResponseHeader | undefined): Answer => ({
  revision: header?.revision ?? 0n,
  cluster: header?.clusterId ?? 0n,
});

export const keyValueOf = (kv: WireKeyValue): KeyValue => ({
  key: decoder.decode(kv.key),
  value: kv.value,
  createRevision: kv.createRevision,
  modRevision: kv.modRevision,
  version: kv.version,
  lease: kv.lease,
});

export function eventsOf(events: readonly Event[]): WatchEvent[] {
  return events.flatMap(({ type, kv }): WatchEvent[] => {
    if (kv === undefined) return [];
    const { key, modRevision } = keyValueOf(kv);
    return type === Event_EventType.DELETE
      ? [{ kind: "delete", key, modRevision }]
      : [{ kind: "put", kv: keyValueOf(kv) }];
  });
}

const results = {
  "=": Result.EQUAL,
  "!=": Result.NOT_EQUAL,
  ">": Result.GREATER,
  "<": Result.LESS,
} as const;

const targets = {
  version: Target.VERSION,
  createRevision: Target.CREATE,
  modRevision: Target.MOD,
  lease: Target.LEASE,
  value: Target.VALUE,
} as const;

export function wireCompare(compare: Compare): MessageInitShape<typeof CompareSchema> {
  const { target } = compare;
  return {
    key: bytesOf(compare.key),
    result: results[compare.is],
    target: targets[target],
    targetUnion:
      target === "value"
        ? { case: target, value: bytesOf(compare.value) }
        : { case: target, value: compare.value },
  };
}

export function wireOperation(operation: Operation): MessageInitShape<typeof RequestOpSchema> {
  switch (operation.kind) {
    case "put": {
      const value = {
        key: bytesOf(operation.key),
        value: bytesOf(operation.value),
        lease: operation.lease ?? 0n,
      };
      return { request: { case: "requestPut", value } };
    }
    case "delete":
      return { request: { case: "requestDeleteRange", value: rangeOf(operation.where) } };
    case "range":
      return { request: { case: "requestRange", value: rangeOf(operation.where) } };
    default:
      return assertNever(operation);
  }
}

export function resultOf({ response }: ResponseOp): OperationResult {
  switch (response.case) {
    case "responseDeleteRange":
      return { kind: "delete", deleted: Number(response.value.deleted) };
    case "responseRange":
      return { kind: "range", kvs: response.value.kvs.map(keyValueOf) };
    default:
      return { kind: "put" };
  }
}
