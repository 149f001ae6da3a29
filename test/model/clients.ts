import { setTimeout as delay } from "node:timers/promises";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { type Operation, randomOperation, tryOperation } from "./operation.ts";
import { type Call, lifecycle, type Outcome, type Phase } from "./history.ts";
import type { Asked } from "./requests.ts";

/** A list, which looks at every name at once. */
export interface Listing {
  readonly invoked: number;
  readonly returned: number;
  readonly by: string;
  /** Position among all events: of two lists the one with the smaller cursor is the earlier. */
  readonly cursor: bigint;
  readonly pods: readonly { readonly name: string; readonly outcome: Outcome }[];
}

/** Everything that many clients did and heard. */
export interface Heard {
  readonly calls: Call[];
  readonly asked: Asked[];
  readonly listings: Listing[];
  /** Address of each pod, by id, from every answer. */
  readonly addresses: Map<string, string>;
  /** What was done with ports and further interfaces of pods. */
  readonly held: Operation[];
  /** What no answer may be. */
  readonly wrong: string[];
}

export interface Load {
  readonly socket: string;
  readonly clients: number;
  readonly names: readonly string[];
  readonly durationMs: number;
  /** From 0 up to 1, repeatable. */
  readonly random: () => number;
}

/**
 * Lets clients create, delete, start, look at and list pods at random, all at once, and notes what
 * they heard.
 */
export async function runClients(load: Load): Promise<Heard> {
  const heard: Heard = {
    calls: [],
    asked: [],
    listings: [],
    addresses: new Map(),
    held: [],
    wrong: [],
  };
  const requests = new Map<string, string>();
  const until = performance.now() + load.durationMs;
  const all = Array.from({ length: load.clients }, (_, number) =>
    new ModelClient(`client ${number}`, load, heard, requests).run(until),
  );
  await Promise.all(all);
  return heard;
}

const phases: Partial<Record<PodState, Phase>> = {
  [PodState.CREATING]: "creating",
  [PodState.RUNNING]: "running",
  [PodState.PAUSED]: "paused",
  [PodState.STOPPING]: "stopping",
  [PodState.STOPPED]: "stopped",
  [PodState.FAILED]: "failed",
  [PodState.DELETING]: "deleting",
};

class ModelClient {
  readonly #by: string;
  readonly #load: Load;
  readonly #heard: Heard;
  /** The request under which a name is asked for by whoever does now. */
  readonly #requests: Map<string, string>;
  readonly #podnet: Podnet;

  constructor(by: string, load: Load, heard: Heard, requests: Map<string, string>) {
    this.#by = by;
    this.#load = load;
    this.#heard = heard;
    this.#requests = requests;
    this.#podnet = connectPodnet({ socket: load.socket });
  }

  async run(until: number): Promise<void> {
    using _connection = this.#podnet;
    const { random, names } = this.#load;
    while (performance.now() < until) {
      const name = names[Math.floor(random() * names.length)] as string;
      const choice = random();
      if (choice < 0.12) await this.#note("create", name, () => this.#create(name));
      else if (choice < 0.27) await this.#request(name);
      else if (choice < 0.37) await this.#note("delete", name, () => this.#delete(name));
      else if (choice < 0.5) await this.#note("get", name, () => this.#get(name));
      else if (choice < 0.74) await this.#lifecycle(name);
      else if (choice < 0.9) await this.#change(name);
      else await this.#list();
      await delay(random() * 250);
    }
  }

  /** Pauses, resumes, stops or starts it. */
  async #lifecycle(name: string): Promise<void> {
    const { pods } = this.#podnet;
    const kinds = Object.keys(lifecycle) as (keyof typeof lifecycle)[];
    const what = kinds[Math.floor(this.#load.random() * kinds.length)] as keyof typeof lifecycle;
    const { takes, ...became } = lifecycle[what];
    const act = async (): Promise<Outcome> => {
      const { pod } = await pods[what]({ idOrName: name });
      this.#seen(pod);
      return { kind: "became", id: pod?.id ?? "", ...became };
    };
    await this.#note(what, name, act, takes);
  }

  /** Publishes or unpublishes a port, adds or removes an interface. */
  async #change(name: string): Promise<void> {
    const asked = randomOperation(this.#podnet, name, this.#load.random);
    const act = async (): Promise<Outcome> => {
      const { operation, pod, error } = await tryOperation(asked, name);
      if (operation !== undefined) this.#heard.held.push(operation);
      if (pod !== undefined) return this.#seen(pod);
      if (error !== undefined) throw error;
      return { kind: "nothing" };
    };
    await this.#note(`${asked.kind} ${asked.what}`, name, act, ["running"]);
  }

  async #note(
    what: string,
    name: string,
    act: () => Promise<Outcome>,
    takes: readonly Phase[] = [],
  ): Promise<void> {
    const invoked = performance.now();
    const outcome = await this.#outcome(what, name, act, takes);
    const returned = performance.now();
    if (outcome !== undefined)
      this.#heard.calls.push({ invoked, returned, name, by: `${this.#by} ${what}`, outcome });
  }

