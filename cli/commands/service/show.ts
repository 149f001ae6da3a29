import {
  type BackendCheck,
  type Service,
  type ServiceEndpoint,
  type ServicePort,
  ServiceSchema,
} from "../../../api/gen/podnet/v1/service_service_pb.ts";
import type { Context, OutputOptions } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../views/text.ts";

/** Prints services, a line each. */
export async function printServices(
  { io }: Context,
  { output }: OutputOptions,
  services: readonly Service[],
): Promise<void> {
  if (output !== "table") {
    const items = services.map((each) => toPlain(ServiceSchema, each));
    return printDocument(io, output, document("ServiceList", { items }));
  }
  const rows = services.map(({ name, network, addresses, ports, endpoints }) =>
    [
      name,
      network,
      addresses.join(", "),
      ports.map(portText).join(", "),
      backendsText(endpoints),
    ].map(harmless),
  );
  io.stdout.write(table(["NAME", "NETWORK", "ADDRESS", "PORTS", "BACKENDS"], rows));
}

/** Prints all of one service. */
export async function printService(
  { io }: Context,
  { output }: OutputOptions,
  service: Service,
): Promise<void> {
  if (output !== "table")
    return printDocument(io, output, document("Service", toPlain(ServiceSchema, service)));
  const { name, network, addresses, ports, select, affinity, check, endpoints, notices } = service;
  const { scope, changedBy } = service;
  const labels = Object.entries(select).map(([key, value]) => `${key}=${value}`);
  const rows = [
    ["Name", name],
    ["Network", network],
    ...(scope === "overlay" ? [["Scope", `overlay, changed last by host ${changedBy}`]] : []),
    ["Address", addresses.join(", ")],
    ["Ports", ports.map(portText).join(", ")],
    ["Selects", labels.join(", ") || "nothing"],
    ...(affinity === "" ? [] : [["Affinity", affinity]]),
    ...(check === undefined ? [] : [["Check", checkText(check)]]),
    ...endpoints.map((each, i) => [i === 0 ? "Backends" : "", endpointText(each)]),
    ...notices.map((each) => ["Notice", each]),
  ] as [string, string][];
  io.stdout.write(rows.map(([key, value]) => `${key.padEnd(12)}${harmless(value)}\n`).join(""));
}

/** Prints the lines of a plan. */
export async function printPlan(
  { io }: Context,
  { output }: OutputOptions,
  plan: readonly string[],
): Promise<void> {
  if (output !== "table")
    return printDocument(io, output, document("ServicePlan", { plan: [...plan] }));
  io.stdout.write(plan.map((line) => `${harmless(line)}\n`).join(""));
}

const portText = ({ protocol, port, targetPort }: ServicePort): string =>
  `${port}${targetPort === port ? "" : `:${targetPort}`}/${protocol}`;

/** How many get new connections of those that may; all of them where none is healthy. */
function backendsText(endpoints: readonly ServiceEndpoint[]): string {
  const some = endpoints.filter(({ weight }) => weight > 0);
  const ill = some.filter(({ health }) => health === "unhealthy").length;
  return ill === 0 ? `${some.length}` : `${some.length}, ${ill} unhealthy`;
}

const checkText = ({ path, port, intervalS, timeoutS, rise, fall }: BackendCheck): string => {
  const settings = { interval: intervalS, timeout: timeoutS, rise, fall };
  const all = Object.entries(port === 0 ? settings : { port, ...settings });
  return [path || "tcp", ...all.map(([key, value]) => `${key}=${value}`)].join(",");
};

function endpointText(endpoint: ServiceEndpoint): string {
  const { pod, container, address, weight, port, health, healthReason, host } = endpoint;
  const at = port === 0 ? address : `${address} port ${port}`;
  const who = [pod || container, ...(host === "" ? [] : [`on ${host}`])].join(" ");
  const why = healthReason === "" ? "" : ` (${healthReason})`;
  const state = health === "" ? "" : `, ${health}${why}`;
  return `${who === "" ? at : `${who} (${at})`}, weight ${weight}${state}`;
}
