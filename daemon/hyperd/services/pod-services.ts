import { createHash } from "node:crypto";
import { ipOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { ServiceSpec } from "../../../api/service-spec.ts";
import { validateService } from "../../../api/validate/service.ts";
import { note, type ServiceParts } from "../../api/context.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import { isDamaged } from "../../pods/store/pod-rows.ts";
import { KeyedLock } from "../../reconcile/keyed-lock.ts";
import type { ServiceNow } from "../../services/services.ts";
import { keyOf, serviceSpecs, type UserService } from "../requests/user-service.ts";
import type { Asking } from "../routes.ts";

type Parts = Pick<ServiceParts, "pods" | "services" | "log" | "config">;

const hash = (text: string, digits: number): string =>
  createHash("sha256").update(text).digest("hex").slice(0, digits);

/** podnet's services of one pod of hyperd's have names that begin so. */
const prefixOf = (podId: string): string => `hyper-${hash(podId, 16)}-`;
const nameOf =
  (podId: string) =>
  (address: string): string =>
    `${prefixOf(podId)}${hash(address, 8)}`;
const namePattern = /^(hyper-[0-9a-f]{16}-)[0-9a-f]{8}$/;

/**
 * Services of hyperd's pods, which are podnet's services: a name says which pod one is of. They go
 * with their pod.
 */
export class PodServices {
  readonly #parts: Parts;
  readonly #locks = new KeyedLock<string>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** The services of a pod as hyperd lists them, by their addresses. */
  list(row: Pick<PodRow, "id">): UserService[] {
    return this.#of(row.id)
      .flatMap((service) => this.#viewOf(service))
      .toSorted((a, b) => (a.serviceIP < b.serviceIP ? -1 : Number(a.serviceIP > b.serviceIP)));
  }

  /** Throws for services that no pod could have. */
  check(services: readonly UserService[]): void {
    const places = { network: "", nameOf: nameOf("pod"), podAt: () => undefined };
    for (const spec of serviceSpecs(services, places))
      validateService(spec, { network: this.#parts.config.network.name });
  }

  /** Adds services, all of them or none. */
  add(row: PodRow, services: readonly UserService[], context: Asking): Promise<void> {
    return this.#change(row, context, "add services to", (has) => [...has, ...services]);
  }

  /** Has these services in place of those there are, all of them or none. */
  update(row: PodRow, services: readonly UserService[], context: Asking): Promise<void> {
    return this.#change(row, context, "update services of", () => services);
  }

  /** Deletes services, all of them or none, by address, port and protocol. */
  delete(row: PodRow, services: readonly UserService[], context: Asking): Promise<void> {
    return this.#change(row, context, "delete services of", (has) => {
      const there = new Set(has.map(keyOf));
      const missing = services.find((each) => !there.has(keyOf(each)));
      if (missing !== undefined)
        throw new PodnetError(
          "SERVICE_NOT_FOUND",
          `Pod ${row.name} has no service ${printable(keyOf(missing))}`,
          { field: "services", hint: "GET /service/list shows those it has; none was deleted" },
        );
      const going = new Set(services.map(keyOf));
      return has.filter((each) => !going.has(keyOf(each)));
    });
  }

  /** Deletes the services of pods that are gone. */
  async sweep(): Promise<void> {
    const { pods, services } = this.#parts;
    const there = new Set(pods.listAny().map(({ id }) => prefixOf(id)));
    for (const { name } of services.list()) {
      const prefix = namePattern.exec(name)?.[1];
      if (prefix !== undefined && !there.has(prefix)) await services.delete(name);
    }
  }

  #of(podId: string): readonly ServiceNow[] {
    const prefix = prefixOf(podId);
    return this.#parts.services.list().filter(({ name }) => name.startsWith(prefix));
  }

  async #change(
    row: PodRow,
    context: Asking,
    verb: string,
    next: (has: readonly UserService[]) => readonly UserService[],
  ): Promise<void> {
    await this.#locks.run(row.id, async () => {
      const { services } = this.#parts;
      const before = this.#of(row.id);
      const specs = this.#specsOf(row, next(this.list(row)));
      const has = new Set<string>(before.map(({ name }) => name));
      // What cannot be is refused before anything has changed.
      for (const spec of specs) await services.plan(spec, !has.has(spec.name));
      note(this.#parts, context, `${verb} ${row.name}`);
      try {
        await this.#become(row.id, specs);
      } catch (thrown) {
        await this.#become(row.id, before).catch((failure: unknown) =>
          this.#parts.log.warn(
            { err: failure, pod: row.id },
            "Failed to undo a change of services",
          ),
        );
        throw thrown;
      }
    });
  }

  async #become(podId: string, specs: readonly ServiceSpec[]): Promise<void> {
    const { services } = this.#parts;
    const there = new Set<string>(this.#of(podId).map(({ name }) => name));
    for (const name of there)
      if (!specs.some((spec) => spec.name === name)) await services.delete(name);
    for (const spec of specs)
      await (there.has(spec.name) ? services.update(spec) : services.create(spec));
  }

  #specsOf(row: PodRow, wanted: readonly UserService[]): readonly ServiceSpec[] {
    const { config, pods } = this.#parts;
    const network = row.plan.interfaces.find((each) => each.network !== undefined)?.network;
    if (network === undefined && wanted.length > 0)
      throw new PodnetError("UNSUPPORTED", `Pod ${row.name} is on no network of podnet's`, {
        field: "services",
        hint: "Services are of podnet's networks: give the pod an interface on one",
      });
    const all = pods.listAny().flatMap((each) => (isDamaged(each) ? [] : [each]));
    const places = {
      network: network ?? "",
      nameOf: nameOf(row.id),
      podAt: (address: string) =>
        all.find(({ plan }) =>
          plan.interfaces.some(
            (each) => each.network === network && each.addresses.some((ip) => ipOf(ip) === address),
          ),
        )?.name,
    };
    return serviceSpecs(wanted, places).map((spec) =>
      validateService(spec, { network: config.network.name }),
    );
  }

  /** A service for each of its ports. A pod is shown by its address on the service's network. */
  #viewOf({ addresses, ports, backends, network }: ServiceNow): UserService[] {
    const rows = this.#parts.pods.listAny();
    const addressOf = (pod: string): string => {
      const row = rows.find(({ name }) => name === pod);
      const plan = row === undefined || isDamaged(row) ? undefined : row.plan;
      const address = plan?.interfaces.find((each) => each.network === network)?.addresses[0];
      return address === undefined ? "" : ipOf(address);
    };
    return ports.map(({ protocol, port, target }) => ({
      serviceIP: addresses[0] ?? "",
      protocol,
      servicePort: port,
      hosts: backends.map((each) => ({
        hostIP: each.pod === undefined ? each.address : addressOf(each.pod),
        hostPort: each.port ?? target,
      })),
    }));
  }
}
