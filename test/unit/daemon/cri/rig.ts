import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Client } from "@connectrpc/connect";
import type { ServiceParts } from "../../../../daemon/api/context.ts";
import type { Config } from "../../../../daemon/config/config.ts";
import type { ImageService, RuntimeService } from "../../../../daemon/cri/gen/cri_pb.ts";
import type { PullOptions } from "../../../../daemon/images/image-jobs.ts";
import { Images } from "../../../../daemon/images/images.ts";
import { systemClock } from "../../../../core/clock.ts";
import { withNic } from "../../../../daemon/pods/store/pod-plan.ts";
import { serveCri } from "../../../../daemon/cri/serve-cri.ts";
import { openCri } from "../../../lab/cri/client.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

/** A real client and server over gRPC, with real pods on a host that is played. */
export interface CriRig extends AsyncDisposable {
  readonly cri: Client<typeof RuntimeService>;
  readonly images: Client<typeof ImageService>;
  readonly node: Node;
  readonly socket: string;
  readonly config: Config;
  /** What the store was asked to pull. */
  readonly pulls: readonly CriPull[];
  readonly logged: readonly string[];
}

type CriPull = PullOptions & { readonly reference: string };

/** Every tap has sent 10 bytes to the host, and got 20 from it. */
const countedTaps = (node: Node) =>
  withNic(node.pods.list().flatMap(({ plan }) => plan.interfaces)).map(({ nic }) => ({
    name: nic.tap,
    counters: { rxBytes: 10n, txBytes: 20n, rxErrors: 1n, txErrors: 2n },
  }));

/** With the configuration of an earlier one, podnetd starts again on its state. */
export async function startCri(config = configuration({})): Promise<CriRig> {
  await using opened = new AsyncDisposableStack();
  const node = opened.use(openNode(config));
  opened.defer(() => node.pods.close(0));
  const { directory, mostBytes, evict } = config.images;
  const images = new Images({
    db: node.db,
    directory,
    registry: config.images.registries[0],
    mostBytes,
    evict,
    holders: () => [],
    clock: systemClock,
  });
  images.recover();
  const pulls: CriPull[] = [];
  const logged: string[] = [];
  const note = (...words: readonly unknown[]) => void logged.push(JSON.stringify(words));
  const parts = {
    ...node,
    config,
    netlink: { answers: () => Promise.resolve(countedTaps(node)) },
    networks: { list: () => node.definitions },
    qemu: { missing: () => undefined },
    images: images,
    imageJobs: {
      pull: (reference: string, options: PullOptions) => {
        pulls.push({ reference, ...options });
        return Promise.resolve({ digest: "sha256:pulled" });
      },
    },
    log: { info: note, warn: note },
  } as unknown as ServiceParts;
  const socket = join(mkdtempSync(join(tmpdir(), "podnet-cri-")), "cri.sock");
  const server = await serveCri(socket, parts, () => {});
  opened.defer(() => server.close(200));
  const clients = opened.use(openCri(socket));
  const held = opened.move();
  return {
    cri: clients.runtime,
    images: clients.images,
    pulls,
    logged,
    node,
    socket,
    config,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

/** As kubelet asks for a pod. */
export const nginx = (more: object = {}) => ({
  config: {
    metadata: { name: "nginx-6f.7c", uid: "u-1", namespace: "default", attempt: 0 },
    hostname: "nginx",
    logDirectory: "/var/log/pods/default_nginx_u-1",
    dnsConfig: { servers: ["10.96.0.10"], searches: ["default.svc"], options: ["ndots:5"] },
    labels: { app: "nginx", "io.kubernetes.pod.name": "nginx" },
    annotations: { "example.org/why": "because\nof\u200blines" },
    linux: { cgroupParent: "/kubepods/pod1" },
    ...more,
  },
});
