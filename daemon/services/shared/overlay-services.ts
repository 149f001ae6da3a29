import type { ServiceSpec } from "../../../api/service-spec.ts";
import { isPodnetError, type PodnetError, PodnetError as Problem } from "../../../core/errors.ts";
import { printable, type ServiceName } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import type { SharedText } from "../../../overlay/pods/shared-services.ts";
import type { KeyedLock } from "../../reconcile/keyed-lock.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import type { Database } from "../../store/database.ts";
import type { Candidate } from "../endpoints.ts";
import type { ServiceDefinition, SharedMark } from "../store.ts";
import { parseShared, sharedText } from "./definition-text.ts";
import type { RecordsChange, Refused, SharedState, SharingHosts } from "./hosts.ts";
import { RememberedPods } from "./remembered-pods.ts";

/** Milliseconds until a definition that this host cannot serve is looked at again. */
const againMs = 30_000;
/** Longest that a call to etcd may take, milliseconds. */
const callMs = 10_000;

export interface OverlayServicesParts {
  readonly db: Database;
  readonly log: Pick<Log, "warn" | "info">;
  /** By name: held while a service is changed. */
  readonly changes: KeyedLock<string>;
  readonly find: (name: string) => ServiceDefinition | undefined;
  readonly list: () => readonly ServiceDefinition[];
  /** Decides about a definition as about a caller's, with the same errors. */
  readonly plan: (
    spec: ServiceSpec,
    before: ServiceDefinition | undefined,
  ) => Promise<ServiceDefinition>;
  /** Writes the row; the rules follow. */
  readonly keep: (definition: ServiceDefinition) => void;
  /** Deletes the row; the rules follow. */
  readonly drop: (name: string) => void;
  /** Called when other hosts' pods have changed. */
  readonly look: () => void;
}

/**
 * The services that all hosts of an overlay serve. etcd has their definitions, and each host a row
 * of each, by which it serves them while etcd is away. A host changes etcd first and its own row
 * then; the others follow.
 */
export class OverlayServices implements AsyncDisposable {
  readonly #parts: OverlayServicesParts;
  #hosts: SharingHosts | undefined;
  /** Why services of the hosts are not served here, by name. */
  readonly #refused = new Map<string, string>();
  /** Services that etcd may have lost with its data. */
  readonly #lost = new Set<string>();
  readonly #queue: WorkQueue;
  /** Used until etcd has listed what there is. */
  readonly #remembered: RememberedPods;

