import { create, type JsonObject } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/policy_service_pb.ts";
import { isIp, parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { type Flow, relayPorts } from "../../policy/decide.ts";
import { canonicalName } from "../../policy/domain.ts";
import { readDocument } from "../../policy/read-document.ts";
import { serviceOf } from "../policies/service-of.ts";
import { subjectOf } from "../policies/subjects.ts";
import type { PolicyRow } from "../policies/store.ts";
import type { Verdict } from "../policies/verdicts.ts";
import { note, type ServiceParts } from "./context.ts";
import { time } from "./views.ts";

/** The policy service: which flows pods may open and take. */
export function policyService(parts: ServiceParts): ServiceImpl<typeof wire.PolicyService> {
  const { policies, records } = parts;
  const view = ({ document }: Pick<PolicyRow, "document">): wire.Policy => {
    const policy = readDocument(document);
    const chosen = policies.chosenBy(policy);
    return create(wire.PolicySchema, {
      name: policy.name,
      document: document as JsonObject,
      pods: [...chosen.pods],
      containers: [...chosen.containers],
    });
  };
  return {
    get: ({ name }) => ({ policy: view(policies.get(name)) }),

    list: () => ({ policies: policies.list().map(view) }),

    async apply({ document, planOnly }, context) {
      policies.plan(document);
      const asked = view({ document });
      if (planOnly) return { policy: asked };
      note(parts, context, `apply policy ${asked.name}`);
      await policies.apply(document);
      return { policy: asked };
    },

    async delete({ name, planOnly }, context) {
      if (planOnly)
        return {
          existed: policies.list().some((each) => each.name === name),
          effects: policies.effectsWithout(name).map(({ kind, shown, ...effect }) => ({
            ...(kind === "pod" ? { pod: shown } : { container: shown }),
            ...effect,
          })),
        };
      note(parts, context, `delete policy ${printable(name)}`);
      return { existed: await policies.delete(name) };
    },

    explain({ pod, container, address, port, protocol, ingress }) {
      const owner = ownerOf(parts, pod, container);
      const name = isIp(address) ? undefined : canonicalName(address);
      const flow =
        name?.includes(".") === true
          ? { name, ...namedService(protocol, port, ingress) }
          : { ip: parseIp(address, "address"), ...serviceOf(protocol, port) };
      return policies.explain(owner, ingress ? "ingress" : "egress", flow);
    },

    async *learn({ pod, container, forS }, context) {
      const owner = ownerOf(parts, pod, container);
      const { name, namespace, shown } = subjectOf(parts.db, owner) ?? gone(container || pod);
      note(parts, context, `learn from ${printable(shown)}`);
      const forMs = forS === undefined ? undefined : forS * 1000;
      const from = { holder: owner.key, shown, name, namespace };
      for await (const { document, more } of parts.learning.learn(from, forMs, context.signal))
        yield { document: document as unknown as JsonObject, more };
      context.signal.throwIfAborted();
    },

    async *tail({ pod, container, lastOnly }, { signal }) {
      const holders =
        pod === "" && container === ""
          ? undefined
          : container === ""
            ? [records.find(pod).id]
            : attachmentsOf(parts, pod, container);
      if (lastOnly) {
        for (const each of parts.verdicts.last(holders)) yield { verdict: verdictView(each) };
        return;
      }
      for await (const each of parts.verdicts.watch(holders, signal))
        yield "lost" in each ? { lost: BigInt(each.lost) } : { verdict: verdictView(each) };
      // The daemon's own end is reported to the caller; a caller that went away receives nothing.
      signal.throwIfAborted();
    },
  };
}

const verdictView = ({ timeMs, owner, holder: _holder, count, ...verdict }: Verdict) => ({
  time: time(timeMs),
  pod: owner.pod?.name ?? "",
  container: owner.container ?? "",
  count: BigInt(count),
  ...verdict,
});

/** Of a connection that says a name: HTTPS unless it is said. Others say none. */
function namedService(
  protocol: string,
  port = 443,
  ingress: boolean,
): Pick<Flow, "protocol" | "port"> {
  const service = serviceOf(protocol, port);
  if (service.protocol === "tcp" && relayPorts.includes(port) && !ingress) return service;
  throw new PodnetError(
    "INVALID_ARGUMENT",
    "Names decide about connections that a pod opens to TCP ports 80 and 443 alone",
    { field: "address", hint: "Give the address instead of the name" },
  );
}

/** The pod, or the interface of the container that was attached first. */
const ownerOf = (parts: ServiceParts, pod: string, container: string): FragmentKey =>
  container === ""
    ? { kind: "pod", key: parts.records.find(pod).id }
    : { kind: "attachment", key: attachmentsOf(parts, pod, container)[0] };

function gone(name: string): never {
  throw new PodnetError("WRONG_STATE", `"${printable(name)}" is not attached any more`, {
    hint: "See podnet cni list",
  });
}

/**
 * The attachments of a container, at least one. Throws `INTERFACE_NOT_FOUND`, `INVALID_ARGUMENT`.
 */
function attachmentsOf(
  { attachments }: Pick<ServiceParts, "attachments">,
  pod: string,
  container: string,
): readonly [string, ...string[]] {
  if (pod !== "")
    throw new PodnetError("INVALID_ARGUMENT", "A pod and a container are given", {
      field: "container",
      hint: "Leave one of them out",
    });
  const [found, ...others] = attachments
    .list()
    .filter(({ containerId, plan }) => containerId === container || plan.pod === container)
    .map(({ id }) => id);
  if (found !== undefined) return [found, ...others];
  throw new PodnetError(
    "INTERFACE_NOT_FOUND",
    `No container "${printable(container)}" is attached`,
    { field: "container", hint: "See podnet cni list" },
  );
}
