import { PodnetError } from "../../core/errors.ts";
import type { AttachPodRequest } from "../gen/podnet/v1/pod_service_pb.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { AttachSpec } from "../pod-spec.ts";
import { invalid } from "../fields.ts";
import { type CreateSpec, type SpecDefaults, validateCall, validateSpec } from "./validate.ts";
import { absolutePath } from "./disks.ts";

/** An attach, every field checked: a create whose VM is foreign. */
export interface AttachRequest extends CreateSpec {
  readonly spec: CreateSpec["spec"] & { readonly attached: AttachSpec };
}

/** Checks an attach. `field` of an error is the path within the spec, or that of the request. */
export function validateAttach(request: AttachPodRequest, defaults: SpecDefaults): AttachRequest {
  refuseMachine(request.spec);
  const attached = validateSockets(request);
  const spec = validateSpec(request.spec, defaults);
  const { agent } = spec.boot;
  if (attached.channel === undefined && agent === "hyperstart")
    throw invalid(
      "channel_socket",
      "A hyperstart cannot be reached without its channel",
      "Give the socket of its virtserialport sh.hyper.channel.0",
    );
  if (attached.channel !== undefined && agent === "none")
    throw invalid(
      "boot.agent",
      "A channel is of no use without an agent",
      "Leave out the agent, or the channel",
    );
  return {
    ...validateCall(request),
    spec: {
      ...spec,
      // The VM's own, which the request does not choose.
      resources: { vcpu: 0, memoryMib: 0 },
      attached,
    },
  };
}

/** What is the machine's own cannot be chosen for it. */
function refuseMachine(spec: wire.PodSpec | undefined): void {
  const { resources, boot } = spec ?? {};
  const chosen = [
    ...(resources?.vcpu === undefined && resources?.memoryMib === undefined ? [] : ["resources"]),
    ...(boot?.kernel ? ["boot.kernel"] : []),
    ...(boot?.initrd ? ["boot.initrd"] : []),
    ...(boot?.cmdline ? ["boot.cmdline"] : []),
    ...(boot !== undefined && boot.disks.length > 0 ? ["boot.disks"] : []),
    ...(boot?.factory ? ["boot.factory"] : []),
    ...(boot?.cloudInit === undefined ? [] : ["boot.cloud_init"]),
    ...((spec?.files.length ?? 0) === 0 ? [] : ["files"]),
    ...((spec?.shares.length ?? 0) === 0 ? [] : ["shares"]),
    ...((spec?.disks.length ?? 0) === 0 ? [] : ["disks"]),
    ...(spec?.lifetime === undefined ? [] : ["lifetime"]),
  ];
  const [field] = chosen;
  if (field === undefined) return;
  throw new PodnetError(
    "INVALID_ARGUMENT",
    "The VM runs already: its owner decides how it is made",
    {
      field,
      hint: "Leave it out",
    },
  );
}

function validateSockets({ qmpSocket, channelSocket, ttySocket }: AttachPodRequest): AttachSpec {
  const qmp = absolutePath(qmpSocket, "qmp_socket");
  if (ttySocket !== "" && channelSocket === "")
    throw invalid(
      "tty_socket",
      "A tty socket is of no use without the channel",
      "Give the socket of the virtserialport sh.hyper.channel.0 as well",
    );
  return {
    qmp,
    ...(channelSocket === "" ? {} : { channel: absolutePath(channelSocket, "channel_socket") }),
    ...(ttySocket === "" ? {} : { tty: absolutePath(ttySocket, "tty_socket") }),
  };
}
