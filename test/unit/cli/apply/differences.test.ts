import { create, type JsonObject, toJson } from "@bufbuild/protobuf";
import test from "ava";
import { type PodSpec, PodSpecSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { differences } from "../../../../cli/commands/apply/differences.ts";

const whole = (spec: PodSpec): JsonObject =>
  toJson(PodSpecSchema, spec, { alwaysEmitImplicit: true }) as JsonObject;

test("a difference is shown with the names of a document, and nothing that it leaves out", (t) => {
  const wanted = create(PodSpecSchema, {
    interfaces: [{ network: "blue", guestName: "eth1" }],
    labels: { appName: "web" },
  });
  const named = { interfaces: [{ network: "blue" }], labels: { appName: "web" } };
  const found = differences(PodSpecSchema, named, whole(wanted), whole(create(PodSpecSchema)));
  t.deepEqual(
    new Map(found.map(({ field, was, becomes }) => [field, `${was} → ${becomes}`])),
    new Map([
      ["labels", '{} → {"appName":"web"}'],
      ["interfaces", '[] → [{"network":"blue","guest_name":"eth1"}]'],
    ]),
  );
});
