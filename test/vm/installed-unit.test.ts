/**
 * podnetd's unit, by a real systemd: everything that podnetd does works within its limits, the
 * limits hold, and docs/how-to/confinement.md has the reason for each that is not there.
 */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import ava, { type TestFn } from "ava";
import { version } from "../../api/version.ts";
import { buildDeb } from "../../scripts/packaging/deb.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { type InstalledHost, openInstalledHost } from "../lab/installed/installed-host.ts";
import { startRegistry } from "../lab/registry.ts";
import { tarOf, writeLayout } from "../unit/images/image-archive.ts";

const test = ava.serial as TestFn;
const top = path.resolve(import.meta.dirname, "../..");

let host: InstalledHost;
const directory = mkdtempSync(path.join(tmpdir(), "podnet-unit-"));

test.before(async (t) => {
  t.timeout(900_000);
  const deb = await buildDeb({ version, into: directory });
  host = await openInstalledHost();
  const at = (name: string): string => path.join(host.root, "root", name);
  cpSync(deb, at("podnet.deb"));
  // A root directory, and a registry that has it as an image.
  busyboxImage(directory);
  cpSync(path.join(directory, "busybox"), at("files"), { recursive: true, verbatimSymlinks: true });
  const layout = path.join(directory, "layout");
  writeLayout(layout, { layers: [tarOf(path.join(directory, "busybox"))], compression: "none" });
  const place = path.join(directory, "registry");
  const registry = await startRegistry({ directory: place, port: 5000 });
  await registry.push(layout, "team/app", "1");
  await registry[Symbol.asyncDispose]();
  cpSync(place, `${host.root}${place}`, { recursive: true });
  cpSync(path.join(top, "build/registry/usr/bin/docker-registry"), at("docker-registry"));
  cpSync(path.join(top, "build/etcd/usr/bin/etcd"), at("etcd"));
  cpSync(path.join(top, "build/etcd/usr/bin/etcdctl"), at("etcdctl"));
  cpSync(path.join(top, "build/cni/usr/lib/cni"), path.join(host.root, "opt/cni/bin"), {
    recursive: true,
  });
  mkdirSync(path.join(host.root, "etc/cni/net.d"), { recursive: true });
  // (What is tested are limits, not how long a boot takes. Most pods are clones.)
  const settings =
    "[Service]\nEnvironment=PODNET_FACTORY=template PODNET_TIMEOUTS_READY_S=300 PODNET_IMAGES_INSECURE=localhost:5000\n";
  mkdirSync(path.join(host.root, "etc/systemd/system/podnetd.service.d"), { recursive: true });
  writeFileSync(path.join(host.root, "etc/systemd/system/podnetd.service.d/test.conf"), settings);
  await host.sh("chmod 755 /root && dpkg -i /root/podnet.deb");
  await host.sh(
    `setsid /root/docker-registry serve ${place}/config.yml >/dev/null 2>&1 </dev/null &`,
  );
});

test.after.always("the host is given up", async () => {
  rmSync(directory, { recursive: true, force: true });
  await host?.[Symbol.asyncDispose]();
});

/** The drop-in of the page about pods on plugins. */
function asRoot(): string {
  const page = readFileSync(path.join(top, "docs/how-to/pods-on-cni.md"), "utf8");
  const [, text] = /```ini\n([^]*?)```/.exec(page) ?? [];
  if (text === undefined) throw new Error("The page has no drop-in");
  return text;
}

/** Commands that have podnetd join an overlay, and leave it. */
function overlay(backend: string): string {
  const config = JSON.stringify({ Network: "10.77.0.0/16", Backend: { Type: backend } });
  return `
    podnet delete web
    ip link show dev net0 2>/dev/null || { ip link add net0 type veth peer name net1 && ip link set net1 up && ip address add 10.1.0.1/24 dev net0 && ip link set net0 up; }
    pgrep -x etcd || setsid /root/etcd --data-dir /tmp/etcd >/dev/null 2>&1 </dev/null &
    for i in $(seq 100); do /root/etcdctl endpoint health && break; sleep 0.1; done
    /root/etcdctl put /coreos.com/network/config '${config}'
    /root/etcdctl put --lease=$(/root/etcdctl lease grant 600 | cut -d' ' -f2) /coreos.com/network/subnets/10.77.99.0-24 \
      '{"PublicIP":"10.1.0.9","BackendType":"${backend}","BackendData":{"VtepMAC":"02:00:00:00:00:09"}}'
    printf '[Service]\nEnvironment=PODNET_OVERLAY_ETCD_ENDPOINTS=http://127.0.0.1:2379 PODNET_OVERLAY_INTERFACE=net0\n' >/etc/systemd/system/podnetd.service.d/overlay.conf
    systemctl daemon-reload && systemctl restart podnetd
    for i in $(seq 100); do podnet overlay list | grep -q ' held ' && break; sleep 0.1; done
    podnet overlay list
    podnet create --name over && podnet exec over -- ip address | grep -F 10.77.
    for i in $(seq 50); do ip route | grep -F 10.77.99.0 && break; [ ${backend} != udp ] || break; sleep 0.1; done
    podnet overlay diff
    grep FLANNEL_SUBNET /run/flannel/subnet.env
    podnet delete over
    podnet overlay leave
    rm /etc/systemd/system/podnetd.service.d/overlay.conf
    systemctl daemon-reload && systemctl restart podnetd
    /root/etcdctl del --prefix /coreos.com`;
}

