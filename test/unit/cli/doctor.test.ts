import test from "ava";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { examine } from "../../../cli/doctor/doctor.ts";
import { forwardDrops } from "../../../cli/doctor/firewall-checks.ts";
import { type Answers, recorded, recording } from "../../../cli/doctor/recorded-host.ts";
import { hostOfCaller, thisHost } from "../../../cli/doctor/this-host.ts";
import { version } from "../../../api/version.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const server = await serve(playDaemon().routes);
test.after.always(() => server.kill());
const directory = mkdtempSync("/tmp/podnet-doctor-");
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

const systemctl = `run ${JSON.stringify([["systemctl", "show", "podnetd.service", "--property=LoadState,ActiveState,SubState,Result,NRestarts,UnitFileState"]])}`;
const ran = (stdout: string) => ({ code: 0, stdout, stderr: "" });
const config = `state_dir = "/data"   # file /etc/podnet/config.toml
overlay.endpoints = ["http://10.9.9.9:2379"]   # file /etc/podnet/config.toml
`;

/** That of a host whose subnets Kubernetes gives. */
const cluster = `state_dir = "/data"   # file /etc/podnet/config.toml
overlay.subnet_manager = "kubernetes"   # file /etc/podnet/config.toml
overlay.kubernetes.kubeconfig = "/etc/podnet/kubeconfig"   # file /etc/podnet/config.toml
overlay.kubernetes.net_conf = "/etc/kube-flannel/net-conf.json"   # default
`;

/** A host where all is well: what a healthy one answers. */
const well: Answers = {
  "self []": { uid: 0, groups: [0], nowMs: Date.UTC(2026, 1, 1) },
  'read ["/proc/sys/kernel/osrelease"]': "6.1.0\n",
  'read ["/lib/modules/6.1.0/modules.dep"]': [
    "tun",
    "bridge",
    "nf_tables",
    "veth",
    "sch_tbf",
    "vxlan",
  ]
    .map((name) => `kernel/net/${name}.ko.xz:\n`)
    .join(""),
  'read ["/proc/cpuinfo"]': "flags\t\t: fpu vmx\n",
  'read ["/proc/sys/net/ipv4/ip_forward"]': "1\n",
  'read ["/proc/sys/net/ipv4/conf/all/rp_filter"]': "2\n",
  'read ["/sys/fs/cgroup/cgroup.controllers"]': "cpuset cpu io memory pids\n",
  'run [["iptables","--version"]]': ran("iptables v1.8.9 (nf_tables)\n"),
  'run [["nft","--version"]]': ran("nftables v1.0.6\n"),
  'run [["nft","list","ruleset"]]': ran(""),
  'run [["podnetd","config","--resolved"]]': ran(config),
  [systemctl]: ran("LoadState=loaded\nActiveState=active\nSubState=running\nNRestarts=0\n"),
  'stat ["/run/podnet/podnet.sock"]': { mode: 0o660, uid: 0, gid: 990, kind: "socket" },
  'room ["/data"]': { freeMib: 50_000, totalMib: 100_000 },
  'room ["/run/podnet"]': { freeMib: 500, totalMib: 1000 },
};

/** What is not well on a host that differs so. */
async function troubles(changes: Answers): Promise<[string, string, string][]> {
  const findings = await examine(recorded({ ...well, ...changes }));
  return findings
    .filter(({ status }) => status !== "ok")
    .map(({ name, status, message }) => [name, status, message]);
}

test("a healthy host has no trouble, and each check says what it saw", async (t) => {
  const findings = await examine(recorded(well));
  t.deepEqual(
    findings.filter(({ status }) => status !== "ok"),
    [],
  );
  t.true(findings.length >= 12);
  for (const { message, hint } of findings) t.deepEqual([message === "", hint], [false, ""]);
});

test("control groups of version 1 limit VMs, too", async (t) => {
  const version1 = {
    'read ["/sys/fs/cgroup/cgroup.controllers"]': null,
    'read ["/proc/self/mounts"]': "cgroup /a cgroup rw,memory 0 0\ncgroup /b cgroup rw,pids 0 0\n",
  };
  t.deepEqual(await troubles(version1), []);
});

