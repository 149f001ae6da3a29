/** What the page knows of the host, kept current by streams and, for the rest, by asking again. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type Attachment, CniService } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { type Network, NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import {
  type DiffResponse,
  type HealthCheck,
  type InfoResponse,
  NodeService,
  type Pool,
} from "../../api/gen/podnet/v1/node_service_pb.ts";
import {
  type ListNodesResponse,
  OverlayService,
} from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import {
  PodService,
  type PodStats,
  WatchPodsResponse_Kind as Kind,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  type Policy,
  PolicyService,
  type TailPolicyResponse,
} from "../../api/gen/podnet/v1/policy_service_pb.ts";
import { type CallError, call, follow } from "./calls.ts";

/** One line of the list of events. */
export interface Event {
  readonly key: string;
  readonly timeMs: number;
  readonly what: string;
  readonly pod: string;
  readonly text: string;
}

export interface State {
  readonly connected: boolean;
  readonly info: InfoResponse | undefined;
  readonly pods: ReadonlyMap<string, Pod>;
  readonly stats: ReadonlyMap<string, PodStats>;
  readonly networks: readonly Network[];
  readonly containers: readonly Attachment[];
  readonly peers: ListNodesResponse["nodes"];
  readonly policies: readonly Policy[];
  readonly verdicts: readonly { readonly key: string; readonly verdict: TailPolicyResponse }[];
  readonly checks: readonly HealthCheck[];
  readonly drift: DiffResponse | undefined;
  readonly pools: readonly Pool[];
  /** Newest first. */
  readonly events: readonly Event[];
  readonly error: CallError | undefined;
  /** Whether pods may be changed. */
  readonly changes: boolean;
}

const empty: State = {
  connected: false,
  info: undefined,
  pods: new Map(),
  stats: new Map(),
  networks: [],
  containers: [],
  peers: [],
  policies: [],
  verdicts: [],
  checks: [],
  drift: undefined,
  pools: [],
  events: [],
  error: undefined,
  changes: false,
};

const keptEvents = 500;
const keptVerdicts = 200;
/** Between two looks at what has no stream, and at the host's drift, milliseconds. */
const [lookMs, driftMs, statsMs] = [5000, 30_000, 2000];

const kinds: Readonly<Partial<Record<Kind, string>>> = {
  [Kind.CREATED]: "created",
  [Kind.UPDATED]: "changed",
  [Kind.DELETED]: "deleted",
  [Kind.DRIFT]: "drift",
  [Kind.ATTACHMENT]: "container",
  [Kind.GUARD]: "guard",
  [Kind.DENIAL]: "denied",
  [Kind.SERVICE]: "service",
};

/** The state and who shows it. Changes of one moment are shown together. */
export class Model {
  #state = empty;
  #shown: ((state: State) => void) | undefined;
  #queued = false;
  #sequence = 0;

  get state(): State {
    return this.#state;
  }

  show(shown: (state: State) => void): void {
    this.#shown = shown;
    shown(this.#state);
  }

  /** Begins to follow the host, until the page is closed. */
  begin(): void {
    void this.#allowed();
    this.#watch();
    this.#rates();
    this.#tail();
    void this.#repeat(lookMs, () => this.#look());
    void this.#repeat(driftMs, async () =>
      this.#change({ drift: await call(NodeService.method.diff, {}) }),
    );
  }

  #change(part: Partial<State>): void {
    this.#state = { ...this.#state, ...part };
    if (this.#queued) return;
    this.#queued = true;
    requestAnimationFrame(() => {
      this.#queued = false;
      this.#shown?.(this.#state);
    });
  }

  async #allowed(): Promise<void> {
    const { changes } = (await (await fetch("/allowed")).json()) as { changes: boolean };
    this.#change({ changes });
  }

  async #repeat(everyMs: number, look: () => Promise<void>): Promise<void> {
    for (;;) {
      await look().catch((error: unknown) => this.#change({ error: error as CallError }));
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  }

  /** What has no stream of its own. A call that this caller may not make leaves its part empty. */
  async #look(): Promise<void> {
    const or = <T>(asked: Promise<T>, otherwise: T): Promise<T> => asked.catch(() => otherwise);
    const [info, { networks }, { checks }, containers, policies, pools, peers] = await Promise.all([
      call(NodeService.method.info, {}),
      call(NetworkService.method.list, {}),
      call(NodeService.method.health, {}),
      or(
        call(CniService.method.list, {}).then(({ attachments }) => attachments),
        [],
      ),
      or(
        call(PolicyService.method.list, {}).then((answer) => answer.policies),
        [],
      ),
      or(
        call(NodeService.method.listPools, {}).then((answer) => answer.pools),
        [],
      ),
      or(
        call(OverlayService.method.listNodes, {}).then(({ nodes }) => nodes),
        [],
      ),
    ]);
    this.#change({
      info,
      networks,
      checks,
      containers,
      policies,
      pools,
      peers,
      connected: true,
      error: undefined,
    });
  }

  #watch(): void {
    let pods = new Map<string, Pod>();
    let synced = false;
    const again = (error?: CallError): void => {
      this.#change({ connected: false, ...(error === undefined ? {} : { error }) });
      setTimeout(() => this.#watch(), 1000);
    };
    follow(
      PodService.method.watch,
      {},
      {
        each: ({ kind, pod, cursor, time, text, error, drift }) => {
          if (kind === Kind.SYNCED) synced = true;
          else if (kind === Kind.DELETED && pod !== undefined) pods.delete(pod.id);
          else if (pod !== undefined && kind !== Kind.STEP) pods.set(pod.id, pod);
          const what = kinds[kind];
          if (what !== undefined)
            this.#note({
              key: `${cursor}`,
              timeMs: time === undefined ? Date.now() : timestampMs(time),
              what,
              pod: pod?.name ?? "",
              text: error?.message ?? (text || (drift?.part ?? pod?.reason ?? "")),
            });
          if (synced) this.#change({ pods: new Map(pods), connected: true });
        },
        over: again,
        // The browser connects again, and the watch begins with every pod.
        lost: () => {
          pods = new Map();
          synced = false;
          this.#change({ connected: false });
        },
      },
    );
  }

  #note(event: Event): void {
    this.#change({ events: [event, ...this.#state.events].slice(0, keptEvents) });
  }

  #rates(): void {
    follow(
      PodService.method.stats,
      { everyMs: statsMs },
      {
        each: ({ pods }) =>
          this.#change({ stats: new Map(pods.map((each) => [each.podId, each])) }),
        over: () => setTimeout(() => this.#rates(), lookMs),
      },
    );
  }

  #tail(): void {
    follow(
      PolicyService.method.tail,
      {},
      {
        each: (verdict) => {
          const key = `${this.#sequence++}`;
          const verdicts = [{ key, verdict }, ...this.#state.verdicts].slice(0, keptVerdicts);
          this.#change({ verdicts });
        },
        over: () => setTimeout(() => this.#tail(), lookMs),
      },
    );
  }
}
