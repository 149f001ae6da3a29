import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { putImage, putName } from "../../../../daemon/images/store.ts";
import type { Digest } from "../../../../images/archive/digest.ts";
import { configuration } from "../fixtures/node.ts";
import { type CriRig, nginx, startCri } from "./rig.ts";

export const digest = `sha256:${"a".repeat(64)}` as Digest;

export interface Started extends AsyncDisposable {
  readonly rig: CriRig;
  readonly logs: string;
  readonly mounts: string;
  readonly podSandboxId: string;
}

/** A sandbox that is ready, and an image that containers can be of. */
export async function started(more: object = {}, prepare = (_rig: CriRig) => {}): Promise<Started> {
  const directory = mkdtempSync(join(tmpdir(), "podnet-cri-"));
  const [logs, mounts] = [join(directory, "logs"), join(directory, "kubelet")];
  for (const path of [logs, mounts]) mkdirSync(path);
  const config = configuration({ "cri.log_path": logs });
  const rig = await startCri({
    ...config,
    cri: { ...config.cri, logPath: logs, mountPaths: [mounts] },
  });
  const image = {
    architecture: "amd64",
    entrypoint: ["/app"],
    command: ["serve"],
    environment: ["A=image", "B=image"],
    directory: "srv",
    user: "web:logs",
    stopSignal: "SIGINT",
    exposedPorts: [],
    labels: {},
  };
  const row = { digest, type: "root", state: "ready", config: image, bytes: 4096 } as const;
  putImage(rig.node.db, { ...row, createdMs: 1, usedMs: 1 });
  putName(rig.node.db, "docker.io/library/app:1", digest);
  const { file } = { file: join(rig.config.images.directory, `${digest.replace(":", "-")}.img`) };
  mkdirSync(rig.config.images.directory, { recursive: true });
  writeFileSync(file, Buffer.alloc(4096));
  prepare(rig);
  const sandbox = nginx({ logDirectory: join(logs, "pod"), ...more });
  const { podSandboxId } = await rig.cri.runPodSandbox(sandbox);
  return {
    rig,
    logs,
    mounts,
    podSandboxId,
    [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
  };
}

export const asked = (podSandboxId: string, more: object = {}) => ({
  podSandboxId,
  config: {
    metadata: { name: "app", attempt: 0 },
    image: { image: "app:1" },
    logPath: "app/0.log",
    labels: { app: "one" },
    ...more,
  },
});

export const context = (more: object) => ({ linux: { securityContext: more } });
