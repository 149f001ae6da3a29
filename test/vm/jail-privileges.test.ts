import { execFile } from "node:child_process";
import {
  chownSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { jailCapabilities } from "../../hypervisor/jail/capabilities.ts";
import { findLauncher } from "../../hypervisor/jail/launcher.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { socketAt } from "./ports-rig.ts";

const top = path.resolve(import.meta.dirname, "../..");
const user = 64_056;
/** What podnetd needs: the network's, and the jail's. */
const needed = ["CAP_NET_ADMIN", ...Object.keys(jailCapabilities)];
const words = (names: readonly string[]): string =>
  ["-all", ...names.map((name) => name.replace("CAP_", "+").toLowerCase())].join(",");

/**
 * Runs podnetd as a user with these capabilities. What that user has to reach is mounted where it
 * can.
 */
const asUser = (capabilities: readonly string[]) =>
  [
    "unshare",
    "--mount",
    "sh",
    "-ec",
    `mkdir -p /run/podnet-least && mount -n --bind "$1" /run/podnet-least
    [ -e /run/podnet-least-tun ] || mknod -m 666 /run/podnet-least-tun c 10 200
    mount -n --bind /run/podnet-least-tun /dev/net/tun
    caps=$2; shift 3
    exec setpriv --reuid ${user} --regid ${user} --clear-groups --no-new-privs --inh-caps=$caps \\
      --ambient-caps=$caps --bounding-set=$caps /run/podnet-least/bin/podnetd "$@"`,
    "sh",
    top,
    words(capabilities),
  ] as const;

let lab: Lab;
const directory = mkdtempSync(path.join(tmpdir(), "podnet-least-"));

test.serial.before(async () => {
  lab = await openLab(`least${process.pid}-`);
  chownSync(directory, user, user);
  // The unit's ExecStartPre=.
  await promisify(execFile)(path.join(top, "daemon/own-cgroup"), [
    `${user}`,
    "least",
    "/run/cgroup",
  ]);
  // What legacy rules there are is for root to know.
  await lab.host.run("iptables-legacy", "-L", "-n");
});
test.serial.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const start = (capabilities: readonly string[], cgroup = "least"): Promise<Podnetd> =>
  startPodnetd({
    machine: lab.host,
    directory,
    config: `iptables_variant = "nft"\n[qemu]\ncgroup = "${cgroup}"\n`,
    through: asUser(capabilities),
  });

for (const missing of needed)
  test.serial(`without ${missing} podnetd does not start, and says which it lacks`, async (t) => {
    const others = needed.filter((name) => name !== missing);
    await t.throwsAsync(start(others), {
      message: new RegExp(`PREFLIGHT_FAILED.*"missing":"${missing}"`, "s"),
    });
  });

test.serial("where it may make no control groups it says what to do", async (t) => {
  mkdirSync("/run/cgroup/memory/foreign/below", { recursive: true });
  await t.throwsAsync(start(needed, "foreign/below"), {
    message: /PREFLIGHT_FAILED.*EACCES.*chown/s,
  });
});

const file = path.join(directory, "one.pcap");
/**
 * What each of the two alongside the seven is asked for, tried on a podnetd whose pod "one"
 * publishes no port below 1024.
 */
const capture = (daemon: Podnetd, ...words: readonly string[]): Promise<string> =>
  daemon.podnet("capture", "one", "-w", file, ...words);
const publish = (daemon: Podnetd) => daemon.tryPodnet("publish", "one", "*:80:80");

test.serial(
  "with seven capabilities and a user of its own it brings up a jailed pod and takes all down",
  async (t) => {
    await using daemon = await start(needed);
    await daemon.podnet("create", "--name", "one", "--publish", "*:1080:80");
    await lab.host.ping("192.168.123.2", 2);
    t.regex(
      await daemon.podnet("exec", "one", "--", "ping", "-c1", "-W2", "203.0.113.10"),
      /1 (?:packets )?received/,
    );
    t.regex(await daemon.podnet("verify", "one"), /all as recorded/);
    const { vm } = JSON.parse(await daemon.podnet("get", "one", "-o", "json")) as {
      vm: { pid: number };
    };
    t.true(statSync(`/proc/${vm.pid}`).uid >= 2_000_000_000);
    const status = readFileSync(`/proc/${daemon.process.pid}/status`, "latin1");
    t.regex(status, new RegExp(`^Uid:\\t${user}\\t`, "m"));
    t.regex(status, /^CapBnd:\t00000000002011e1$/m);
    // What the next two tests do with an eighth.
    await t.throwsAsync(capture(daemon), {
      message: /socket failed with EPERM \(SYSCALL_FAILED\)[^]*CAP_NET_RAW/,
    });
    const { exitCode, stderr } = await publish(daemon);
    t.not(exitCode, 0);
    t.regex(
      stderr,
      /Host port 80\/tcp .* needs a privilege that podnetd lacks[^]*CAP_NET_BIND_SERVICE/,
    );
    t.regex(stderr, /PREFLIGHT_FAILED/);
    t.false(await socketAt(lab.host, 80));
    t.true(await socketAt(lab.host, 1080));
    await daemon.podnet("down", "--yes");
    t.throws(() => statSync(`/proc/${vm.pid}`));
    t.notRegex(await lab.host.run("ip", "-o", "link"), /hyper0/);
  },
);

test.serial(
  "captures take an eighth, CAP_NET_RAW: without it they are refused, and with it they work",
  async (t) => {
    await using daemon = await start([...needed, "CAP_NET_RAW"]);
    // The one before has left an address that rests.
    const said = await daemon.podnet("create", "--name", "one");
    const [address = ""] = /192\.168\.123\.\d+/.exec(said) ?? [];
    const captured = capture(daemon, "-c", "2");
    const pings = lab.host.run("ping", "-n", "-c", "30", "-i", "0.2", address);
    await captured;
    t.regex(await lab.host.run("tcpdump", "-n", "-r", file), new RegExp(address));
    await pings;
    t.not((await publish(daemon)).exitCode, 0, "that takes another one");
    await daemon.podnet("down", "--yes");
  },
);

test.serial(
  "published ports below 1024 take CAP_NET_BIND_SERVICE: without it they are refused, and with it they work",
  async (t) => {
    await using daemon = await start([...needed, "CAP_NET_BIND_SERVICE"]);
    await daemon.podnet("create", "--name", "one", "--publish", "*:1080:80");
    const { exitCode, stderr } = await publish(daemon);
    t.is(exitCode, 0, stderr);
    t.true(await socketAt(lab.host, 80));
    t.true(await socketAt(lab.host, 1080));
    await t.throwsAsync(capture(daemon), { message: /CAP_NET_RAW/ }, "that takes another one");
    await daemon.podnet("down", "--yes");
  },
);

/** What fails without each, tried past the preflight. */
const uses: Readonly<Record<string, string>> = {
  CAP_CHOWN: 'mkdir "$0/group"; chgrp 2000000000 "$0/group"; r=$?; rmdir "$0/group"; exit $r',
  CAP_KILL: "kill -0 1",
  CAP_SETGID: 'exec "$0/jail" --uid 2000000000 --run "$0" --report 3 -- /bin/true 3>&2',
  CAP_SETUID: 'exec "$0/jail" --uid 2000000000 --run "$0" --report 3 -- /bin/true 3>&2',
  CAP_SETPCAP: 'exec "$0/jail" --uid 2000000000 --run "$0" --report 3 -- /bin/true 3>&2',
  CAP_SYS_ADMIN: 'exec "$0/jail" --uid 2000000000 --run "$0" --report 3 -- /bin/true 3>&2',
};
for (const [name, script] of Object.entries(uses))
  test.serial(`${name} is asked for because of what fails without it`, async (t) => {
    copyFileSync(findLauncher(), path.join(directory, "jail"));
    const as = (capabilities: readonly string[]): Promise<unknown> => {
      const caps = words(capabilities);
      const sets = ["--inh-caps", "--ambient-caps", "--bounding-set"].map(
        (set) => `${set}=${caps}`,
      );
      const ids = ["--reuid", `${user}`, "--regid", `${user}`, "--clear-groups"];
      return promisify(execFile)("setpriv", [...ids, ...sets, "sh", "-c", script, directory]);
    };
    await t.notThrowsAsync(as(needed));
    await t.throwsAsync(as(needed.filter((each) => each !== name)), {
      message: /not permitted/,
    });
  });

test.serial("a group of version 2 is joined though the one at the top is root's", async (t) => {
  // The tests' machine has a version 2 without controllers: who may move whom does not depend on
  // them.
  const top = `/run/podnet-least-${process.pid}`;
  mkdirSync(top);
  const run = promisify(execFile);
  await run("mount", ["-n", "-t", "cgroup2", "cgroup2", top]);
  t.teardown(() => run("umount", ["-n", top]));
  const group = path.join(top, `podnet-least-${process.pid}`);
  mkdirSync(group);
  t.teardown(() => rmdirSync(group));
  for (const file of [group, `${group}/cgroup.procs`]) chownSync(file, user, user);
  t.is(statSync(`${top}/cgroup.procs`).uid, 0);
  const caps = words(needed);
  const sets = ["--inh-caps", "--ambient-caps", "--bounding-set"].map((set) => `${set}=${caps}`);
  const ids = ["--reuid", `${user}`, "--regid", `${user}`, "--clear-groups"];
  copyFileSync(findLauncher(), path.join(directory, "jail"));
  const as = (script: string): Promise<unknown> =>
    run("setpriv", [...ids, ...sets, "sh", "-c", script, directory, group]);
  // The user itself may not: what it writes to fails at the top.
  await t.throwsAsync(as('echo 0 | tee "$1/cgroup.procs"'), { message: /Permission denied/ });
  // Its exit status passes on only if it was there, and a program in it is in the group.
  await t.notThrowsAsync(
    as(`"$0/jail" --uid 2000000000 --run "$0" --report 3 --cgroup "$1" -- /bin/sleep 2 3>&2 &
      for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; grep -q . "$1/cgroup.procs" && found=1 && break; done
      wait $! && [ "\${found:-}" = 1 ]`),
  );
});
