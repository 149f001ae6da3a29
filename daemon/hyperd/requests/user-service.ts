import { create } from "@bufbuild/protobuf";
import {
  type ServiceSpec,
  ServiceSpecSchema,
} from "../../../api/gen/podnet/v1/service_service_pb.ts";
import { invalid } from "../../../api/fields.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { goObject, integer, list, text } from "./go-json.ts";

/** A service as hyperd's callers give it (`UserService`): one address, one port, its hosts. */
export interface UserService {
  readonly serviceIP: string;
  readonly protocol: string;
  readonly servicePort: number;
  readonly hosts: readonly UserServiceBackend[];
}

interface UserServiceBackend {
  readonly hostIP: string;
  readonly hostPort: number;
}

const userService = goObject({
  serviceip: text,
  protocol: text,
  serviceport: integer,
  hosts: list(goObject({ hostip: text, hostport: integer })),
}).transform(
  ({ serviceip, protocol, serviceport, hosts }): UserService => ({
    serviceIP: serviceip,
    protocol: protocol === "" ? "tcp" : protocol.toLowerCase(),
    servicePort: serviceport,
    hosts: hosts.map(({ hostip, hostport }) => ({ hostIP: hostip, hostPort: hostport })),
  }),
);
export const userServices = list(userService);

/** What tells services apart. Pure. */
export const keyOf = ({ serviceIP, protocol, servicePort }: UserService): string =>
  `${serviceIP}:${servicePort}/${protocol}`;

interface Places {
  readonly network: string;
  /** The name of podnet's service that has an address. */
  nameOf(address: string): string;
  /** The pod of the network that has an address; undefined for one outside. */
  podAt(address: string): string | undefined;
}

/**
 * podnet's services of those of a pod: one for each address, with all of its ports. Pure. Throws
 * `INVALID_ARGUMENT`, and `UNSUPPORTED` where the ports of an address lead to different hosts.
 */
export function serviceSpecs(services: readonly UserService[], places: Places): ServiceSpec[] {
  const seen = new Set<string>();
  for (const [i, service] of services.entries()) {
    if (seen.has(keyOf(service)))
      throw invalid(
        `services[${i}]`,
        `Service ${printable(keyOf(service))} is there already`,
        "Give each address, port and protocol once, or update it",
      );
    seen.add(keyOf(service));
  }
  return [...Map.groupBy(services, ({ serviceIP }) => serviceIP)].map(([address, group]) =>
    create(ServiceSpecSchema, {
      name: places.nameOf(address),
      network: places.network,
      addresses: [address],
      ports: group.map(portOf),
      backends: backendsOf(address, group).map(({ hostIP, ...rest }) => {
        const pod = places.podAt(hostIP);
        return { ...(pod === undefined ? { address: hostIP } : { pod }), ...rest };
      }),
    }),
  );
}

const portOf = ({ protocol, servicePort, hosts }: UserService) => ({
  protocol,
  port: servicePort,
  targetPort: targetOf({ servicePort, hosts }),
});

/** Where a port leads, at the first of its hosts. */
const targetOf = ({ servicePort, hosts }: Pick<UserService, "servicePort" | "hosts">): number =>
  hosts[0]?.hostPort || servicePort;

/** The hosts of an address: of one port each may have a port of its own. */
function backendsOf(
  address: string,
  group: readonly UserService[],
): readonly { readonly hostIP: string; readonly port: number }[] {
  const [first] = group;
  if (first === undefined) return [];
  const target = targetOf(first);
  const isLike = ({ hosts }: UserService): boolean =>
    hosts
      .map(({ hostIP }) => hostIP)
      .toSorted()
      .join(" ") ===
      first.hosts
        .map(({ hostIP }) => hostIP)
        .toSorted()
        .join(" ") && new Set(hosts.map(({ hostPort }) => hostPort)).size <= 1;
  if (group.length > 1 && !group.every(isLike))
    throw new PodnetError(
      "UNSUPPORTED",
      `The ports of service ${printable(address)} lead to different hosts`,
      { field: "services", hint: "Give each such port a service address of its own" },
    );
  return first.hosts.map(({ hostIP, hostPort }) => ({
    hostIP,
    port: hostPort === 0 || hostPort === target ? 0 : hostPort,
  }));
}
