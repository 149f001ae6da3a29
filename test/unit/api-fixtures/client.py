"""A gRPC client that is not JavaScript: grpcio's C core. Learns podnet.v1 by reflection, calls it, prints JSON."""
import json
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

socket, standards = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
with open(standards, "rb") as file:
    for proto in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
        pool.Add(proto)


def message(name):
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(name))


def codec(service, method):
    found = pool.FindServiceByName(service).FindMethodByName(method)
    request, response = message(found.input_type.full_name), message(found.output_type.full_name)
    return f"/{service}/{method}", request, response


def unary(service, method, body, **options):
    path, request, response = codec(service, method)
    call = channel.unary_unary(path, request.SerializeToString, response.FromString)
    return json_format.MessageToDict(call(json_format.ParseDict(body, request()), timeout=20, **options))


def stream(service, method, bodies):
    path, request, response = codec(service, method)
    call = channel.stream_stream(path, request.SerializeToString, response.FromString)
    return [r for r in call((json_format.ParseDict(b, request()) for b in bodies), timeout=20)]


def server_stream(service, method, body):
    path, request, response = codec(service, method)
    call = channel.unary_stream(path, request.SerializeToString, response.FromString)
    return [json_format.MessageToDict(r) for r in call(json_format.ParseDict(body, request()), timeout=20)]


def failed(call):
    try:
        call()
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        return {"code": error.code().name, "message": error.details(), "typed": b"podnet.v1.ErrorInfo" in details}
    return None


channel = grpc.insecure_channel("unix:" + socket)
reflection = "grpc.reflection.v1.ServerReflection"
out = {}
listed, described, missing = stream(
    reflection,
    "ServerReflectionInfo",
    [{"listServices": "*"}, {"fileContainingSymbol": "podnet.v1.PodService.Create"}, {"fileContainingSymbol": "no.Such"}],
)
out["services"] = [s.name for s in listed.list_services_response.service]
out["missing"] = missing.error_response.error_code
files = [descriptor_pb2.FileDescriptorProto.FromString(f) for f in described.file_descriptor_response.file_descriptor_proto]
out["files"] = [f.name for f in files]
waiting = files
while waiting:
    # A file can be added once all it imports are there.
    ready = [f for f in waiting if all(d not in [w.name for w in waiting] for d in f.dependency)]
    for f in ready:
        pool.Add(f)
    waiting = [f for f in waiting if f not in ready]
out["serving"] = unary("grpc.health.v1.Health", "Check", {"service": "podnet.v1.PodService"})
out["unknown"] = failed(lambda: unary("grpc.health.v1.Health", "Check", {"service": "no.Such"}))
out["created"] = unary("podnet.v1.PodService", "Create", {"spec": {"name": "web"}})
out["refused"] = failed(lambda: unary("podnet.v1.PodService", "Create", {"spec": {"name": "taken"}}))
out["absent"] = failed(lambda: unary("podnet.v1.PodService", "Get", {"idOrName": "x"}))
out["progress"] = server_stream("podnet.v1.PodService", "CreateStream", {"spec": {"name": "web"}})
out["exec"] = [
    json_format.MessageToDict(r)
    for r in stream(
        "podnet.v1.PodService",
        "Exec",
        [{"start": {"idOrName": "web", "args": ["cat"]}}, {"stdin": "aGk="}, {"closeStdin": {}}],
    )
]
print(json.dumps(out))
