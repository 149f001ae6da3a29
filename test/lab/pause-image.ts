import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Machine } from "./lab.ts";
import { until } from "./until.ts";

/** What runtimes call it; no registry has it, or is asked. */
export const pauseImage = "podnet.test/pause:1";

/** The port where every container of it answers. */
export const pausePort = 8000;

/** Asks a container of it by HTTP, from a machine; fails where there is no answer. */
export const askPause = (from: Machine, address: string, port: number): Promise<string> =>
  from.run("curl", "-s", "--max-time", "2", `http://${address}:${port}`);

/**
 * Asks until there is an answer: its program may not listen yet when a runtime says that it runs.
 */
export const answerOfPause = (from: Machine, address: string, port: number): Promise<string> =>
  until(`an answer of ${address}:${port}`, () =>
    askPause(from, address, port).catch(() => undefined),
  );

// Waits for a signal, as the first process of a sandbox does; meanwhile answers HTTP requests with
// the address that they seem to come from.
const source = `
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static void leave(int number) { (void)number; _exit(0); }
int main(void) {
  signal(SIGTERM, leave), signal(SIGINT, leave), signal(SIGPIPE, SIG_IGN);
  struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(${pausePort})}, peer;
  int one = 1, fd = socket(AF_INET6, SOCK_STREAM, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, (void *)&own, sizeof own) || listen(fd, 16)) for (;;) pause();
  for (;;) {
    socklen_t length = sizeof peer;
    int client = accept(fd, (void *)&peer, &length);
    if (client < 0) continue;
    char asked[1024], name[INET6_ADDRSTRLEN];
    if (read(client, asked, sizeof asked) > 0) {
      dprintf(client, "HTTP/1.0 200 OK\\r\\n\\r\\n%s", inet_ntop(AF_INET6, &peer.sin6_addr, name, sizeof name));
      shutdown(client, SHUT_WR);
      while (read(client, asked, sizeof asked) > 0);
    }
    close(client);
  }
}
`;

/**
 * Builds an image of one static program in the form that OCI's image layout has; returns the
 * archive's path.
 */
export function buildPauseImage(directory: string): string {
  const layout = path.join(directory, "pause-image");
  const blobs = path.join(layout, "blobs/sha256");
  mkdirSync(blobs, { recursive: true });
  const at = (name: string): string => path.join(directory, name);
  writeFileSync(at("pause.c"), source);
  execFileSync("gcc", ["-static", "-Os", "-s", "-o", at("pause"), at("pause.c")]);
  execFileSync("tar", ["-C", directory, "-cf", at("layer.tar"), "pause"]);

  const blob = (mediaType: string, data: Uint8Array) => {
    const sum = createHash("sha256").update(data).digest("hex");
    writeFileSync(path.join(blobs, sum), data);
    return { mediaType, digest: `sha256:${sum}`, size: statSync(path.join(blobs, sum)).size };
  };
  const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));
  const kind = "application/vnd.oci.image";
  const layer = blob(`${kind}.layer.v1.tar`, readFileSync(at("layer.tar")));
  const config = blob(
    `${kind}.config.v1+json`,
    json({
      architecture: "amd64",
      os: "linux",
      config: { Entrypoint: ["/pause"] },
      rootfs: { type: "layers", diff_ids: [layer.digest] },
    }),
  );
  const manifest = blob(
    `${kind}.manifest.v1+json`,
    json({ schemaVersion: 2, mediaType: `${kind}.manifest.v1+json`, config, layers: [layer] }),
  );
  // containerd goes by the first of these names, podman by the second.
  const annotations = {
    "io.containerd.image.name": pauseImage,
    "org.opencontainers.image.ref.name": pauseImage,
  };
  writeFileSync(path.join(layout, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  writeFileSync(
    path.join(layout, "index.json"),
    json({ schemaVersion: 2, manifests: [{ ...manifest, annotations }] }),
  );
  execFileSync("tar", ["-C", layout, "-cf", at("pause-image.tar"), "."]);
  return at("pause-image.tar");
}
