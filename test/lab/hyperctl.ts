import { connect } from "node:net";

/** An answer, as it came. */
export interface Answered {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** What hyperctl 1.1.0 sends to a socket, byte by byte: the program itself cannot be installed. */
export interface Hyperctl {
  /** Sends bytes on a connection of their own and reads one answer. */
  raw(bytes: string): Promise<Answered>;
  /** As hyperctl sends requests without a body. */
  call(method: string, path: string): Promise<Answered>;
  /** As hyperctl sends what it has as JSON. */
  send(method: string, path: string, body: unknown): Promise<Answered>;
  /** As hyperctl asks to take over a connection. */
  hijack(path: string): Promise<Hijacked>;
}

export const hyperctl = (socket: string): Hyperctl => {
  const raw = (bytes: string): Promise<Answered> => exchange(socket, bytes);
  return {
    raw,
    call: (method, path) => raw(request(method, path)),
    send: (method, path, body) => raw(request(method, path, JSON.stringify(body))),
    hijack: (path) => hijack(socket, path),
  };
};

/** A connection that a call has taken over. */
export interface Hijacked extends Disposable {
  /** What came before the output: the answer's head. */
  readonly head: string;
  write(bytes: string): void;
  /** Closes the half of the caller. */
  end(): void;
  /** All that came after the head, once the other half has ended. */
  readonly all: Promise<Buffer>;
}

/** As hyperctl asks to take over a connection, word for word. */
function hijack(path: string, target: string): Promise<Hijacked> {
  return new Promise((resolve, reject) => {
    const lines = [
      `POST /v1.17${target} HTTP/1.1`,
      "Host: ",
      "User-Agent: Hyper-Client/1.1.0",
      "Content-Length: 0",
      "Connection: Upgrade",
      "Content-Type: text/plain",
      "Upgrade: tcp",
    ];
    const socket = connect({ path, allowHalfOpen: true }, () =>
      socket.write(`${lines.join("\r\n")}\r\n\r\n`),
    );
    let came = Buffer.alloc(0);
    let head = -1;
    const all = Promise.withResolvers<Buffer>();
    socket.on("error", reject);
    socket.on("data", (chunk: Buffer) => {
      came = Buffer.concat([came, chunk]);
      const end = came.indexOf("\r\n\r\n") + 4;
      if (head >= 0 || end < 4) return;
      head = end;
      resolve({
        head: came.subarray(0, end).toString(),
        write: (bytes) => void socket.write(bytes),
        end: () => void socket.end(),
        all: all.promise,
        [Symbol.dispose]: () => socket.destroy(),
      });
    });
    socket.on("end", () => all.resolve(came.subarray(Math.max(head, 0))));
  });
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

/** Sends bytes and reads one answer: by its length, or to the end of the connection. */
function exchange(socket: string, bytes: string): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const connection = connect(socket, () => connection.write(bytes));
    let came = Buffer.alloc(0);
    connection.on("error", reject);
    connection.on("data", (chunk) => {
      came = Buffer.concat([came, chunk]);
      const answer = readAnswer(came, false);
      if (answer === undefined) return;
      resolve(answer);
      connection.destroy();
    });
    connection.on("end", () => {
      const answer = readAnswer(came, true);
      if (answer !== undefined) resolve(answer);
    });
    connection.on("close", () => reject(new Error(`It ended after ${came.toString()}`)));
  });
}

function readAnswer(came: Buffer, ended: boolean): Answered | undefined {
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
  const status = Number(first.split(" ")[1]);
  const length = headers["content-length"] ?? (status === 204 || ended ? 0 : Infinity);
  if (body.length < Number(length)) return undefined;
  return { status, headers, body: body.toString() };
}
