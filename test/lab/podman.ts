import type { ChildProcess } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type ContainerHost, unpacked } from "./container-host.ts";

/** `podman` with state of its own on a host. */
export interface Podman {
  /** Runs it to its end; resolves to its standard output. */
  (...words: readonly string[]): Promise<string>;
  /** Starts it, with its standard output as a pipe. */
  spawn(...words: readonly string[]): ChildProcess;
}

/** podman with CNI for its networks, and the image in its store. */
export async function openPodman(host: ContainerHost, image: string): Promise<Podman> {
  const directory = path.join(host.directory, "podman");
  mkdirSync(directory, { recursive: true });
  const at = (name: string): string => path.join(directory, name);
  writeFileSync(
    at("storage.conf"),
    `[storage]\ndriver = "vfs"\nrunroot = "${at("run")}"\ngraphroot = "${at("graph")}"\n`,
  );
  writeFileSync(
    at("containers.conf"),
    `[containers]
seccomp_profile = "${unpacked}/usr/share/containers/seccomp.json"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
conmon_path = ["${unpacked}/usr/bin/conmon"]
static_dir = "${at("static")}"
tmp_dir = "${at("tmp")}"
volume_path = "${at("volumes")}"
[engine.runtimes]
runc = ["${unpacked}/usr/sbin/runc"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/etc/cni/net.d"
`,
  );
  const settings = [
    `CONTAINERS_CONF=${at("containers.conf")}`,
    `CONTAINERS_STORAGE_CONF=${at("storage.conf")}`,
  ];
  const argv = (words: readonly string[]) =>
    ["env", ...settings, `${unpacked}/usr/bin/podman`, ...words] as const;
  const podman: Podman = Object.assign((...words: readonly string[]) => host.run(...argv(words)), {
    spawn: (...words: readonly string[]) =>
      host.spawn(argv(words), { stdio: ["ignore", "pipe", "inherit"] }),
  });
  await podman("load", "--input", image);
  return podman;
}
