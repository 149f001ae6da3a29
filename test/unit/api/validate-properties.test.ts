import { create, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import * as fc from "fast-check";
import { CreatePodRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PodSpecSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { readJson } from "../../../api/json.ts";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { validateCreate } from "../../../api/validate/validate.ts";
import { familyOf, parseIp } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { NetworkName } from "../../../core/names.ts";

type SpecInit = MessageInitShape<typeof PodSpecSchema>;
type RequestInit = MessageInitShape<typeof CreatePodRequestSchema>;

const defaults = { network: "default" as NetworkName };
const check = (init: RequestInit): ReturnType<typeof validateCreate> =>
  validateCreate(create(CreatePodRequestSchema, init), defaults);
const specOf = (spec: SpecInit): PodSpec => check({ spec }).spec;

const one = (
  iface: NonNullable<SpecInit["interfaces"]>[number],
): { interfaces: NonNullable<SpecInit["interfaces"]> } => ({ interfaces: [iface] });

test("whatever text stands in a spec, the answer is a spec or a typed error naming a field", (t) => {
  const text = fc.oneof(fc.string(), fc.ipV4(), fc.ipV6(), fc.constantFrom("default", "eth0", ""));
  const init = fc.record({
    name: text,
    hostname: text,
    labels: fc.dictionary(text, text, { maxKeys: 3 }),
    interfaces: fc.array(
      fc.record({
        network: text,
        address: text,
        mac: text,
        mtu: fc.nat(70_000),
        gateway: text,
        guestName: text,
      }),
      { maxLength: 3 },
    ),
    routes: fc.array(fc.record({ destination: text, gateway: text, interface: text }), {
      maxLength: 3,
    }),
  });
  fc.assert(
    fc.property(init, (spec) => {
      try {
        t.true(specOf(spec).interfaces.length >= 1);
      } catch (thrown) {
        t.true(thrown instanceof PodnetError);
        t.truthy((thrown as PodnetError).field);
      }
    }),
  );
});

test("any unicast address is taken as written, canonical, and for a gateway too", (t) => {
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (text) => {
      const ip = parseIp(text);
      const refused = (spec: SpecInit): boolean => {
        try {
          specOf(spec);
          return false;
        } catch (thrown) {
          return thrown instanceof PodnetError && thrown.code === "ADDRESS_INVALID";
        }
      };
      if (refused(one({ address: text }))) return;
      t.is(specOf(one({ address: text })).interfaces[0]?.addresses?.[0], ip);
      t.is(specOf(one({ gateway: text })).interfaces[0]?.gateway, ip);
      t.false(familyOf(ip) === 4 && /^(?:0|127|22[4-9]|2[34]\d|25\d)\./.test(ip));
    }),
  );
});

test("whatever JSON comes, the answer is a message or a typed error", (t) => {
  const keys = fc.constantFrom(
    "spec",
    "name",
    "interfaces",
    "mtu",
    "labels",
    "__proto__",
    "dns",
    "x",
  );
  const { json } = fc.letrec<{ json: unknown }>((tie) => ({
    json: fc.oneof(
      { maxDepth: 5 },
      fc.jsonValue({ maxDepth: 1 }),
      fc.array(tie("json"), { maxLength: 3 }),
      fc.dictionary(keys, tie("json"), { maxKeys: 4, noNullPrototype: true }),
    ),
  }));
  fc.assert(
    fc.property(json, (value) => {
      try {
        readJson(CreatePodRequestSchema, value as JsonValue);
      } catch (thrown) {
        t.true(thrown instanceof PodnetError, String(thrown));
        t.regex((thrown as PodnetError).code, /^(?:UNKNOWN_FIELD|INVALID_ARGUMENT)$/);
      }
    }),
  );
});
