/**
 * The JSON API as an OpenAPI document: made from the .proto files, whose comments are its
 * descriptions. The JSON of a message is ProtoJSON (protobuf.dev, "ProtoJSON format").
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import {
  createFileRegistry,
  type DescEnum,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescMethod,
  fromBinary,
  ScalarType,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { connectCodes } from "../../api/codes.ts";
import { errorCodes } from "../../core/errors.ts";

const top = path.resolve(import.meta.dirname, "../..");

type Schema = Readonly<Record<string, unknown>>;

/** The .proto files with their comments, as buf reads them. */
function descriptors(): DescFile[] {
  const env = { ...process.env, PATH: `${path.dirname(process.execPath)}:${process.env["PATH"]}` };
  const buf = path.join(top, "node_modules/.bin/buf");
  const made = spawnSync(buf, ["build", "api", "--as-file-descriptor-set", "-o", "-"], {
    cwd: top,
    env,
    maxBuffer: 1 << 26,
  });
  if (made.status !== 0) throw new Error(`buf build: ${made.stderr.toString()}`);
  const set = fromBinary(FileDescriptorSetSchema, made.stdout);
  return [...createFileRegistry(set).files].filter(({ name }) => name.startsWith("podnet/v1/"));
}

/** Field numbers of descriptor.proto, of which the path of a comment is made. */
const at = { message: 4, enum: 5, service: 6, nested: 3, nestedEnum: 4, field: 2, method: 2 };

/** The comments of a file by the path of what they are about. */
function commentsOf({ proto }: DescFile): ReadonlyMap<string, string> {
  const said = new Map<string, string>();
  for (const { path: place, leadingComments } of proto.sourceCodeInfo?.location ?? []) {
    const text = leadingComments.replaceAll(/\s+/g, " ").trim();
    if (text !== "") said.set(place.join("."), text);
  }
  return said;
}

/** The path of a message or an enum in its file. */
function pathOf(desc: DescMessage | DescEnum): string {
  const { parent, file } = desc;
  if (parent === undefined) {
    const among = desc.kind === "message" ? file.messages : file.enums;
    return `${at[desc.kind]}.${(among as readonly unknown[]).indexOf(desc)}`;
  }
  const among = desc.kind === "message" ? parent.nestedMessages : parent.nestedEnums;
  const kind = desc.kind === "message" ? at.nested : at.nestedEnum;
  return `${pathOf(parent)}.${kind}.${(among as readonly unknown[]).indexOf(desc)}`;
}

/** Messages that ProtoJSON writes in a form of their own. */
const wellKnown: Readonly<Record<string, Schema>> = {
  "google.protobuf.Timestamp": { type: "string", format: "date-time" },
  "google.protobuf.Duration": { type: "string" },
  "google.protobuf.Struct": { type: "object" },
  "google.protobuf.Value": {},
};

const integer = (minimum: number, maximum: number): Schema => ({
  type: "integer",
  minimum,
  maximum,
});
const int32 = integer(-(2 ** 31), 2 ** 31 - 1);
const uint32 = integer(0, 2 ** 32 - 1);
const int64: Schema = { type: "string", pattern: "^-?[0-9]+$" };
const uint64: Schema = { type: "string", pattern: "^[0-9]+$" };
const number: Schema = { oneOf: [{ type: "number" }, { enum: ["NaN", "Infinity", "-Infinity"] }] };

const scalars: Readonly<Record<ScalarType, Schema>> = {
  [ScalarType.DOUBLE]: number,
  [ScalarType.FLOAT]: number,
  [ScalarType.INT64]: int64,
  [ScalarType.UINT64]: uint64,
  [ScalarType.INT32]: int32,
  [ScalarType.FIXED64]: uint64,
  [ScalarType.FIXED32]: uint32,
  [ScalarType.BOOL]: { type: "boolean" },
  [ScalarType.STRING]: { type: "string" },
  [ScalarType.BYTES]: { type: "string", contentEncoding: "base64" },
  [ScalarType.UINT32]: uint32,
  [ScalarType.SFIXED32]: int32,
  [ScalarType.SFIXED64]: int64,
  [ScalarType.SINT32]: int32,
  [ScalarType.SINT64]: int64,
};

const referenceTo = ({ typeName }: DescMessage | DescEnum): Schema =>
  wellKnown[typeName] ?? { $ref: `#/components/schemas/${typeName}` };

function valueOf({ scalar, enum: names, message }: DescField): Schema {
  if (scalar !== undefined) return scalars[scalar];
  return referenceTo(names ?? message);
}

