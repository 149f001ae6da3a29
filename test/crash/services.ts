import { setTimeout as delay } from "node:timers/promises";
import type { Acts } from "./acts.ts";
import { subject } from "./pods.ts";
import type { Worker } from "./worker.ts";

/** Changes of services. */
export type ServiceChange =
  | "service-create"
  | "service-update"
  | "service-backends"
  | "service-delete";

/** The service that is made, changed and deleted. */
export const service = "served";

const stays = { pod: subject, weight: 1 };
const outside = { address: "192.0.2.10", weight: 1 };
const spec = { name: service, ports: [{ port: 80, targetPort: 8080 }], backends: [stays] };
const other = { ...spec, ports: [{ port: 81 }, { protocol: "udp", port: 53 }], affinity: "client" };

const make = ({ client }: Worker): Promise<unknown> =>
  client.pods.create({ spec: { name: subject } });
const served = ({ client }: Worker): Promise<unknown> => client.services.create({ spec });
const both = async (worker: Worker): Promise<void> => {
  await make(worker);
  await served(worker);
};

export const serviceChanges: Readonly<Record<ServiceChange, Acts>> = {
  "service-create": {
    stays: "pod",
    from: "commit:service:before",
    prepare: make,
    change: served,
  },
  "service-update": {
    stays: "pod",
    from: "commit:update service:before",
    prepare: both,
    change: ({ client }) => client.services.update({ spec: other }),
  },
  "service-backends": {
    stays: "pod",
    from: "commit:update service:before",
    prepare: both,
    change: ({ client }) =>
      client.services.changeBackends({ name: service, set: [outside], remove: [subject] }),
  },
  "service-delete": {
    stays: "pod",
    from: "commit:delete service:before",
    prepare: both,
    change: ({ client }) => client.services.delete({ name: service }),
  },
};

/** What the service may be afterwards: gone, as before, or as asked. */
const gone = "none";
const made = "tcp 80 to 8080, 1 there";
const whole: Readonly<Record<ServiceChange, readonly string[]>> = {
  "service-create": [gone, made],
  "service-update": [made, "tcp 81 to 81 and udp 53 to 53, 1 there, affinity client"],
  "service-backends": [made, "tcp 80 to 8080, 1 there, outside"],
  "service-delete": [gone, made],
};

export const isServiceChange = (change: string): change is ServiceChange =>
  change in serviceChanges;

/** What is wrong with the service after a change that was killed, failed or held up. */
export async function halfServed(
  { client }: Worker,
  change: ServiceChange,
): Promise<readonly string[]> {
  const { services } = await client.services.list({});
  const found = services.map(({ ports, endpoints, affinity }) =>
    [
      ports.map((each) => `${each.protocol} ${each.port} to ${each.targetPort}`).join(" and "),
      `${endpoints.length} there`,
      ...(endpoints.some(({ address }) => address === outside.address) ? ["outside"] : []),
      ...(affinity === "" ? [] : [`affinity ${affinity}`]),
    ].join(", "),
  );
  const is = found.join("; ") || gone;
  return whole[change].includes(is) ? [] : [`service ${service} is ${is}`];
}

/** Longest that rules of a service that is gone may stay, with retries, milliseconds. */
const removedMs = 20_000;

/** Deletes the service, and waits until nothing of it is left. */
export async function endService({ client, lab }: Worker): Promise<void> {
  await client.services.delete({ name: service });
  for (const deadline = performance.now() + removedMs; performance.now() < deadline; ) {
    if (!(await lab.host.run("nft", "list", "tables")).includes("podnet_services")) return;
    await delay(50);
  }
}
