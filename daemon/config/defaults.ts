import { dirname, join } from "node:path";
import { usualShare } from "../../core/connection-share.ts";
import { type Architecture, hostArchitecture } from "../../hypervisor/architecture.ts";
import { dockerHub } from "../../images/reference.ts";
import { usualRelayPort } from "../../network/firewall/policed.ts";
import { defaultImage } from "./default-image.ts";
import { configError, type Layer, type Setting } from "./layers.ts";
import { overlayDefaults } from "./overlay.ts";

/** Built-in values; systemd's RUNTIME_DIRECTORY and STATE_DIRECTORY replace the two directories. */
export function defaultLayer(env: Readonly<Record<string, string | undefined>>): Layer {
  const fromUnit = (key: string, name: string, otherwise: string): Setting => {
    // systemd sorts them: the unit's /run/flannel comes before /run/podnet.
    const directories = env[name]?.split(":") ?? [];
    const value = directories.includes(otherwise) ? otherwise : directories[0];
    if (value === undefined || value === "") return { value: otherwise, origin: "default" };
    if (value.startsWith("/")) return { value, origin: name };
    throw configError(key, name, "must be an absolute path", "Let systemd set it, or unset it");
  };
  const plain: Record<string, unknown> = {
    log_level: "info",
    disk_max_mib: 0,
    "access.admin": [],
    "access.viewer": [],
    "access.write_through_paths": [],
    "access.share_paths": [],
    "access.writable_share_paths": [],
    "limits.connections": 1024,
    "limits.connections_per_caller": 256,
    "limits.connections_per_s": 200,
    "limits.handshakes": 256,
    "limits.requests_per_caller": 512,
    "limits.creates_per_caller": 128,
    "limits.starts": 0,
    "limits.captures_per_caller": 8,
    "limits.requests_per_s": 1000,
    "limits.request_s": 30,
    "limits.stall_s": 60,
    "limits.idle_s": 300,
    "network.name": "default",
    "network.bridge": "hyper0",
    "network.cidr": "192.168.123.0/24",
    "network.mtu": 1500,
    "network.ranges": [],
    "network.reserved": [],
    "network.dns": [],
    "network.dns_search": [],
    "network.masquerade": true,
    "network.isolated": false,
    "network.cloud_metadata": false,
    "network.accept_translated": false,
    "network.admit": [],
    "network.host_access": [],
    "network.connections": usualShare,
    "network.vlan_filtering": false,
    "network.limit_in": "none",
    "network.limit_out": "none",
    "network.packets_in": "none",
    "network.packets_out": "none",
    "dns.resolver": true,
    "dns.domain": "podnet",
    "dns.upstreams": [],
    "dns.stale_s": 3600,
    ...overlayDefaults,
    "cni.enabled": true,
    "cni.conf_dir": "/etc/cni/net.d",
    "cni.bin_dirs": ["/opt/cni/bin", "/usr/lib/cni"],
    "cni.vendor_dir": "/opt",
    "cni.plugin_timeout_s": 30,
    "cri.stream_address": "127.0.0.1:0",
    "cri.log_path": "/var/log/pods",
    "cri.mount_paths": ["/var/lib/kubelet/pods"],
    "hyperd.mount_paths": [],
    "metrics.pods": true,
    firewall: "auto",
    iptables_chain: "HYPER",
    iptables_variant: "auto",
    service_cidrs: ["10.73.0.0/16"],
    disable_iptables: false,
    guard_ethertypes: [],
    relay_port: usualRelayPort,
    policy_log_mib: 16,
    "qemu.arch": hostArchitecture,
    "qemu.kvm": "auto",
    "qemu.confine": "on",
    // Above what systemd, containers and subordinate ids take (systemd's UIDS-GIDS).
    "qemu.uids": "2000000000-2000065535",
    "qemu.memory_overhead_mib": 256,
    "qemu.pids": 96,
    "qemu.cgroup": "podnet",
    "images.registries": [dockerHub],
    "images.insecure": [],
    "images.max_mib": 20_480,
    "images.image_max_mib": 16_384,
    "images.layers_max_mib": 2048,
    "images.evict": false,
    "images.job_s": 3600,
    drift_s: 5,
    factory: "cold",
    "pool.size": 4,
    "pool.classes": [],
    "pool.reserve_mib": 1024,
    quarantine_s: 60,
    "timeouts.create_s": 120,
    "timeouts.ready_s": 60,
    "timeouts.stop_s": 5,
    // Without an agent there is a system of its own in the guest, which ends its services one after
    // the other.
    "timeouts.power_button_s": 60,
  };
  const layer = new Map<string, Setting>([
    ["state_dir", fromUnit("state_dir", "STATE_DIRECTORY", "/var/lib/podnet")],
    ["run_dir", fromUnit("run_dir", "RUNTIME_DIRECTORY", "/run/podnet")],
  ]);
  for (const [key, value] of Object.entries(plain)) layer.set(key, { value, origin: "default" });
  return layer;
}

/**
 * Adds the values that follow from others where no layer gives them. `checkout` is the directory
 * that podnet runs from.
 */
export function addDerived(merged: Map<string, Setting>, checkout: string): void {
  const runDir = merged.get("run_dir")?.value as string;
  if (!merged.has("socket")) {
    merged.set("socket", { value: join(runDir, "podnet.sock"), origin: "default" });
  }
  if (!merged.has("disks_dir")) {
    const value = join(merged.get("state_dir")?.value as string, "disks");
    merged.set("disks_dir", { value, origin: "default" });
  }
  if (!merged.has("cni.socket"))
    merged.set("cni.socket", { value: join(runDir, "cni.sock"), origin: "default" });
  if (!merged.has("cni.pending_dir")) {
    const value = join(merged.get("state_dir")?.value as string, "cni-pending");
    merged.set("cni.pending_dir", { value, origin: "default" });
  }
  const arch = merged.get("qemu.arch")?.value as Architecture;
  for (const [key, value] of Object.entries(defaultImage(checkout, arch)))
    if (!merged.has(key)) merged.set(key, { value, origin: "default" });
  if (!merged.has("access.operator")) {
    const group = merged.get("socket_group")?.value as string | undefined;
    const value = group === undefined ? [] : [`gid:${group}`];
    merged.set("access.operator", {
      value,
      origin: group === undefined ? "default" : "socket_group",
    });
  }
  if (!merged.has("access.image_paths"))
    merged.set("access.image_paths", { value: usualImagePaths(merged), origin: "default" });
}

/** The root directory is never a directory of images, even where a default image lies in it. */
function usualImagePaths(merged: Layer): readonly string[] {
  const value = (key: string): string => merged.get(key)?.value as string;
  const ofDefault = [value("image.kernel"), value("image.initrd")].map((path) => dirname(path));
  const usual = [...ofDefault, join(value("state_dir"), "images"), "/usr/share/podnet"];
  return [...new Set(usual)].filter((path) => path !== "/");
}
