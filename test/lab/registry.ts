import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import path from "node:path";
import { until } from "./until.ts";

/** Debian's docker-registry, as scripts/unpack-registry has unpacked it. */
const program = path.resolve(import.meta.dirname, "../../build/registry/usr/bin/docker-registry");
/** Debian's umoci, from there. */
export const umoci = path.join(path.dirname(program), "umoci");

export interface Registry extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** The authority of its certificate; undefined without TLS. */
  readonly ca: string | undefined;
  /** Where its blobs are. */
  readonly storage: string;
  /** Pushes the image of an OCI layout, and answers its manifest's digest. */
  push(layout: string, repository: string, tag: string): Promise<string>;
}

export interface RegistryOptions {
  readonly directory: string;
  readonly port: number;
  readonly tls?: boolean;
  /** USER:PASSWORD that it asks for. */
  readonly credential?: string;
  /** Runs the program; in the namespaces of this process unless given. */
  readonly start?: (argv: readonly [string, ...string[]]) => ChildProcess;
}

/** Starts a registry at 127.0.0.1. */
export async function startRegistry(options: RegistryOptions): Promise<Registry> {
  const { directory, port, tls = false, credential } = options;
  const at = (name: string): string => path.join(directory, name);
  mkdirSync(directory, { recursive: true });
  if (tls) makeCertificate(at("registry"));
  if (credential !== undefined) writeFileSync(at("htpasswd"), passwordLine(credential));
  const lines = [
    "version: 0.1",
    "log: {level: error}",
    `storage: {filesystem: {rootdirectory: ${at("storage")}}}`,
    `http:`,
    `  addr: 127.0.0.1:${port}`,
    ...(tls ? [`  tls: {certificate: ${at("registry.crt")}, key: ${at("registry.key")}}`] : []),
    ...(credential === undefined
      ? []
      : [`auth: {htpasswd: {realm: lab, path: ${at("htpasswd")}}}`]),
  ];
  writeFileSync(at("config.yml"), `${lines.join("\n")}\n`);
  const argv = [program, "serve", at("config.yml")] as const;
  const child = (
    options.start ?? ((words) => spawn(words[0], words.slice(1), { stdio: "ignore" }))
  )([...argv]);
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const ca = tls ? readFileSync(at("registry.crt"), "utf8") : undefined;
  const host = `localhost:${port}`;
  const ask = (method: string, url: string, body?: Uint8Array, type = "application/octet-stream") =>
    askOnce({
      url: new URL(url, `http${tls ? "s" : ""}://${host}/`),
      method,
      body,
      type,
      ca,
      credential,
    });
  if (options.start === undefined)
    try {
      await until("the registry", () =>
        ask("GET", "/v2/").then(
          ({ status }) => status === 200,
          () => false,
        ),
      );
    } catch (thrown) {
      child.kill("SIGKILL");
      throw thrown;
    }
  return {
    host,
    port,
    ca,
    storage: at("storage"),
    async push(layout, repository, tag) {
      const blob = (digest: string): Buffer =>
        readFileSync(path.join(layout, "blobs", digest.replace(":", "/")));
      const index = JSON.parse(readFileSync(path.join(layout, "index.json"), "utf8")) as {
        manifests: { digest: string; mediaType: string }[];
      };
      const [top] = index.manifests;
      if (top === undefined) throw new Error("The layout has no image");
      const manifest = JSON.parse(blob(top.digest).toString()) as {
        config: { digest: string };
        layers: { digest: string }[];
      };
      for (const { digest } of [manifest.config, ...manifest.layers]) {
        const begun = await ask("POST", `/v2/${repository}/blobs/uploads/`);
        const place = new URL(begun.location, `http://${host}/`);
        place.searchParams.set("digest", digest);
        const { status } = await ask("PUT", `${place.pathname}${place.search}`, blob(digest));
        if (status !== 201) throw new Error(`The registry takes no blob: ${status}`);
      }
      const bytes = blob(top.digest);
      const { status } = await ask(
        "PUT",
        `/v2/${repository}/manifests/${tag}`,
        bytes,
        top.mediaType,
      );
      if (status !== 201) throw new Error(`The registry takes no manifest: ${status}`);
      return top.digest;
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

interface Asked {
  readonly url: URL;
  readonly method: string;
  readonly body: Uint8Array | undefined;
  readonly type: string;
  readonly ca: string | undefined;
  readonly credential: string | undefined;
}

function askOnce({ url, method, body, type, ca, credential }: Asked) {
  const send = url.protocol === "https:" ? httpsRequest : httpRequest;
  const headers = {
    "content-type": type,
    ...(body === undefined ? { "content-length": "0" } : { "content-length": `${body.length}` }),
    ...(credential === undefined
      ? {}
      : { authorization: `Basic ${Buffer.from(credential).toString("base64")}` }),
  };
  return new Promise<{ status: number; location: string }>((resolve, reject) => {
    const asked = send(url, { method, headers, ...(ca === undefined ? {} : { ca }) }, (answer) => {
      answer.resume();
      answer.once("end", () =>
        resolve({ status: answer.statusCode ?? 0, location: answer.headers.location ?? "" }),
      );
    });
    asked.once("error", reject);
    asked.end(body);
  });
}

function makeCertificate(file: string): void {
  const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
  execFileSync("openssl", [
    ...words.split(" "),
    "-subj",
    "/CN=localhost",
    "-addext",
    "subjectAltName=DNS:localhost,IP:127.0.0.1",
    "-keyout",
    `${file}.key`,
    "-out",
    `${file}.crt`,
  ]);
}

/** A line of htpasswd by bcrypt, which the registry wants: by the C library through Python. */
function passwordLine(credential: string): string {
  const colon = credential.indexOf(":");
  const [user, password] = [credential.slice(0, colon), credential.slice(colon + 1)];
  const script =
    "import crypt, sys; print(crypt.crypt(sys.argv[1], crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16)))";
  const hash = execFileSync("python3", ["-W", "ignore", "-c", script, password], {
    encoding: "utf8",
  });
  return `${user}:${hash.trim()}\n`;
}

/** The file of a blob in a registry's storage. */
export const blobFile = ({ storage }: Registry, digest: string): string => {
  const hex = digest.slice("sha256:".length);
  return path.join(storage, "docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
};
