"""Creates a pod, prints its address, and deletes it: docs/reference/api.md."""
import os

import grpc
from podnet.v1 import pod_service_pb2, pod_service_pb2_grpc, pod_spec_pb2

with grpc.insecure_channel("unix:" + os.environ["PODNET_SOCKET"]) as channel:
    pods = pod_service_pb2_grpc.PodServiceStub(channel)
    spec = pod_spec_pb2.PodSpec(name="web", labels={"app": "shop"})
    pod = pods.Create(pod_service_pb2.CreatePodRequest(spec=spec), timeout=60).pod
    for interface in pod.interfaces:
        print(pod.name, list(interface.addresses))
    pods.Delete(pod_service_pb2.DeletePodRequest(id_or_name=pod.id), timeout=60)
