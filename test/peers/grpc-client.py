"""A gRPC client that is not JavaScript: grpcio's C core, without generated code.

Learns every service by reflection, makes the calls of a JSON list on standard input, prints what came of each as JSON.
A call: {"service", "method", "messages": [...], "take": N}; `take` ends a stream after N answers.
What comes of it: {"answers": [...]} or {"answers": [...], "error": {"code", "message", "info"}}.
"""
import itertools
import json
import sys

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, json_format, message_factory

socket, standards = sys.argv[1:]
channel = grpc.insecure_channel("unix:" + socket)
pool = descriptor_pool.DescriptorPool()
field = descriptor_pb2.FieldDescriptorProto
# google/rpc/status.proto, as far as needed: what grpc-status-details-bin holds.
status = descriptor_pb2.FileDescriptorProto(name="status.proto", package="google.rpc", syntax="proto3")
status.dependency.append("google/protobuf/any.proto")
status.message_type.add(name="Status").field.add(
    name="details", number=3, label=field.LABEL_REPEATED, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Any"
)


def add(files):
    """Adds files to the pool, each once all it imports are there."""
    waiting = list({f.name: f for f in files}.values())
    while waiting:
        ready = [f for f in waiting if all(d not in [w.name for w in waiting] for d in f.dependency)]
        for f in ready:
            pool.Add(f)
        waiting = [f for f in waiting if f not in ready]


def message(name):
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(name))


def start(service, method, messages):
    """Begins a call; answers its responses as an iterator, whatever its kind."""
    found = pool.FindServiceByName(service).FindMethodByName(method)
    proto = descriptor_pb2.MethodDescriptorProto()
    found.CopyToProto(proto)
    request, response = message(found.input_type.full_name), message(found.output_type.full_name)
    bodies = [json_format.ParseDict(m, request()) for m in messages]
    kind = ("stream" if proto.client_streaming else "unary") + "_" + ("stream" if proto.server_streaming else "unary")
    stub = getattr(channel, kind)(f"/{service}/{method}", request.SerializeToString, response.FromString)
    answer = stub(iter(bodies) if proto.client_streaming else bodies[0], timeout=60)
    return answer if proto.server_streaming else iter([answer])


def call(service, method, messages, take=None):
    answers = []
    try:
        responses = start(service, method, messages)
        for response in itertools.islice(responses, take):
            answers.append(json_format.MessageToDict(response))
        if take is not None:
            responses.cancel()
    except grpc.RpcError as error:
        return {"answers": answers, "error": {"code": error.code().name, "message": error.details(), "info": info(error)}}
    return {"answers": answers}


def info(error):
    """The typed detail of an error."""
    packed = dict(error.trailing_metadata()).get("grpc-status-details-bin")
    if packed is None:
        return None
    (detail,) = message("google.rpc.Status").FromString(packed).details
    return json_format.MessageToDict(message(detail.type_url.rsplit("/", 1)[1]).FromString(detail.value))


with open(standards, "rb") as file:
    known = list(descriptor_pb2.FileDescriptorSet.FromString(file.read()).file)
anything = descriptor_pb2.FileDescriptorProto()
any_pb2.DESCRIPTOR.CopyToProto(anything)
add([*known, anything, status])
reflect = ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo")
(listed,) = start(*reflect, [{"listServices": "*"}])
services = [s.name for s in listed.list_services_response.service]
files = [anything]
for described in start(*reflect, [{"fileContainingSymbol": name} for name in services if not name.startswith("grpc.")]):
    files += map(descriptor_pb2.FileDescriptorProto.FromString, described.file_descriptor_response.file_descriptor_proto)
add([f for f in {f.name: f for f in files}.values() if f.name not in [k.name for k in [*known, anything]]])
print(json.dumps({"services": services, "files": [f.name for f in files], "results": [call(**c) for c in json.load(sys.stdin)]}))