const legacyNames = 'read ["/proc/net/ip_tables_names"]';
const docker = `table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
		counter packets 1 bytes 2 jump DOCKER-USER
	}
}
table inet podnet {
	chain forward {
		type filter hook forward priority -5; policy drop;
	}
}`;

for (const [what, changes, name, status, said] of [
  ["no tun", { 'openError ["/dev/net/tun"]': "ENOENT" }, "/dev/net/tun", "failed", /ENOENT/],
  [
    "a /dev/kvm without vmx",
    { 'read ["/proc/cpuinfo"]': "flags : fpu\n" },
    "KVM",
    "warning",
    /neither vmx nor svm/,
  ],
  [
    "no /dev/kvm",
    { 'openError ["/dev/kvm"]': "ENOENT" },
    "KVM",
    "warning",
    /does not open \(ENOENT\)/,
  ],
  [
    "a kernel without tbf",
    {
      'read ["/lib/modules/6.1.0/modules.dep"]':
        "/tun.ko: /bridge.ko: /nf_tables.ko: /veth.ko: /vxlan.ko:",
    },
    "kernel modules",
    "warning",
    /lacks sch_tbf \(limits\)$/,
  ],
  [
    "a kernel without bridges",
    { 'read ["/lib/modules/6.1.0/modules.dep"]': "/tun.ko:" },
    "kernel modules",
    "failed",
    /lacks bridge/,
  ],
  [
    "no control groups to be seen",
    {
      'read ["/sys/fs/cgroup/cgroup.controllers"]': null,
      'read ["/proc/self/mounts"]':
        "cgroup /a cgroup rw,memory 0 0\ntmpfs /pids tmpfs rw,pids 0 0\n",
    },
    "cgroup",
    "warning",
    /^Neither version 2 .* cannot confine VMs$/,
  ],
  [
    "strict rp_filter",
    { 'read ["/proc/sys/net/ipv4/conf/all/rp_filter"]': "1" },
    "net.ipv4.conf.all.rp_filter",
    "warning",
    /strict/,
  ],
  [
    "forwarding off under podnetd",
    {
      'read ["/proc/sys/net/ipv4/ip_forward"]': "0",
      'stat ["/sys/class/net/hyper0"]': { kind: "directory" },
    },
    "net.ipv4.ip_forward",
    "warning",
    /It is 0/,
  ],
  [
    "two variants of iptables",
    { [legacyNames]: "nat\nmangle\n" },
    "firewall",
    "warning",
    /legacy tables too: nat, mangle/,
  ],
  [
    "no firewall program",
    { 'run [["iptables","--version"]]': null, 'run [["nft","--version"]]': null },
    "firewall",
    "failed",
    /Neither/,
  ],
  [
    "docker's policy",
    { 'run [["nft","list","ruleset"]]': ran(docker) },
    "foreign rules",
    "warning",
    /^table ip filter, chain FORWARD drops/,
  ],
  [
    "a unit that failed",
    {
      [systemctl]: ran("LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\n"),
    },
    "systemd unit",
    "failed",
    /is failed \(failed\): exit-code/,
  ],
  [
    "a unit that restarts",
    { [systemctl]: ran("LoadState=loaded\nActiveState=active\nSubState=running\nNRestarts=4\n") },
    "systemd unit",
    "warning",
    /after 4 restarts/,
  ],
  [
    "a missing unit",
    { [systemctl]: ran("LoadState=not-found\nActiveState=inactive\n") },
    "systemd unit",
    "warning",
    /not installed/,
  ],
  ["no socket", { 'stat ["/run/podnet/podnet.sock"]': null }, "socket", "failed", /does not exist/],
  [
    "a file as socket",
    { 'stat ["/run/podnet/podnet.sock"]': { mode: 0o660, uid: 0, gid: 0, kind: "file" } },
    "socket",
    "failed",
    /is not a socket/,
  ],
  [
    "an open socket",
    { 'stat ["/run/podnet/podnet.sock"]': { mode: 0o666, uid: 0, gid: 0, kind: "socket" } },
    "socket",
    "warning",
    /Every user/,
  ],
  [
    "a full disk",
    { 'room ["/data"]': { freeMib: 3, totalMib: 100 } },
    "disk",
    "failed",
    /Only 3 of 100 MiB/,
  ],
  [
    "a small disk",
    { 'room ["/data"]': { freeMib: 300, totalMib: 1000 } },
    "disk",
    "warning",
    /Only 300/,
  ],
  [
    "a clock that was lost",
    { "self []": { uid: 0, groups: [], nowMs: 0 } },
    "clock",
    "failed",
    /1970/,
  ],
  [
    "an etcd out of reach",
    { 'connectError ["10.9.9.9",2379]': "ECONNREFUSED" },
    "etcd",
    "failed",
    /^10\.9\.9\.9:2379 does not accept connections \(ECONNREFUSED\)/,
  ],
  [
    "no net-conf.json in a cluster",
    {
      'run [["podnetd","config","--resolved"]]': ran(cluster),
      'stat ["/etc/podnet/kubeconfig"]': { mode: 0o600, uid: 0, gid: 0, kind: "file" },
      'stat ["/etc/kube-flannel/net-conf.json"]': null,
    },
    "kubernetes",
    "failed",
    /^\/etc\/kube-flannel\/net-conf\.json is not there/,
  ],
  [
    "a refused configuration",
    {
      'run [["podnetd","config","--resolved"]]': {
        code: 6,
        stdout: config,
        stderr: "podnetd: mtu is bad\n  hint",
      },
    },
    "configuration",
    "failed",
    /podnetd: mtu is bad$/,
  ],
] as const satisfies readonly (readonly [string, Answers, string, string, RegExp])[]) {
  test(`the doctor finds ${what}, and nothing else`, async (t) => {
    const found = await troubles(changes);
    t.deepEqual(
      found.map((each) => each.slice(0, 2)),
      [[name, status]],
    );
    t.regex(found[0]?.[2] ?? "", said);
  });
}