  constructor(parts: OverlayServicesParts) {
    this.#parts = parts;
    this.#remembered = new RememberedPods(parts.db, parts.log);
    this.#queue = new WorkQueue({
      name: "overlay-services",
      backoff: { firstMs: 1000, longestMs: 30_000 },
      onDegraded: (service, { error: err }) =>
        parts.log.warn({ service, err }, "Failed to follow a service of the overlay; retrying"),
    });
  }

  /** The services that are not served on this host as etcd has them, a line each. */
  get troubles(): readonly string[] {
    return [...this.#refused].map(
      ([name, why]) => `Service "${name}" of the overlay is not served here as it is now: ${why}`,
    );
  }

  get hosts(): SharingHosts | undefined {
    return this.#hosts;
  }

  /** Takes part from now on. Without hosts it takes part in nothing: what was shared is dropped. */
  share(hosts: SharingHosts | undefined): void {
    this.#hosts = hosts;
    if (hosts === undefined)
      for (const { name, shared } of this.#parts.list())
        if (shared !== undefined) this.#parts.drop(name);
    this.othersChanged();
  }

  /** Records of other hosts have changed, or this host's part in an overlay. */
  othersChanged({ services, lost }: RecordsChange = { services: true, lost: false }): void {
    const hosts = this.#hosts;
    if (hosts === undefined) return;
    if (lost)
      for (const { name, shared } of this.#parts.list())
        if (shared !== undefined) this.#lost.add(name);
    if (services) for (const name of this.#names()) this.#look(name);
    const shared = this.#parts.list().filter((each) => each.shared !== undefined);
    if (shared.length === 0) return;
    this.#parts.look();
    const networks = new Set(shared.map(({ network }) => network));
    if (hosts.definitions() !== undefined)
      this.#remembered.note(() =>
        Object.fromEntries([...networks].map((each) => [each, hosts.candidates(each) ?? []])),
      );
  }

  /** The pods and containers that can be backends: of each host, or of this one. */
  candidatesOf(
    { scope, network }: ServiceDefinition,
    local: readonly Candidate[],
  ): readonly Candidate[] {
    if (scope === undefined) return local;
    const pods = local.filter(({ kind }) => kind === "pod");
    return [...pods, ...(this.#hosts?.candidates(network) ?? this.#remembered.on(network))];
  }

  /**
   * Writes a definition to etcd: a new one, or one in place of `before`. The caller holds its lock.
   * Undefined: another host has changed it meanwhile, and this host has followed. Throws
   * `UNSUPPORTED`, `NAME_IN_USE`, `ADDRESS_IN_USE`, and what etcd's client does.
   */
  async publish(
    definition: ServiceDefinition,
    before: ServiceDefinition | undefined,
  ): Promise<ServiceDefinition | undefined> {
    const { name, addresses, network } = definition;
    const hosts = this.#hosts;
    const overlay = hosts?.overlayOf(network);
    if (hosts === undefined || overlay === undefined) throw notShared(network);
    const text = sharedText({ overlay, host: hosts.hostname, spec: definition });
    const known = before?.shared;
    const isThere = known !== undefined && isOfCluster(known, hosts.definitions());
    const change = {
      name,
      text,
      addresses,
      ...(isThere && {
        before: { revision: BigInt(known.revision), addresses: before?.addresses ?? [] },
      }),
    };
    const answer = await hosts.put(change, AbortSignal.timeout(callMs));
    if (answer.kind === "done") {
      const mark = markOf({ overlay, host: hosts.hostname }, answer);
      return { ...definition, scope: "overlay", shared: mark };
    }
    if (answer.kind === "changed" && before !== undefined) {
      await this.#take(name, answer.now, hosts);
      return undefined;
    }
    throw taken(name, overlay, answer, hosts);
  }

  /** Takes a definition out of etcd. Throws what etcd's client does. */
  async withdraw({ name, addresses }: ServiceDefinition): Promise<void> {
    await this.#hosts?.remove(name, addresses, AbortSignal.timeout(callMs));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue[Symbol.asyncDispose]();
    this.#remembered[Symbol.dispose]();
  }

  #names(): ReadonlySet<string> {
    const rows = this.#parts.list().filter(({ shared }) => shared !== undefined);
    const there = this.#hosts?.definitions()?.services.keys() ?? [];
    return new Set([...rows.map(({ name }) => name), ...there, ...this.#refused.keys()]);
  }

  #look(name: string, afterMs = 0): void {
    const { changes } = this.#parts;
    this.#queue.add(name, () => changes.run(name, () => this.#follow(name)), afterMs);
  }

  /** Makes this host's row what etcd has. */
  async #follow(name: string): Promise<void> {
    const hosts = this.#hosts;
    const known = hosts?.definitions();
    if (hosts === undefined || known === undefined) return;
    const row = this.#parts.find(name);
    const there = known.services.get(name as ServiceName);
    const { shared } = row ?? {};
    if (row !== undefined && shared !== undefined) {
      // An etcd that has lost its data, or is as it was before, has not deleted the service. One
      // that is only heard late answers with what it has.
      const isOther = !isOfCluster(shared, known) || this.#lost.has(name);
      if (isOther ? there === undefined : BigInt(shared.revision) > known.revision)
        return this.#putBack(row, there, hosts);
    }
    this.#lost.delete(name);
    await this.#take(name, there, hosts);
  }

  async #take(name: string, there: SharedText | undefined, hosts: SharingHosts): Promise<void> {
    const { find, drop, keep, plan } = this.#parts;
    const row = find(name);
    const { shared } = row ?? {};
    if (row !== undefined && shared === undefined && there !== undefined)
      return this.#refuse(name, "this host has a service of its own that is called so");
    const known = hosts.definitions();
    const isSame =
      shared !== undefined &&
      isOfCluster(shared, known) &&
      shared.revision === `${there?.revision}`;
    if (isSame && hosts.networkOf(shared.overlay) === row?.network) return this.#accept(name);
    try {
      const read = there && parseShared(name, there.text, (overlay) => hosts.networkOf(overlay));
      if (read === undefined || there === undefined || known === undefined) {
        this.#accept(name);
        if (shared !== undefined) drop(name);
        return;
      }
      const moved = row !== undefined && row.network !== read.spec.network;
      const definition = await plan(read.spec, moved ? undefined : row);
      if (moved) drop(name);
      const mark = markOf(read, { cluster: known.cluster, revision: there.revision });
      keep({ ...definition, shared: mark });
      this.#accept(name);
    } catch (thrown) {
      if (!isPodnetError(thrown)) throw thrown;
      this.#refuse(name, thrown.message);
    }
  }

  #accept(name: string): void {
    this.#refused.delete(name);
  }

  /** What was served before goes on. */
  #refuse(name: string, why: string): void {
    if (this.#refused.get(name) !== why)
      this.#parts.log.warn({ service: name, why }, "A service of the overlay is not served here");
    this.#refused.set(name, why);
    this.#look(name, againMs);
  }

  async #putBack(
    row: ServiceDefinition,
    there: SharedText | undefined,
    hosts: SharingHosts,
  ): Promise<void> {
    const { keep, log } = this.#parts;
    const { name, addresses, shared } = row;
    if (shared === undefined) return;
    const text = sharedText({ overlay: shared.overlay, host: shared.host, spec: row });
    const before = there && { before: { revision: there.revision, addresses } };
    const change = { name, text, addresses, ...before };
    const answer = await hosts.put(change, AbortSignal.timeout(callMs));
    if (answer.kind === "done") {
      log.info({ service: name }, "etcd had lost a service of the overlay; it is there again");
      this.#lost.delete(name);
      keep({ ...row, shared: markOf(shared, answer) });
    } else if (answer.kind === "changed") await this.#take(name, answer.now, hosts);
    else this.#refuse(name, `${answer.address} is the address of service "${answer.holder}"`);
  }
}

