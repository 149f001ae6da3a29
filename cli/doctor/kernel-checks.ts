import { hostArchitecture } from "../../hypervisor/architecture.ts";
import { kvmMissing } from "../../hypervisor/argv/accelerator.ts";
import { failed, type Finding, ok, warning } from "./finding.ts";
import type { Host } from "./host.ts";

/** Modules of the kernel by what needs them. */
const modules = [
  { name: "tun", use: "taps of pods" },
  { name: "bridge", use: "networks" },
  { name: "nf_tables", use: "rules" },
  { name: "veth", use: "containers" },
  { name: "sch_tbf", use: "limits", optional: true },
  { name: "vxlan", use: "overlays", optional: true },
] as const;

/** Modules and devices of the kernel, and its settings of forwarding. */
export async function kernelChecks(host: Host): Promise<Finding[]> {
  return [
    await modulesCheck(host),
    await tunCheck(host),
    await kvmCheck(host),
    ...(await forwardingChecks(host)),
    await cgroupCheck(host),
  ];
}

async function modulesCheck(host: Host): Promise<Finding> {
  const release = ((await host.read("/proc/sys/kernel/osrelease")) ?? "").trim();
  const lists = await Promise.all(
    ["modules.builtin", "modules.dep"].map((file) => host.read(`/lib/modules/${release}/${file}`)),
  );
  const loadable = lists.join("\n");
  const missing: (typeof modules)[number][] = [];
  for (const each of modules) {
    const isLoaded = (await host.stat(`/sys/module/${each.name}`)) !== null;
    if (!isLoaded && !new RegExp(`/${each.name}\\.ko\\b`).test(loadable)) missing.push(each);
  }
  if (missing.length === 0)
    return ok("kernel modules", `Linux ${release} has all that podnet uses`);
  // (Without the lists only what is loaded is known: a kernel may have a part built in.)
  const unsure = lists.every((list) => list === null);
  const named = missing.map(({ name, use }) => `${name} (${use})`).join(", ");
  const hint = `Install the kernel's modules, then: modprobe ${missing.map(({ name }) => name).join(" ")}`;
  if (unsure)
    return warning(
      "kernel modules",
      `Nothing says whether Linux ${release} has ${named}: /lib/modules/${release} is missing`,
      hint,
    );
  const bad = missing.some((each) => !("optional" in each));
  return (bad ? failed : warning)("kernel modules", `Linux ${release} lacks ${named}`, hint);
}

async function tunCheck(host: Host): Promise<Finding> {
  const name = "/dev/net/tun";
  const errno = await host.openError(name);
  if (errno === null) return ok(name, "It opens");
  if (errno === "EACCES" || errno === "EPERM")
    return warning(
      name,
      `You may not open it (${errno}); podnetd needs it, you do not`,
      "Run podnet doctor as root to check what podnetd gets",
    );
  return failed(name, `It does not open (${errno})`, "Load the module: modprobe tun");
}

async function kvmCheck(host: Host): Promise<Finding> {
  const cpuinfo = (await host.read("/proc/cpuinfo")) ?? "";
  const errno = await host.openError("/dev/kvm");
  const why = kvmMissing(hostArchitecture, {
    cpuinfo: () => cpuinfo,
    openError: () => errno ?? undefined,
  });
  if (why === undefined) return ok("KVM", "VMs run with it");
  return warning(
    "KVM",
    `VMs run under software emulation, several times slower: ${why}`,
    errno === "EACCES"
      ? "Run podnet doctor as root, and see that the group kvm may open /dev/kvm"
      : "Turn virtualisation on in the firmware, or nested virtualisation in the cloud; else leave it",
  );
}

async function forwardingChecks(host: Host): Promise<Finding[]> {
  const value = async (key: string): Promise<string> =>
    ((await host.read(`/proc/sys/net/ipv4/${key}`)) ?? "").trim();
  const forward = await value("ip_forward");
  const filter = await value("conf/all/rp_filter");
  const isRunning = (await host.stat("/sys/class/net/hyper0")) !== null;
  return [
    forward === "1"
      ? ok("net.ipv4.ip_forward", "It is 1")
      : isRunning
        ? warning(
            "net.ipv4.ip_forward",
            `It is ${forward || "unreadable"}: pods reach no other networks`,
            "See what set it, in /etc/sysctl.d; podnetd sets it to 1 within seconds, and at its start",
          )
        : ok("net.ipv4.ip_forward", `It is ${forward || "unreadable"}; podnetd sets it to 1`),
    filter === "1"
      ? warning(
          "net.ipv4.conf.all.rp_filter",
          "It is 1 (strict): packets that come in by another link than answers leave by are dropped",
          "With several ways out, or an overlay, set it to 2 in /etc/sysctl.d",
        )
      : ok("net.ipv4.conf.all.rp_filter", `It is ${filter || "unreadable"}`),
  ];
}

/** Controllers that limit VMs. */
const controllers = ["cpu", "memory", "pids"];

/** Of version 1 each controller is an option of a mount. */
function version1Check(mounts: string): Finding {
  const has = mounts
    .split("\n")
    .map((line) => line.split(" "))
    .flatMap(([, , kind, options = ""]) => (kind === "cgroup" ? options.split(",") : []));
  return ["memory", "pids"].every((each) => has.includes(each))
    ? ok("cgroup", "Version 1, with memory and pids")
    : warning(
        "cgroup",
        "Neither version 2 at /sys/fs/cgroup nor version 1 is mounted here: podnetd cannot confine VMs",
        "Look from outside of `ip netns exec`, which hides them; else boot with systemd.unified_cgroup_hierarchy=1",
      );
}

async function cgroupCheck(host: Host): Promise<Finding> {
  const text = await host.read("/sys/fs/cgroup/cgroup.controllers");
  if (text === null) return version1Check((await host.read("/proc/self/mounts")) ?? "");
  const has = text.trim().split(/\s+/);
  const missing = controllers.filter((each) => !has.includes(each));
  return missing.length === 0
    ? ok("cgroup", "Version 2, with cpu, memory and pids")
    : warning(
        "cgroup",
        `Version 2 without ${missing.join(", ")}: VMs have no such limits`,
        `Delegate the controllers to podnetd's unit, or boot without cgroup_disable=${missing[0]}`,
      );
}
