import { mkdtempSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServiceParts } from "../../../../daemon/api/context.ts";
import type { Config } from "../../../../daemon/config/config.ts";
import { Images } from "../../../../daemon/images/images.ts";
import { systemClock } from "../../../../core/clock.ts";
import { serveHyperd } from "../../../../daemon/hyperd/serve-hyperd.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

/** An answer, as it came. */
export interface Answered {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** hyperd's REST API over real rows, with pods on a host that is played. */
export interface HyperRig extends AsyncDisposable {
  readonly node: Node;
  readonly socket: string;
  readonly config: Config;
  /** Reasons of all that was refused. */
  readonly refusals: readonly string[];
  /** Sends bytes on a connection of their own and reads one answer. */
  raw(bytes: string): Promise<Answered>;
  /** As hyperctl sends requests without a body. */
  call(method: string, path: string): Promise<Answered>;
  /** As hyperctl sends what it has as JSON. */
  send(method: string, path: string, body: unknown): Promise<Answered>;
}

/** With the configuration of an earlier one, podnetd starts again on its state. */
export async function startHyperd(config = configuration({})): Promise<HyperRig> {
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
  const parts = {
    ...node,
    config,
    networks: { list: () => node.definitions },
    policies: { labelled: () => Promise.resolve() },
    images,
    log: { info: () => {} },
  } as unknown as ServiceParts;
  const socket = join(mkdtempSync(join(tmpdir(), "podnet-hyper-")), "hyper.sock");
  const refusals: string[] = [];
  const server = await serveHyperd(socket, parts, (reason) => refusals.push(reason));
  opened.defer(() => server.close(200));
  const raw = (bytes: string): Promise<Answered> => exchange(socket, bytes);
  const held = opened.move();
  return {
    node,
    socket,
    config,
    refusals,
    raw,
    call: (method, path) => raw(request(method, path)),
    send: (method, path, body) => raw(request(method, path, JSON.stringify(body))),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

/**
 * The bytes of hyperctl 1.1.0: Go's client writes an empty Host for a unix socket, and the client
 * puts its own version before the path.
 */
export function request(method: string, path: string, body?: string): string {
  const lines = [
    `${method} /v1.1.0${path} HTTP/1.1`,
    "Host: ",
    "User-Agent: Hyper-Client/1.1.0",
    ...(method === "GET"
      ? []
      : [
          `Content-Length: ${Buffer.byteLength(body ?? "")}`,
          `Content-Type: ${body === undefined ? "text/plain" : "application/json"}`,
        ]),
    "Accept-Encoding: gzip",
  ];
  return `${lines.join("\r\n")}\r\n\r\n${body ?? ""}`;
}

/** Sends bytes and reads one answer, by its length. */
function exchange(socket: string, bytes: string): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const connection = connect(socket, () => connection.write(bytes));
    let came = Buffer.alloc(0);
    connection.on("error", reject);
    connection.on("data", (chunk) => {
      came = Buffer.concat([came, chunk]);
      const answer = readAnswer(came);
      if (answer === undefined) return;
      resolve(answer);
      connection.destroy();
    });
    connection.on("close", () => reject(new Error(`It ended after ${came.toString()}`)));
  });
}

function readAnswer(came: Buffer): Answered | undefined {
  const end = came.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const [first = "", ...lines] = came.subarray(0, end).toString().split("\r\n");
  const headers = Object.fromEntries(
    lines.map((line) => {
      const [name = "", ...value] = line.split(": ");
      return [name.toLowerCase(), value.join(": ")];
    }),
  );
  const body = came.subarray(end + 4);
  if (body.length < Number(headers["content-length"] ?? 0)) return undefined;
  return { status: Number(first.split(" ")[1]), headers, body: body.toString() };
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
