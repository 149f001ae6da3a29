import { globSync } from "node:fs";
import path from "node:path";
import { create, type DescField, type DescMessage, ScalarType, toJson } from "@bufbuild/protobuf";
import type { GenFile } from "@bufbuild/protobuf/codegenv2";
import { reflect, type ReflectMessage } from "@bufbuild/protobuf/reflect";
import test from "ava";
import { differences, documentedCalls } from "./fixtures/openapi.ts";

const gen = path.resolve(import.meta.dirname, "../../../api/gen/podnet/v1");
const modules = globSync("*_service_pb.ts", { cwd: gen }).map((name) => path.join(gen, name));
const exported = await Promise.all(modules.map((file) => import(file) as Promise<object>));
const files = exported
  .flatMap((each) => Object.entries(each))
  .filter(([name]) => name.startsWith("file_"))
  .map(([, file]) => file as GenFile);
const methods = files.flatMap(({ services }) => services).flatMap(({ methods: all }) => all);

test("every call that answers once is in the document, and no other", (t) => {
  const unary = methods
    .filter(({ methodKind }) => methodKind === "unary")
    .map(({ parent, name }) => `/${parent.typeName}/${name}`);
  t.deepEqual([...documentedCalls].toSorted(), unary.toSorted());
});

const largest: Readonly<Partial<Record<ScalarType, unknown>>> = {
  [ScalarType.STRING]: 'text "with" \u0000 anything',
  [ScalarType.BYTES]: new Uint8Array([0, 255]),
  [ScalarType.BOOL]: true,
  [ScalarType.DOUBLE]: Number.NaN,
  [ScalarType.FLOAT]: -0.5,
  [ScalarType.INT64]: -(2n ** 63n),
  [ScalarType.SINT64]: -1n,
  [ScalarType.SFIXED64]: -1n,
  [ScalarType.UINT64]: 2n ** 64n - 1n,
  [ScalarType.FIXED64]: 1n,
};

/** A message whose every field is set, of oneofs the one that is wanted; messages in it too. */
function filled(desc: DescMessage, oneofAt: number, depth = 0): ReflectMessage {
  const message = reflect(desc, create(desc));
  // Its JSON is a date, of the years 1 to 9999.
  if (desc.typeName === "google.protobuf.Timestamp") return message;
  for (const field of desc.fields) {
    const { oneof } = field;
    if (oneof !== undefined && oneof.fields[oneofAt % oneof.fields.length] !== field) continue;
    set(message, field, oneofAt, depth);
  }
  return message;
}

function set(message: ReflectMessage, field: DescField, oneofAt: number, depth: number): void {
  const one = (): unknown => {
    if (field.enum !== undefined) return field.enum.values.at(-1)?.number;
    if (field.message !== undefined) return filled(field.message, oneofAt, depth + 1);
    return largest[field.scalar ?? ScalarType.STRING] ?? 7;
  };
  // (Value and Struct hold each other without an end.)
  if (field.message !== undefined && (depth > 5 || /Struct|Value/.test(field.message.typeName)))
    return;
  if (field.fieldKind === "list") message.get(field).add(one());
  else if (field.fieldKind === "map")
    message.get(field).set(field.mapKey === ScalarType.STRING ? "key" : 7, one());
  else message.set(field, one());
}

test("the JSON of every message fits the document, empty and with every field", (t) => {
  const types = new Set(methods.flatMap(({ input, output }) => [input, output]));
  t.true(types.size > 80, `${types.size}`);
  for (const desc of types) {
    t.deepEqual(differences(desc.typeName, toJson(desc, create(desc))), [], desc.typeName);
    for (const oneofAt of [0, 1, 2, 3]) {
      const message = filled(desc, oneofAt).message;
      t.deepEqual(differences(desc.typeName, toJson(desc, message)), [], desc.typeName);
    }
  }
});

test("what the document does not have is noticed", (t) => {
  t.regex(differences("podnet.v1.Pod", { nmae: "web" })[0] ?? "", /nmae/);
  t.not(differences("podnet.v1.Pod", { name: 7 }).length, 0);
  t.not(differences("podnet.v1.Pod", { state: "RUNNING" }).length, 0);
  t.not(differences("podnet.v1.ExecResponse", { stdout: "", stderr: "" }).length, 0);
  t.not(differences("connect.error", {}).length, 0);
});
