import { systemClock } from "../../../../core/clock.ts";
import type { PodnetError } from "../../../../core/errors.ts";
import { troubleText } from "../../../../daemon/overlays/trouble-text.ts";
import { subnetsText } from "../../../../overlay/flannel/key.ts";
import type { HostLeaseState } from "../../../../overlay/host-lease.ts";
import { NodeLease, type NodeLeaseParts } from "../../../../overlay/kube/node-lease.ts";
import { KubeNodes, type NodeStore } from "../../../../overlay/kube/node-store.ts";
import { Peers } from "../../../../overlay/peers.ts";
import { until } from "../../../lab/until.ts";
import type { KubeApiServer } from "../../../peers/kube-api/server.ts";
import { clientOf } from "../../kubernetes/fixtures.ts";
import { hostOf, netConf, prefix } from "./fixtures.ts";

/** A host of the overlay, with the stand-in behind it. */
export class HostOf implements AsyncDisposable {
  readonly lease: NodeLease;
  readonly peers = new Peers("vxlan");
  conf: string | undefined = netConf;
  drained: (() => void)[] = [];
  states: string[] = [];
  refusal: PodnetError | undefined;

  constructor(
    server: KubeApiServer,
    n = 1,
    more: Partial<NodeLeaseParts["settings"]> = {},
    store: NodeStore = new KubeNodes(clientOf(server), systemClock),
  ) {
    this.lease = new NodeLease({
      store,
      settings: {
        node: `node-${n}`,
        annotationPrefix: prefix,
        netConf: "/etc/kube-flannel/net-conf.json",
        writesCondition: true,
        ...more,
      },
      readConfig: async () => this.conf,
      configEveryMs: 20,
      host: { ...hostOf(n), publicIp: undefined },
      previous: undefined,
      clock: systemClock,
      random: Math.random,
      onState: (state) => this.#note(state),
      onLeases: (changes) => void this.peers.apply(changes),
      onUnread: () => {},
      refuse: async () => this.refusal,
      drain: (_, signal) =>
        new Promise((resolve, reject) => {
          this.drained.push(resolve);
          signal.addEventListener("abort", () => reject(new Error("They stay")));
        }),
    });
    this.lease.start();
    this.lease.become(hostOf(n));
  }

  get view(): HostLeaseState {
    return this.lease.view;
  }

  get subnet(): string | undefined {
    const { subnets } = this.view;
    return subnets && subnetsText(subnets);
  }

  get troubles(): string[] {
    return this.view.troubles.map(troubleText);
  }

  is(phase: string): Promise<unknown> {
    const said = (): string => `${this.view.phase}; ${this.troubles.join("; ")}`;
    return until(`phase ${phase}`, () => this.view.phase === phase, 5000, said);
  }

  #note({ phase, own }: HostLeaseState): void {
    this.peers.own(own?.key, (key) => this.lease.registry.get(key));
    if (this.states.at(-1) !== phase) this.states.push(phase);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.lease[Symbol.asyncDispose]();
  }
}

/** The podCIDR of the Node with a number. */
export const spec = (n: number) => ({
  spec: { podCIDR: `10.244.${n}.0/24`, podCIDRs: [`10.244.${n}.0/24`] },
});

export const conditionOf = (server: KubeApiServer, name: string) =>
  server.nodes.get(name)?.status?.conditions?.find(({ type }) => type === "NetworkUnavailable");

export const annotated = (server: KubeApiServer, name: string): Promise<unknown> =>
  until(
    `annotations of ${name}`,
    () => server.nodes.annotations(name)["kube-subnet-manager"] === "true",
  );
