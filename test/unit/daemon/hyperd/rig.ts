import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CallCredential } from "../../../../api/validate/credential.ts";
import type { ServiceParts } from "../../../../daemon/api/context.ts";
import { putImage, putName } from "../../../../daemon/images/store.ts";
import type { Database } from "../../../../daemon/store/database.ts";
import type { Digest } from "../../../../images/archive/digest.ts";
import type { Config } from "../../../../daemon/config/config.ts";
import { Images, type StoredImageRow } from "../../../../daemon/images/images.ts";
import { Services, type ServicesParts } from "../../../../daemon/services/services.ts";
import { openLog } from "../../../../linux/log.ts";
import { systemClock } from "../../../../core/clock.ts";
import { serveHyperd } from "../../../../daemon/hyperd/serve-hyperd.ts";
import { type Hyperctl, hyperctl } from "../../../lab/hyperctl.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";
import { type PlayedGuest, playGuest } from "./played-guest.ts";

/** hyperd's REST API over real rows, with pods on a host that is played. */
export interface HyperRig extends Hyperctl, AsyncDisposable {
  readonly node: Node;
  readonly guest: PlayedGuest;
  readonly socket: string;
  readonly config: Config;
  /** Reasons of all that was refused. */
  readonly refusals: readonly string[];
  /** Images that were pulled; each is one that is in the store. */
  readonly pulled: readonly string[];
  /** The names that archives were loaded under, each with its length. */
  readonly loaded: readonly string[];
  readonly services: Services;
  /** Services whose rules were written, each time. */
  readonly rules: readonly (readonly string[])[];
  /** What was noted of callers. */
  readonly notes: readonly string[];
  /** The credential of each pull. */
  readonly credentials: readonly (CallCredential | undefined)[];
}

/** With the configuration of an earlier one, podnetd starts again on its state. */
export async function startHyperd(config = configuration({})): Promise<HyperRig> {
  await using opened = new AsyncDisposableStack();
  const { directory, mostBytes, evict } = config.images;
  const imagesOf = (db: Database): Images =>
    new Images({
      db,
      directory,
      registry: config.images.registries[0],
      mostBytes,
      evict,
      holders: () => [],
      clock: systemClock,
    });
  const node = opened.use(openNode(config, systemClock, imagesOf));
  opened.defer(() => node.pods.close(0));
  const images = imagesOf(node.db);
  images.recover();
  const guest = playGuest(node);
  const rules: string[][] = [];
  const notes: string[] = [];
  const { db, journal, definitions } = node;
  const services = opened.use(
    new Services({
      db,
      config,
      journal,
      clock: systemClock,
      log: openLog({ component: "test", level: "silent" }),
      holders: () => [],
      networks: { list: () => definitions },
      network: {
        apply: async (change) => {
          if (change.kind === "services") rules.push(change.now().map(({ name }) => name));
          return await Promise.resolve([]);
        },
        observe: { overlapsOf: () => Promise.resolve([]) },
        describeService: () => [],
        inspectServices: () => Promise.reject(new Error("Drift is not played")),
      } satisfies ServicesParts["network"],
    }),
  );
  const asked: string[] = [];
  const loaded: string[] = [];
  const credentials: (CallCredential | undefined)[] = [];
  const parts = {
    ...node,
    config,
    services,
    networks: { list: () => node.definitions },
    policies: {
      labelled: () => Promise.resolve(),
      apply: async ({ name, ...rules }: { readonly name: string }) => {
        await node.pods.setRules(node.pods.find(name.replace(/^pod:/, "")).id, rules);
      },
    },
    images,
    imageJobs: {
      pull: async (
        reference: string,
        { credential }: { readonly credential?: CallCredential },
      ): Promise<StoredImageRow> => {
        asked.push(reference);
        credentials.push(credential);
        await Promise.resolve();
        return images.findImage(reference);
      },
      import: async (
        source: { readonly upload: AsyncIterable<Uint8Array> },
        { name }: { readonly name: string },
      ): Promise<StoredImageRow> => {
        let bytes = 0;
        for await (const part of source.upload) bytes += part.length;
        loaded.push(`${name} ${bytes}`);
        return images.findImage("nginx:1.25");
      },
    },
    netlink: { answers: () => Promise.resolve([]) },
    log: { info: (_: unknown, text: string) => notes.push(text), warn: () => {} },
  } as unknown as ServiceParts;
  const socket = join(mkdtempSync(join(tmpdir(), "podnet-hyper-")), "hyper.sock");
  const refusals: string[] = [];
  const server = await serveHyperd(socket, parts, (reason) => refusals.push(reason));
  opened.defer(() => server.close(200));
  const held = opened.move();
  return {
    node,
    guest,
    socket,
    config,
    refusals,
    pulled: asked,
    loaded,
    credentials,
    services,
    rules,
    notes,
    ...hyperctl(socket),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

export const digest = `sha256:${"a".repeat(64)}` as Digest;

/** An image in the store. */
export function storeImage(
  { node, config: { images } }: HyperRig,
  name = "docker.io/library/nginx:1.25",
): void {
  const { directory } = images;
  const config = {
    architecture: "amd64",
    entrypoint: ["/entry"],
    command: ["nginx"],
    environment: ["PATH=/bin"],
    directory: "/srv",
    user: "www",
    stopSignal: "",
    exposedPorts: [],
    labels: {},
  };
  writeFileSync(join(directory, `${digest.replace(":", "-")}.img`), Buffer.alloc(4096));
  const row = { digest, type: "root", state: "ready", config, bytes: 4096 } as const;
  putImage(node.db, { ...row, createdMs: 7000, usedMs: 1 });
  putName(node.db, name, digest);
}

/** As `hyperctl create` sends a pod without containers. */
export const podOne = (more: object = {}): object => ({
  id: "pod-one",
  containers: [],
  resource: { vcpu: 1, memory: 128 },
  files: [],
  volumes: [],
  log: { type: "", config: {} },
  dns: ["8.8.8.8"],
  interfaces: null,
  services: null,
  ...more,
});