test("each trouble has something to do", async (t) => {
  // (A host that answers nothing has every trouble at once.)
  const findings = await examine(recorded({ "self []": { uid: 1000, groups: [], nowMs: 0 } }));
  const bad = findings.filter(({ status }) => status !== "ok");
  t.true(bad.length >= 7);
  for (const { name, hint } of bad) t.not(hint, "", name);
});

test("a user who is in the socket's group may use it, and another may not", async (t) => {
  const rules = (found: string[][]) => found.filter(([name]) => name === "socket");
  const self = (groups: number[]) => ({ uid: 1000, groups, nowMs: Date.UTC(2026, 1, 1) });
  t.deepEqual(rules(await troubles({ "self []": self([990]) })), []);
  t.regex(rules(await troubles({ "self []": self([7]) }))[0]?.[2] ?? "", /You may not use/);
});

test("chains drop by a policy or a last rule, at forward and in tables of others", (t) => {
  t.deepEqual(forwardDrops(docker), ["table ip filter, chain FORWARD"]);
  const firewalld = `table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		reject with icmpx admin-prohibited
	}
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy drop;
	}
}`;
  t.deepEqual(forwardDrops(firewalld), ["table inet firewalld, chain filter_FORWARD"]);
  t.deepEqual(forwardDrops(firewalld.replace("reject with", "iifname x reject with")), []);
  t.deepEqual(forwardDrops("}}}\nchain\u0000 {\ntable"), []);
});

test("this host is looked at: its answers judge it elsewhere as here", async (t) => {
  const { host, answers } = recording(thisHost);
  const here = await examine(host);
  t.deepEqual(await examine(recorded(JSON.parse(JSON.stringify(answers)))), here);
  t.deepEqual(await thisHost.run(["/nonexistent/program"]), null);
  t.is((await thisHost.run(["false"]))?.code, 1);
  t.is(await thisHost.openError("/nonexistent"), "ENOENT");
  t.is(await thisHost.connectError("127.0.0.1", 1), "ECONNREFUSED");
});

