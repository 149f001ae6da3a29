import { parseConfig } from "../../../../overlay/flannel/config.ts";
import type { Host } from "../../../../overlay/claim.ts";
import type { OwnerId } from "../../../../overlay/owner.ts";
import { type OverlayNode, readNode } from "../../../../overlay/kube/node.ts";
import type { StoreEvent } from "../../../../overlay/store.ts";

export const prefix = "flannel.alpha.coreos.com";

export const netConf = JSON.stringify({ Network: "10.244.0.0/16", Backend: { Type: "vxlan" } });
export const dualConf = JSON.stringify({
  Network: "10.244.0.0/16",
  EnableIPv6: true,
  IPv6Network: "fd00:10:244::/48",
  Backend: { Type: "vxlan" },
});
export const config = parseConfig(netConf);
export const dual = parseConfig(dualConf);

export const macOf = (n: number): string => `02:00:00:00:00:${n.toString(16).padStart(2, "0")}`;

/** flannel's annotations of a Node with vxlan. */
export const annotationsOf = (n: number): Record<string, string> => ({
  "kube-subnet-manager": "true",
  "backend-type": "vxlan",
  "backend-data": JSON.stringify({ VNI: 1, VtepMAC: macOf(n) }),
  "public-ip": `192.0.2.${n}`,
});

export interface NodeRequest {
  readonly podCidrs?: readonly string[];
  readonly annotations?: Readonly<Record<string, string>>;
  /** Seconds since 2026 began. */
  readonly created?: number;
  readonly uid?: string;
}

/** Node N as an API server has it: podCIDR 10.244.N.0/24, vxlan at 192.0.2.N. */
export function nodeJson(n: number, request: NodeRequest = {}): object {
  const { podCidrs = [`10.244.${n}.0/24`], annotations = annotationsOf(n), created = n } = request;
  return {
    metadata: {
      name: `node-${n}`,
      uid: request.uid ?? `uid-${n}`,
      resourceVersion: "1",
      creationTimestamp: new Date(Date.UTC(2026, 0) + created * 1000).toISOString(),
      annotations: Object.fromEntries(
        Object.entries(annotations).map(([name, value]) => [`${prefix}/${name}`, value]),
      ),
    },
    spec: { podCIDR: podCidrs[0], podCIDRs: podCidrs },
  };
}

export const nodeOf = (n: number, request: NodeRequest = {}): OverlayNode => {
  const name = `node-${n}`;
  const uid = request.uid ?? `uid-${n}`;
  return readNode({ name, uid, resourceVersion: "1", json: nodeJson(n, request) }, prefix);
};

/** Events in short: `+node-1/10.244.1.0-24`, `-...`. */
export const brief = (events: readonly StoreEvent[]): string[] =>
  events.map((event) =>
    (event.kind === "put" ? `+${event.at.key}` : `-${event.key}`).replace("nodes/", ""),
  );

export const hostOf = (n: number): Host =>
  ({
    owner: n as OwnerId,
    publicIp: `192.0.2.${n}`,
    publicIp6: undefined,
    attributes: { type: "vxlan", v4: { vni: 1, mac: macOf(n) }, v6: undefined },
  }) as unknown as Host;