  /** Asks under the request id others may be asking under, too; now and then under a new one. */
  async #request(name: string): Promise<void> {
    const { random } = this.#load;
    let requestId = this.#requests.get(name);
    if (requestId === undefined || random() < 0.4) {
      requestId = `${name}-${Math.floor(random() * 1e9)}`;
      this.#requests.set(name, requestId);
    }
    const invoked = performance.now();
    const outcome = await this.#outcome("request", name, () => this.#create(name, requestId));
    const returned = performance.now();
    if (outcome === undefined) return;
    const by = `${this.#by} request ${requestId}`;
    this.#heard.asked.push({ invoked, returned, name, by, outcome, requestId });
  }

  /** What a call's answer or failure says; anything that is neither is noted as wrong. */
  async #outcome(
    what: string,
    name: string,
    act: () => Promise<Outcome>,
    takes: readonly Phase[] = [],
  ): Promise<Outcome | undefined> {
    try {
      return await act();
    } catch (error) {
      if (isPodnetError(error, "NAME_IN_USE")) return { kind: "taken" };
      if (isPodnetError(error, "POOL_EXHAUSTED")) return { kind: "exhausted" };
      if (isPodnetError(error, "POD_NOT_FOUND")) return { kind: "absent" };
      if (isPodnetError(error, "WRONG_STATE")) return { kind: "busy", takes };
      if (isPodnetError(error, "CANCELLED") && /was deleted while/.test(error.message))
        return { kind: what === "start" ? "halted" : "cut" };
      this.#heard.wrong.push(`${this.#by} ${what} ${name}: ${String(error)}`);
      return undefined;
    }
  }

  async #create(name: string, requestId = ""): Promise<Outcome> {
    const { pod } = await this.#podnet.pods.create({ spec: { name }, requestId });
    this.#address(pod);
    return { kind: "created", id: pod?.id ?? "" };
  }

  async #delete(idOrName: string): Promise<Outcome> {
    const { existed, id } = await this.#podnet.pods.delete({ idOrName });
    return existed ? { kind: "deleted", id } : { kind: "absent" };
  }

  async #get(idOrName: string): Promise<Outcome> {
    return this.#seen((await this.#podnet.pods.get({ idOrName })).pod);
  }

  async #list(): Promise<void> {
    const invoked = performance.now();
    const { pods, cursor } = await this.#podnet.pods.list({});
    const returned = performance.now();
    const seen = pods.map((pod) => ({ name: pod.name, outcome: this.#seen(pod) }));
    const held = pods.flatMap(({ interfaces }) => interfaces.flatMap(({ addresses }) => addresses));
    if (new Set(held).size < held.length)
      this.#heard.wrong.push(`${this.#by} list: an address twice in ${held.join(" ")}`);
    this.#heard.listings.push({ invoked, returned, by: `${this.#by} list`, cursor, pods: seen });
  }

  #seen(pod: Pod | undefined): Outcome {
    const phase = phases[pod?.state ?? PodState.UNSPECIFIED];
    if (pod === undefined || phase === undefined)
      throw new Error(`A pod in state ${pod?.state}: ${pod?.reason}`);
    this.#address(pod);
    return { kind: "seen", id: pod.id, phase };
  }

  /** A pod keeps its address for as long as it lives. */
  #address(pod: Pod | undefined): void {
    if (pod === undefined) return;
    const before = this.#heard.addresses.get(pod.id);
    const now = addressOf(pod);
    if (before !== undefined && before !== now)
      this.#heard.wrong.push(`Pod ${pod.id} had ${before} and has ${now}`);
    this.#heard.addresses.set(pod.id, now);
  }
}

/** Of its first interface, which no client removes. */
const addressOf = (pod: Pod): string => pod.interfaces[0]?.addresses.join() ?? "";
