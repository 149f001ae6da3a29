import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Client } from "@connectrpc/connect";
import { type ContainerHost, unpacked } from "./container-host.ts";
import { connectCri } from "./cri/client.ts";
import type { RuntimeService } from "../../daemon/cri/gen/cri_pb.ts";
import { pauseImage } from "./pause-image.ts";
import { until } from "./until.ts";

/** A containerd of the host's own, with runc. */
export interface Containerd extends AsyncDisposable {
  readonly cri: Client<typeof RuntimeService>;
  /** Runs `ctr`; resolves to its standard output. */
  ctr(...words: readonly string[]): Promise<string>;
  log(): string;
}

const configuration = (directory: string): string => `
version = 2
root = "${directory}/root"
state = "${directory}/state"
disabled_plugins = [${["btrfs", "zfs", "devmapper", "aufs"].map((name) => `"io.containerd.snapshotter.v1.${name}"`).join()},
  "io.containerd.internal.v1.opt"]
[grpc]
address = "${directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${pauseImage}"
restrict_oom_score_adj = true
disable_apparmor = true
disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "${unpacked}/usr/sbin/runc"
`;

/**
 * Starts it with the image in it, and waits until its CRI has read the lists of plugins that are
 * there.
 */
export async function startContainerd(host: ContainerHost, image: string): Promise<Containerd> {
  const directory = path.join(host.directory, "containerd");
  mkdirSync(directory, { recursive: true });
  const at = (name: string): string => path.join(directory, name);
  writeFileSync(at("config.toml"), configuration(directory));
  const out = openSync(at("log"), "a");
  const child = host.spawn([`${unpacked}/usr/bin/containerd`, "--config", at("config.toml")], {
    stdio: ["ignore", out, out],
  });
  closeSync(out);
  const log = (): string => readFileSync(at("log"), "utf8");
  const socket = at("containerd.sock");
  const ctr = (...words: readonly string[]): Promise<string> =>
    host.run(`${unpacked}/usr/bin/ctr`, `--address=${socket}`, ...words);
  await until("containerd's socket", () => ended(child) || existsSync(socket), 20_000, log);
  const cri = connectCri(socket);
  const end = async (): Promise<void> => {
    if (ended(child)) return;
    const over = once(child, "exit");
    child.kill("SIGTERM");
    await over;
  };
  try {
    await until(
      "containerd to answer",
      () =>
        cri.version({}).then(
          () => true,
          () => false,
        ),
      20_000,
      log,
    );
    for (const namespace of ["default", "k8s.io"])
      await ctr(`--namespace=${namespace}`, "image", "import", "--snapshotter=native", image);
    await until(
      "containerd to have read a list of plugins",
      async () => (await cri.status({})).status?.conditions.every(({ status }) => status),
      20_000,
      log,
    );
  } catch (error) {
    await end();
    throw new Error(`No containerd: ${log().slice(-4000)}`, { cause: error });
  }
  return { cri, ctr, log, [Symbol.asyncDispose]: end };
}

const ended = (child: { exitCode: number | null; signalCode: string | null }): boolean =>
  child.exitCode !== null || child.signalCode !== null;