const isOfCluster = ({ cluster }: SharedMark, known: SharedState | undefined): boolean =>
  known !== undefined && cluster === `${known.cluster}`;

const markOf = (
  { overlay, host }: Pick<SharedMark, "overlay" | "host">,
  { cluster, revision }: SharedState,
): SharedMark => ({ overlay, host, cluster: `${cluster}`, revision: `${revision}` });

const notShared = (network: string): PodnetError =>
  new Problem(
    "UNSUPPORTED",
    `Network "${network}" is of no overlay whose hosts share services by etcd`,
    {
      field: "scope",
      hint: "Leave scope out for a service of this host, or choose the network of an overlay with etcd",
      details: { network },
    },
  );

function taken(
  name: ServiceName,
  overlay: string,
  answer: Refused,
  hosts: SharingHosts,
): PodnetError {
  if (answer.kind === "address")
    return new Problem(
      "ADDRESS_IN_USE",
      `${answer.address} is the address of service "${printable(answer.holder)}" of the overlay's hosts`,
      { field: "addresses", hint: "Choose another, or leave it out and ask again" },
    );
  const holder = holderOf(name, answer.now?.text, hosts);
  return new Problem("NAME_IN_USE", `There is a service "${name}" of overlay ${holder} already`, {
    field: "name",
    hint: `Choose another name, or change it: podnet service update ${name}`,
    details: { holder: name, overlay },
  });
}

function holderOf(name: string, text: string | undefined, hosts: SharingHosts): string {
  try {
    const read = text && parseShared(name, text, (overlay) => hosts.networkOf(overlay));
    if (read) return `"${printable(read.overlay)}", which host "${read.host}" has made,`;
  } catch {
    // (It cannot be read.)
  }
  return "hosts";
}
