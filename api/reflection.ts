import {
  create,
  createRegistry,
  type DescFile,
  type DescService,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import {
  ServerReflection,
  type ServerReflectionRequest,
  ServerReflectionResponseSchema,
} from "./gen/grpc/reflection/v1/reflection_pb.ts";
import { addService } from "./service.ts";

type Answer = NonNullable<
  MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]
>;

const failure = (errorCode: Code, errorMessage: string): Answer => ({
  case: "errorResponse",
  value: { errorCode, errorMessage },
});

/** A file and all it imports, each once. */
function withImports(file: DescFile, into = new Set<DescFile>()): Set<DescFile> {
  if (into.has(file)) return into;
  into.add(file);
  for (const imported of file.dependencies) withImports(imported, into);
  return into;
}

const files = (file: DescFile): Answer => ({
  case: "fileDescriptorResponse",
  value: {
    fileDescriptorProto: [...withImports(file)].map((f) =>
      toBinary(FileDescriptorProtoSchema, f.proto),
    ),
  },
});

/** Answers one question of grpc.reflection.v1 about the services. */
function answerer(services: readonly DescService[]): (asked: ServerReflectionRequest) => Answer {
  const all = new Set(services.flatMap((service) => [...withImports(service.file)]));
  const registry = createRegistry(...all);
  // A symbol may be a method or a field too; its parent's file answers for it.
  const fileOf = (symbol: string): DescFile | undefined =>
    (registry.get(symbol) ?? registry.get(symbol.slice(0, symbol.lastIndexOf("."))))?.file;
  return ({ messageRequest: asked }) => {
    switch (asked.case) {
      case "listServices":
        return {
          case: "listServicesResponse",
          value: { service: services.map((service) => ({ name: service.typeName })) },
        };
      case "fileByFilename":
      case "fileContainingSymbol": {
        const file =
          asked.case === "fileByFilename"
            ? [...all].find((f) => f.proto.name === asked.value)
            : fileOf(asked.value);
        return file === undefined
          ? failure(Code.NotFound, `"${asked.value}" is not known here`)
          : files(file);
      }
      case "allExtensionNumbersOfType":
      case "fileContainingExtension":
        return failure(Code.NotFound, "There are no extensions here");
      default:
        return failure(Code.Unimplemented, "That question is not known here");
    }
  };
}

/**
 * Serves grpc.reflection.v1 for the services:
 * https://github.com/grpc/grpc/blob/master/doc/server-reflection.md
 */
export function addReflection(router: ConnectRouter, services: readonly DescService[]): void {
  const answer = answerer([...services, ServerReflection]);
  addService(router, ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const originalRequest of requests) {
        yield create(ServerReflectionResponseSchema, {
          validHost: originalRequest.host,
          originalRequest,
          messageResponse: answer(originalRequest),
        });
      }
    },
  });
}
