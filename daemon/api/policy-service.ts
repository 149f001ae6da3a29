import { create, type JsonObject } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/policy_service_pb.ts";
import { parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { type Protocol, protocols } from "../../policy/model.ts";
import { readDocument } from "../policies/read-document.ts";
import type { PolicyRow } from "../policies/store.ts";
import { note, type ServiceParts } from "./context.ts";

/** The policy service: which flows pods may open and take. */
export function policyService(parts: ServiceParts): ServiceImpl<typeof wire.PolicyService> {
  const { policies, records } = parts;
  const view = ({ document }: Pick<PolicyRow, "document">): wire.Policy => {
    const policy = readDocument(document);
    return create(wire.PolicySchema, {
      name: policy.name,
      document: document as JsonObject,
      pods: [...policies.chosenBy(policy)],
    });
  };
  return {
    get: ({ name }) => ({ policy: view(policies.get(name)) }),

    list: () => ({ policies: policies.list().map(view) }),

    async apply({ document, planOnly }, context) {
      const asked = view({ document });
      if (planOnly) return { policy: asked };
      note(parts, context, `apply policy ${asked.name}`);
      await policies.apply(document);
      return { policy: asked };
    },

    async delete({ name }, context) {
      note(parts, context, `delete policy ${printable(name)}`);
      return { existed: await policies.delete(name) };
    },

    explain({ pod, address, port, protocol, ingress }) {
      const { id } = records.find(pod);
      const asked = protocolOf(protocol, port);
      if (port !== undefined && (port < 1 || port > 65_535))
        throw wrong("port", `${port} is no port`, "Give a number from 1 to 65535");
      return policies.explain(id, ingress ? "ingress" : "egress", {
        ip: parseIp(address, "address"),
        protocol: asked,
        ...(port === undefined ? {} : { port }),
      });
    },
  };
}

function protocolOf(text: string, port: number | undefined): Protocol {
  if (text === "") return port === undefined ? "icmp" : "tcp";
  const found = protocols.find((protocol) => protocol === text);
  if (found !== undefined) return found;
  throw wrong(
    "protocol",
    `"${printable(text)}" is no protocol`,
    `Give one of ${protocols.join(", ")}`,
  );
}

const wrong = (field: string, message: string, hint: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, { field, hint });
