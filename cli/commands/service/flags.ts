import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  BackendCheckSchema,
  type Service,
  type ServiceBackend,
  ServiceBackendSchema,
  type ServiceSpec,
  ServicePortSchema,
  ServiceSpecSchema,
} from "../../../api/gen/podnet/v1/service_service_pb.ts";
import { parseBackend, parseBackendCheck, parseServicePort } from "../../../api/service-text.ts";
import { PodnetError } from "../../../core/errors.ts";
import { collect, parsePairs } from "../../parse.ts";

export interface ServiceFlags {
  readonly address?: readonly string[];
  readonly port?: readonly string[];
  readonly backend?: readonly string[];
  readonly select?: readonly string[];
  readonly affinity?: string;
  readonly check?: string;
  readonly scope?: string;
}

export interface ChangeFlags extends ServiceFlags {
  readonly addBackend?: readonly string[];
  readonly removeBackend?: readonly string[];
}

/** The flags that say what a service is. */
export const addServiceFlags = (command: Command): Command =>
  command
    .option(
      "--port <port>",
      "PORT[:TARGET][/udp|sctp]: its port, and that of the backends; repeatable",
      collect,
    )
    .option(
      "--backend <backend>",
      "POD or ADDRESS, with :PORT and =WEIGHT (0 to 100); repeatable",
      collect,
    )
    .option("--select <key=value>", "pods that have all these labels are backends too", collect)
    .option("--affinity <client|none>", "client: one address's connections go to one backend")
    .option(
      "--check <check>",
      "tcp, /PATH or none, with ,port= ,interval= ,timeout= ,rise= ,fall=: whether backends serve",
    )
    .option("--address <ip>", "its address, of service_cidrs; repeatable", collect);

const portsOf = (texts: readonly string[] = []) =>
  texts.map((text) => create(ServicePortSchema, parseServicePort(text, "port")));

const backendsOf = (texts: readonly string[] = []) =>
  texts.map((text) => create(ServiceBackendSchema, parseBackend(text, "backend")));

/** A new service. */
export const specOf = (
  name: string,
  network: string | undefined,
  { address = [], port, backend, select = [], affinity = "", check, scope = "" }: ServiceFlags,
): ServiceSpec =>
  create(ServiceSpecSchema, {
    name,
    network: network ?? "",
    addresses: [...address],
    ports: portsOf(port),
    backends: backendsOf(backend),
    select: parsePairs("--select", select),
    affinity: affinityOf(affinity),
    ...checkOf(check),
    scope,
  });

const checkOf = (text = "none") =>
  text === "none" ? {} : { check: create(BackendCheckSchema, parseBackendCheck(text)) };

const affinityOf = (text: string): string => (text === "none" ? "" : text);

/** What a service becomes: what no flag names stays, and `none` empties a list. */
export function changedSpec(service: Service | undefined, flags: ChangeFlags): ServiceSpec {
  const { name = "", network = "", addresses = [] } = service ?? {};
  const { ports = [], backends = [], select = {}, affinity = "", check } = service ?? {};
  const given = <T>(
    texts: readonly string[] | undefined,
    was: T,
    read: (some: string[]) => T,
  ): T => (texts === undefined ? was : read(texts.filter((text) => text !== "none")));
  const kept = given(flags.backend, backends, backendsOf).filter(
    (each) => flags.removeBackend?.includes(each.pod || each.address) !== true,
  );
  refuseMissing(flags.removeBackend ?? [], backends);
  const added = backendsOf(flags.addBackend);
  const isAdded = ({ pod, address }: ServiceBackend): boolean =>
    added.some((each) => each.pod === pod && each.address === address);
  return create(ServiceSpecSchema, {
    name,
    network,
    addresses: given(flags.address, addresses, (some) => some),
    ports: given(flags.port, ports, portsOf),
    // One that is there already gets its new port and weight.
    backends: [...kept.filter((each) => !isAdded(each)), ...added],
    select: given(flags.select, select, (some) => parsePairs("--select", some)),
    affinity: flags.affinity === undefined ? affinity : affinityOf(flags.affinity),
    ...(flags.check === undefined ? check && { check } : checkOf(flags.check)),
  });
}

function refuseMissing(removed: readonly string[], backends: readonly ServiceBackend[]): void {
  const missing = removed.find(
    (name) => !backends.some(({ pod, address }) => (pod || address) === name),
  );
  if (missing === undefined) return;
  throw new PodnetError("INVALID_ARGUMENT", `"${missing}" is not a backend that was named`, {
    field: "remove-backend",
    hint: "See podnet service inspect; what --select chooses goes with its label",
  });
}

/** Single backends that change; undefined where the flags ask for more than that. */
export function backendChange({ addBackend, removeBackend, ...more }: ChangeFlags) {
  const { port, backend, select, address, affinity, check } = more;
  if ([port, backend, select, address, affinity, check].some((each) => each !== undefined))
    return undefined;
  return { set: backendsOf(addBackend), remove: [...(removeBackend ?? [])] };
}