function fieldSchema(field: DescField, said: string | undefined): Schema {
  const value = valueOf(field);
  const schema =
    field.fieldKind === "list"
      ? { type: "array", items: value }
      : field.fieldKind === "map"
        ? { type: "object", additionalProperties: value }
        : value;
  return said === undefined ? schema : { ...schema, description: said };
}

function messageSchema(message: DescMessage, comments: ReadonlyMap<string, string>): Schema {
  const place = pathOf(message);
  const said = comments.get(place);
  const properties = message.fields.map((field, i) => [
    field.jsonName,
    fieldSchema(field, comments.get(`${place}.${at.field}.${i}`)),
  ]);
  // One field of a oneof at most is there. Optional fields are oneofs of one field.
  const groups = message.oneofs.filter(({ fields }) => fields.length > 1);
  const alternatives = groups.map(({ fields }) => ({
    oneOf: [
      ...fields.map(({ jsonName }) => ({ required: [jsonName] })),
      { not: { anyOf: fields.map(({ jsonName }) => ({ required: [jsonName] })) } },
    ],
  }));
  return {
    type: "object",
    ...(said === undefined ? {} : { description: said }),
    properties: Object.fromEntries(properties),
    ...(alternatives.length === 0 ? {} : { allOf: alternatives }),
  };
}

const enumSchema = (desc: DescEnum, comments: ReadonlyMap<string, string>): Schema => {
  const said = comments.get(pathOf(desc));
  return {
    type: "string",
    ...(said === undefined ? {} : { description: said }),
    enum: desc.values.map(({ name }) => name),
  };
};

/** An error of Connect's protocol: connectrpc.com, "Error end-stream and unary errors". */
const errorSchema: Schema = {
  type: "object",
  description: "A failed call. The first detail is a podnet.v1.ErrorInfo.",
  required: ["code"],
  properties: {
    code: {
      type: "string",
      description: "The gRPC status in lower case, such as invalid_argument.",
    },
    message: { type: "string" },
    details: {
      type: "array",
      items: {
        type: "object",
        required: ["type", "value"],
        properties: {
          type: { type: "string" },
          value: { type: "string", contentEncoding: "base64" },
          debug: {},
        },
      },
    },
  },
};

const json = (schema: Schema): Schema => ({ content: { "application/json": { schema } } });

function operation(method: DescMethod, said: string | undefined): Schema {
  const service = method.parent;
  return {
    post: {
      operationId: `${service.name}_${method.name}`,
      tags: [service.name],
      ...(said === undefined ? {} : { description: said }),
      requestBody: { required: true, ...json(referenceTo(method.input)) },
      responses: {
        "200": { description: "The answer", ...json(referenceTo(method.output)) },
        default: {
          description: "The call failed",
          ...json({ $ref: "#/components/schemas/connect.error" }),
        },
      },
    },
  };
}

/** Every message and enum of a file, those within messages too. */
function typesOf(file: DescFile): (DescMessage | DescEnum)[] {
  const within = (message: DescMessage): (DescMessage | DescEnum)[] => [
    message,
    ...message.nestedEnums,
    ...message.nestedMessages.flatMap(within),
  ];
  return [...file.enums, ...file.messages.flatMap(within)];
}

/** The OpenAPI document of all calls that answer once. Streams have no form in OpenAPI. */
export function openApiDocument(): string {
  const files = descriptors();
  const { version } = JSON.parse(readFileSync(path.join(top, "package.json"), "utf8")) as {
    version: string;
  };
  const schemas: Record<string, Schema> = {};
  const paths: Record<string, Schema> = {};
  for (const file of files) {
    const comments = commentsOf(file);
    for (const type of typesOf(file))
      schemas[type.typeName] =
        type.kind === "message" ? messageSchema(type, comments) : enumSchema(type, comments);
    for (const [i, service] of file.services.entries())
      for (const [j, method] of service.methods.entries())
        if (method.methodKind === "unary")
          paths[`/${service.typeName}/${method.name}`] = operation(
            method,
            comments.get(`${at.service}.${i}.${at.method}.${j}`),
          );
  }
  const statuses = new Set(Object.values(connectCodes)).size;
  const document = {
    openapi: "3.1.0",
    info: {
      title: "podnet",
      version,
      description: [
        "The JSON API of podnetd: each call is a POST of its request. Empty fields are left out of",
        `answers. Errors have one of ${statuses} statuses and, in podnet.v1.ErrorInfo, one of`,
        `${errorCodes.length} codes.`,
      ].join(" "),
    },
    servers: [{ url: "http://podnet", description: "By the unix socket /run/podnet/podnet.sock" }],
    paths,
    components: { schemas: { ...schemas, "connect.error": errorSchema } },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}
