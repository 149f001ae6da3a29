import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/service_service_pb.ts";
import { validateBackendChange, validateService } from "../../api/validate/service.ts";
import { printable } from "../../core/names.ts";
import type { ServiceNow } from "../services/services.ts";
import { refuseChecksOutside } from "./others-links.ts";
import { note, type ServiceParts } from "./context.ts";

/** The service of services: virtual addresses that lead to several pods. */
export function serviceService(parts: ServiceParts): ServiceImpl<typeof wire.ServiceService> {
  const { services, config } = parts;
  const defaults = { network: config.network.name };
  return {
    get: ({ name }) => ({ service: serviceView(services.get(name)) }),

    list: () => ({ services: services.list().map(serviceView) }),

    async create({ spec, planOnly }, context) {
      const asked = validateService(spec, defaults);
      refuseChecksOutside(asked.check, asked.backends, context.values, "backends");
      if (planOnly) return planView(await services.plan(asked, true));
      note(parts, context, `create service ${asked.name}`);
      return { service: serviceView(await services.create(asked)) };
    },

    async update({ spec, planOnly }, context) {
      const found = services.get(spec?.name ?? "");
      const asked = validateService(spec, { network: found.network });
      refuseChecksOutside(asked.check, asked.backends, context.values, "backends");
      if (planOnly) return planView(await services.plan(asked, false));
      note(parts, context, `update service ${asked.name}`);
      return { service: serviceView(await services.update(asked)) };
    },

    async changeBackends({ name, ...change }, context) {
      const asked = validateBackendChange(change);
      refuseChecksOutside(services.get(name).check, asked.set, context.values, "set");
      note(parts, context, `change backends of service ${printable(name)}`);
      const { endpoints, notices } = await services.changeBackends(name, asked);
      return { endpoints: endpoints.length, notices: [...notices] };
    },

    async delete({ name }, context) {
      note(parts, context, `delete service ${printable(name)}`);
      return { existed: await services.delete(name) };
    },
  };
}

const planView = ({
  service,
  rules,
}: {
  readonly service: ServiceNow;
  readonly rules: readonly string[];
}) => ({ service: serviceView(service), plan: [...rules] });

const serviceView = (service: ServiceNow): wire.Service => {
  const { name, network, addresses, ports, backends, select = {}, endpoints, notices } = service;
  const { affinity = "", check, scope = "host", shared } = service;
  return create(wire.ServiceSchema, {
    name,
    network,
    addresses: [...addresses],
    ports: ports.map(({ protocol, port, target }) => ({ protocol, port, targetPort: target })),
    backends: backends.map((each) => ({ ...each })),
    select: { ...select },
    endpoints: endpoints.map(({ host, ...each }) => ({ ...each, host: host?.name ?? "" })),
    notices: [...notices],
    affinity,
    scope,
    changedBy: shared?.host ?? "",
    ...(check && { check }),
  });
};