/** Everything that podnetd does, each as the commands that show it. */
const work: Readonly<Record<string, string>> = {
  "a pod with a published port": `
    podnet create --name web -l app=web -p 8081:80 --address 192.168.123.9
    ping -c 1 -W 2 192.168.123.9
    podnet exec web -- sh -c "(while true; do echo hi | nc -l -p 80; done) >/dev/null 2>&1 &"
    for i in $(seq 100); do [ "$(bash -c 'head -1 </dev/tcp/127.0.0.1/8081')" != hi ] || exit 0; sleep 0.1; done
    exit 1`,
  "programs, files and the console": `
    echo text >/root/text
    podnet cp /root/text web:/tmp/text
    podnet exec web -- grep -q text /tmp/text
    podnet logs --console --tail 1 web`,
  "every check": `podnet verify web && podnet diff`,
  "a clone": `podnet create --name clone --factory template && podnet delete clone`,
  "images from an archive, a directory and a registry": `
    tar -C /root/files -cf /root/files.tar . && podnet image import /root/files.tar app:1
    podnet image import --on-host /root/files app:2
    podnet image pull localhost:5000/team/app:1
    podnet image list | grep -q team/app`,
  "a program of an image": `podnet run --rm app:1 sh -c "echo from an image" | grep -qx "from an image"`,
  "a writable layer that stays": `
    podnet run --rm --layer persistent --layer-size 64M app:1 sh -c "echo x >/srv/x && cat /srv/x" | grep -qx x`,
  "a directory that a pod shares": `
    mkdir -p /root/shared && echo shared >/root/shared/text && chmod -R a+rX /root/shared
    podnet run --rm -v /root/shared:/srv app:1 cat /srv/text | grep -qx shared`,
  "disks, plugged and removed": `
    truncate -s 16M /srv/disk && chown podnet /srv/disk
    podnet disk add web --file /srv/disk --name file && podnet disk add web --size 8M --name own
    podnet disk remove web file && podnet disk remove web own`,
  "a network, and an interface on it": `
    podnet network create lan && podnet interface add web network=lan
    podnet exec web -- ip link show eth1
    podnet interface remove web eth1 && podnet network delete lan`,
  "a policy with names, which the relay reads": `
    printf 'name: names\napplies_to: {labels: {app: web}}\ndefault: deny\nrules:\n  - {name: api, action: allow, domains: ["*.example.com"]}\n' >/root/policy.yaml
    podnet policy apply -f /root/policy.yaml
    pgrep -f podnet-relay
    podnet policy delete names`,
  "a capture": `
    timeout 20 podnet capture web --count 1 >/root/capture.pcap & capture=$!
    sleep 1; podnet exec web -- ping -c 3 -W 1 192.168.123.1; wait $capture; test -s /root/capture.pcap`,
  "a guest without an agent, which asks DHCP": `podnet create --name plain --agent none && podnet delete plain`,
  "the plugin for containers": `
    chown podnet /opt/cni/bin /etc/cni/net.d
    podnet cni install
    ip netns add one
    export CNI_CONTAINERID=one CNI_NETNS=/run/netns/one CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin
    list='{"cniVersion":"1.0.0","name":"podnet","type":"podnet-cni"}'
    echo "$list" | CNI_COMMAND=ADD /opt/cni/bin/podnet-cni
    ip netns exec one ping -c 1 -W 2 192.168.123.1
    echo "$list" | CNI_COMMAND=DEL /opt/cni/bin/podnet-cni
    ip netns delete one
    podnet cni uninstall`,
  "another podnetd, with the pod as it was": `
    systemctl restart podnetd
    podnet exec web -- echo again
    podnet pause web && podnet resume web
    podnet restart web`,
  // (Plugins need root. The other limits stay.)
  "a pod on plugins of CNI": `
    echo '${asRoot()}' >/etc/systemd/system/podnetd.service.d/root.conf
    echo 'cni.enabled = true' >/etc/podnet/config.toml
    list='{"cniVersion":"1.0.0","name":"plugins","plugins":[{"type":"bridge","bridge":"cni7","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}},{"type":"portmap","capabilities":{"portMappings":true}}]}'
    echo "$list" >/etc/cni/net.d/10-plugins.conflist
    systemctl daemon-reload && systemctl restart podnetd
    podnet create --name plugged --interface cni
    ping -c 1 -W 2 10.88.0.2
    systemctl restart podnetd
    ping -c 1 -W 2 10.88.0.2
    podnet delete plugged
    [ -z "$(ip -o link show master cni7)" ]
    : >/etc/podnet/config.toml
    rm /etc/systemd/system/podnetd.service.d/root.conf && systemctl daemon-reload && systemctl restart podnetd
    podnet exec web -- echo again`,
  "an overlay": overlay("vxlan"),
};
const lastLog = "journalctl --no-pager -o cat -u podnetd | tail -n 20";
for (const [what, commands] of Object.entries(work))
  test(`within the unit's limits: ${what}`, async (t) => {
    t.timeout(400_000);
    const { code, output } = await host.attempt(`set -x; ${commands}`);
    t.is(code, 0, `${output}\n${code === 0 ? "" : await host.sh(lastLog)}`);
  });

