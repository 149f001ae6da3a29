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
import type { Pod, Span } from "../../api/gen/podnet/v1/pod_pb.ts";
import {
  PodService,
  type PodStats,
  type WatchPodsResponse,
  WatchPodsResponse_Kind as Kind,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  type Policy,
  PolicyService,
  type TailPolicyResponse,
} from "../../api/gen/podnet/v1/policy_service_pb.ts";
import { base } from "./base.ts";
import { type CallError, call, follow } from "./calls.ts";
import type { Tone } from "./states.ts";

/** One line of the list of events. */
export interface Event {
  readonly key: string;
  readonly timeMs: number;
  readonly what: string;
  readonly tone: Tone | "";
  readonly pod: string;
  readonly text: string;
}

/** One create or start of a pod, as far as its steps have come. */
export interface Start {
  readonly key: string;
  readonly id: string;
  readonly name: string;
  readonly timeMs: number;
  readonly spans: readonly Span[];
  readonly done: boolean;
  /** Empty unless it has failed. */
  readonly error: string;
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
  /** Newest first. */
  readonly starts: readonly Start[];
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
  starts: [],
  error: undefined,
  changes: false,
};

const keptEvents = 500;
const keptVerdicts = 200;
const keptStarts = 100;
const keptPast = 1000n;
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
const tones: Readonly<Partial<Record<Kind, Tone>>> = {
  [Kind.DRIFT]: "warn",
  [Kind.GUARD]: "warn",
  [Kind.DENIAL]: "warn",
};

/**
 * The starts after an event: steps belong to the last one of their pod. An event of the past has
 * its pod as it is now.
 */
function startsAfter(
  starts: readonly Start[],
  { kind, pod, cursor, time, span, error, text }: WatchPodsResponse,
): readonly Start[] {
  if (pod === undefined) return starts;
  const at = starts.findIndex(({ id }) => id === pod.id);
  const last = starts[at];
  const begins =
    kind === Kind.CREATED ||
    (kind === Kind.STEP && (last === undefined || last.done || last.error !== ""));
  if (begins) {
    const timeMs = time === undefined ? Date.now() : timestampMs(time);
    const spans = span === undefined ? [] : [span];
    const start = { key: `${cursor}`, id: pod.id, name: pod.name, timeMs, spans, done: false };
    return [{ ...start, error: "" }, ...starts].slice(0, keptStarts);
  }
  if (last === undefined || last.done) return starts;
  if (kind === Kind.STEP && span !== undefined)
    return starts.with(at, { ...last, spans: [...last.spans, span] });
  const isOver = error !== undefined || kind === Kind.DELETED || /^(?:running|failed)/.test(text);
  if (!isOver) return starts;
  const spans = pod.spans.length > last.spans.length ? pod.spans : last.spans;
  return starts.with(at, { ...last, spans, done: true, error: error?.message ?? "" });
}

/** The state and who shows it. Changes of one moment are shown together. */
export class Model {
  #state = empty;
  #shown: ((state: State) => void) | undefined;
  #queued = false;
  #sequence = 0;
  /** Cursor of the latest event that is in the list. */
  #latest = 0n;

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
    const { changes } = (await (await fetch(`${base}allowed`)).json()) as { changes: boolean };
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

  /** Takes every pod as it is, then follows what happens. */
  #watch(): void {
    const pods = new Map<string, Pod>();
    const end = follow(
      PodService.method.watch,
      {},
      {
        each: ({ kind, pod, cursor }) => {
          if (kind === Kind.SNAPSHOT && pod !== undefined) pods.set(pod.id, pod);
          if (kind !== Kind.SYNCED) return;
          end();
          this.#change({ pods: new Map(pods), connected: true });
          this.#followEvents(pods, cursor, cursor > keptPast ? cursor - keptPast : 0n);
        },
        over: (error) => this.#again(error),
        lost: () => this.#change({ connected: false }),
      },
    );
  }

  #again(error?: CallError): void {
    this.#change({ connected: false, ...(error === undefined ? {} : { error }) });
    setTimeout(() => this.#watch(), 1000);
  }

  /**
   * Follows events after one: those up to `known` are past, and pods have them already. What
   * podnetd no longer remembers of the past is left out.
   */
  #followEvents(pods: Map<string, Pod>, known: bigint, after: bigint): void {
    let begun = false;
    const end = follow(
      PodService.method.watch,
      { after },
      {
        each: (event) => {
          begun = true;
          this.#happened(event);
          const { kind, pod, cursor } = event;
          if (cursor <= known || pod === undefined || kind === Kind.STEP) return;
          if (kind === Kind.DELETED) pods.delete(pod.id);
          else pods.set(pod.id, pod);
          this.#change({ pods: new Map(pods), connected: true });
        },
        over: (error) => {
          if (!begun && error?.code === "EVENTS_LOST" && after !== known)
            this.#followEvents(pods, known, known);
          else this.#again(error);
        },
        // The browser would ask for the same events again.
        lost: () => {
          end();
          this.#again();
        },
      },
    );
  }

  #happened(event: WatchPodsResponse): void {
    const { kind, pod, cursor, time, text, error, drift } = event;
    if (cursor <= this.#latest) return;
    this.#latest = cursor;
    const starts = startsAfter(this.#state.starts, event);
    if (starts !== this.#state.starts) this.#change({ starts });
    const what = kinds[kind];
    if (what === undefined) return;
    this.#note({
      key: `${cursor}`,
      timeMs: time === undefined ? Date.now() : timestampMs(time),
      what,
      tone: error === undefined ? (tones[kind] ?? "") : "bad",
      pod: pod?.name ?? "",
      text: error?.message ?? (text || (drift?.part ?? pod?.reason ?? "")),
    });
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