test("doctor asks podnetd too, and compares versions", async (t) => {
  const { out, code } = await podnet(["doctor", "-o", "json"], { socket: server.h2 });
  t.is(code, 1);
  const { kind, items } = JSON.parse(out);
  t.is(kind, "Diagnosis");
  const find = (name: string) => items.find((each: { name: string }) => each.name === name);
  t.is(find("podnetd").status, "ok");
  t.is(find("versions").message, `podnet is ${version}, and podnetd 9.9.9`);
  t.like(find("podnetd: firewall"), { status: "failed", hint: "Restart podnetd" });
});

test("doctor looks at the socket that the caller names, and a report of it does", async (t) => {
  const { h2: socket } = server;
  const find = (out: string) =>
    JSON.parse(out).items.find((each: { name: string }) => each.name === "socket").message;
  const named = [
    await podnet(["doctor", "-o", "json", "--socket", socket]),
    await podnet(["doctor", "-o", "json"], { env: { PODNET_SOCKET: socket } }),
  ];
  for (const { out } of named) t.true(find(out).includes(`"${socket}"`), find(out));
  const env = { PODNET_SOCKET: socket };
  const { host, answers } = recording(hostOfCaller({}, env));
  const here = await examine(host);
  t.true(here.some(({ message }) => message.includes(`"${socket}"`)));
  t.deepEqual(await examine(recorded(JSON.parse(JSON.stringify(answers)))), here);
  t.is(hostOfCaller({ url: "https://x:1" }, env), thisHost);
  t.is(hostOfCaller({}, { ...env, PODNET_URL: "https://x:1" }), thisHost);
});

test("doctor works without podnetd, and with the answers of another host", async (t) => {
  const absent = await podnet(["doctor"]);
  t.is(absent.code, 1);
  t.regex(absent.out, /✗ podnetd: .*\n {2}hint: Start it/);
  const file = `${directory}/host.json`;
  writeFileSync(file, JSON.stringify(well));
  const other = await podnet(["doctor", "--from", file]);
  t.deepEqual([other.code, other.err], [0, ""]);
  t.regex(other.out, /^\d+ checks: \d+ well, 0 warnings, 0 failed\n$/);
  t.regex((await podnet(["doctor", "--all", "--from", file])).out, /✓ clock: It says 2026/);
  for (const text of ["not json", "null", "[]", '{"self []":7}']) {
    writeFileSync(file, text);
    const { code, err } = await podnet(["doctor", "--from", file]);
    t.is(code, 2, text);
    t.regex(err, /host\.json/);
  }
  t.is((await podnet(["doctor", "--from", file, "--fix"])).code, 2);
});

test.serial("--fix starts a unit that ended, and looks again", async (t) => {
  const bin = `${directory}/bin`;
  mkdirSync(bin);
  // Plays systemctl: the unit runs once it was started.
  const script = `#!/bin/sh
echo "$*" >>${bin}/log
if [ "$1" = start ]; then touch ${bin}/started; exit; fi
[ -e ${bin}/started ] && state=active || state=failed
echo "LoadState=loaded
ActiveState=$state
SubState=dead
Result=exit-code
NRestarts=0"
`;
  writeFileSync(`${bin}/systemctl`, script, { mode: 0o755 });
  const before = process.env["PATH"];
  process.env["PATH"] = `${bin}:${before}`;
  t.teardown(() => {
    process.env["PATH"] = before;
  });
  const asked = await podnet(["doctor"]);
  t.regex(
    asked.out,
    /systemd unit: podnetd\.service is failed.*\n.*\n {2}fix: podnet doctor --fix/,
  );
  t.false(/^start/m.test(readFileSync(`${bin}/log`, "utf8")), "without --fix nothing changes");
  const { out, err } = await podnet(["doctor", "--fix"]);
  t.is(err, "Running: systemctl start podnetd.service\n");
  t.notRegex(out, /systemd unit/);
  t.regex((await podnet(["doctor", "--fix"])).err, /^Nothing that podnet may repair/);
});