/** What a program of the unit is refused, each as a command that succeeds without the unit. */
const refused: Readonly<Record<string, string>> = {
  NoExecPaths: "rm -f /run/podnet/true && cp /bin/true /run/podnet/true && /run/podnet/true",
  RestrictNamespaces: "unshare --user true",
  SystemCallFilter: "domainname probe",
  LockPersonality: "setarch --addr-no-randomize true",
  ProtectSystem: "rm -f /usr/probe/touched && touch /usr/probe/touched",
  DevicePolicy: "true </dev/probe",
};
for (const [limit, command] of Object.entries(refused))
  test(`the unit's ${limit} holds`, async (t) => {
    await host.sh("mkdir -p -m 777 /usr/probe && chmod 777 /usr/probe");
    await host.sh("[ -e /dev/probe ] || mknod -m 666 /dev/probe c 10 229"); // fuse
    await host.sh(command);
    // A unit with podnetd's limits, and that command in its place.
    const unit = await host.sh("cat /lib/systemd/system/podnetd.service");
    const probe = unit
      .replaceAll(/^(?:Exec|Watchdog|Restart|Type|RuntimeDirectory).*\n/gm, "")
      .replace("[Service]", `[Service]\nType=oneshot\nExecStart=/bin/sh -ec '${command}'`);
    writeFileSync(path.join(host.root, "run/systemd/system/probe.service"), probe);
    await host.sh("systemctl daemon-reload");
    const { code } = await host.attempt("systemctl start probe.service");
    t.not(code, 0, await host.sh("journalctl -o cat -u probe.service | tail -5"));
    // Without the one line it passes: nothing else is what refuses it.
    const lines = limit === "DevicePolicy" ? "Device(?:Policy|Allow)" : limit;
    const without = probe.replaceAll(new RegExp(`^${lines}=.*\\n`, "gm"), "");
    t.not(without, probe);
    writeFileSync(path.join(host.root, "run/systemd/system/probe.service"), without);
    await host.sh("systemctl daemon-reload && systemctl start probe.service");
  });

test("podnetd's unit is one that systemd understands", async (t) => {
  const { code, output } = await host.attempt(
    "systemd-analyze verify /lib/systemd/system/podnetd.service",
  );
  t.is(code, 0, output);
  t.notRegex(output, /podnetd\.service/);
  const log = await host.sh("journalctl --no-pager -o cat _PID=1 | grep podnetd.service: || true");
  t.notRegex(log, /unknown|failed to parse|, ignoring/i);
});

test("each limit that the unit does not have is in the page, with its reason, and no other", async (t) => {
  const said = await host.sh("systemd-analyze security --no-pager --json=short podnetd.service");
  const rows = JSON.parse(said) as { name: string; set: boolean; exposure?: string }[];
  t.true(rows.length > 70);
  const open = new Set(
    rows
      .filter(({ exposure }) => exposure !== undefined && exposure !== null)
      .map(({ name }) => name.replace(/=.*/, "=")),
  );
  const page = readFileSync(path.join(top, "docs/how-to/confinement.md"), "utf8");
  const [, section = ""] = page.split("## What the unit does not limit");
  const listed = new Set([...section.matchAll(/`(\w+=)/g)].map(([, name = ""]) => name));
  t.deepEqual(
    [...open].filter((name) => !listed.has(name)),
    [],
    "open, and not in the page",
  );
  t.deepEqual(
    [...listed].filter((name) => !open.has(name)),
    [],
    "in the page, and not open",
  );
});
