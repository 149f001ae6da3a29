import { execFile } from "node:child_process";
import { accessSync, constants, readFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { jailCapabilities } from "../../hypervisor/jail/capabilities.ts";
import { findProgram } from "../../linux/processes/command.ts";

const top = path.resolve(import.meta.dirname, "../..");
const unit = path.join(top, "daemon/podnetd.service");
/** Where README and docs/how-to/install.md put the checkout. */
const installed = "/opt/podnet";

const settings = new Map(
  readFileSync(unit, "utf8")
    .split("\n")
    .filter((line) => /^\w+=/.test(line))
    .map((line) => line.split(/=(.*)/s) as [string, string]),
);

test("stopping the service leaves pods running", (t) => {
  t.is(settings.get("KillMode"), "process");
  // Their sockets are below the run directory.
  t.is(settings.get("RuntimeDirectoryPreserve"), "yes");
});

test("podnetd is started again however often it fails, with a pause", (t) => {
  t.is(settings.get("Restart"), "on-failure");
  t.is(settings.get("StartLimitIntervalSec"), "0");
  t.is(settings.get("RestartSec"), "2");
});

test("the service starts a program of this checkout, with flags it knows", async (t) => {
  const [program = "", ...flags] = settings.get("ExecStart")?.split(" ") ?? [];
  t.true(program.startsWith(`${installed}/`), program);
  const here = path.join(top, path.relative(installed, program));
  t.notThrows(() => accessSync(here, constants.X_OK));
  const { stdout } = await promisify(execFile)(here, ["--help"]);
  for (const flag of flags) t.true(stdout.includes(flag), flag);
  for (const page of ["README.md", "docs/how-to/install.md"])
    t.true(readFileSync(path.join(top, page), "utf8").includes(installed), page);
});

test("docs/how-to/install.md shows the unit as it is", (t) => {
  const [, shown] =
    /```ini\n([\s\S]*?)```/.exec(readFileSync(path.join(top, "docs/how-to/install.md"), "utf8")) ??
    [];
  t.is(shown, readFileSync(unit, "utf8"));
});

test("podnetd is a user of its own with the capabilities it checks for, and no others", (t) => {
  // Without the second and third it starts, and refuses captures and ports below 1024:
  // test/vm/jail-privileges.test.ts. Without the last it refuses shares.
  const optional = ["CAP_NET_RAW", "CAP_NET_BIND_SERVICE"];
  const wanted = ["CAP_NET_ADMIN", ...optional, ...Object.keys(jailCapabilities), "CAP_SYS_CHROOT"];
  for (const setting of ["AmbientCapabilities", "CapabilityBoundingSet"])
    t.deepEqual(settings.get(setting)?.split(" "), wanted);
  t.is(settings.get("NoNewPrivileges"), "yes");
  const [program = "", user] = settings.get("ExecStartPre")?.split(" ") ?? [];
  t.is(user, settings.get("User"));
  // The plus sign: as root.
  t.true(program.startsWith(`+${installed}/`), program);
  const here = path.join(top, path.relative(installed, program.slice(1)));
  t.notThrows(() => accessSync(here, constants.X_OK));
});

test("systemd finds nothing wrong with the unit", async (t) => {
  t.not(findProgram("systemd-analyze"), undefined, "systemd-analyze is needed: package systemd");
  const script = `mount -n -t tmpfs tmpfs /opt && mkdir ${installed} && mount -n --bind "$0" ${installed} &&
    systemd-analyze verify ${installed}/daemon/podnetd.service`;
  const { stdout, stderr } = await promisify(execFile)("unshare", [
    "--mount",
    "sh",
    "-c",
    script,
    top,
  ]);
  // What it says of other units of this machine is not ours.
  t.notRegex(`${stdout}${stderr}`, /podnetd/);
});

test("each limit that the unit leaves open is in the page with its reason, and no other", async (t) => {
  const words = ["security", "--offline=yes", "--json=short", unit];
  // (It ends with 1 when it finds something open.)
  const { stdout } = await promisify(execFile)("systemd-analyze", words).catch(
    (thrown: { stdout: string }) => thrown,
  );
  const rows = JSON.parse(stdout) as { name: string; exposure?: string | null }[];
  t.true(rows.length > 70);
  const nameOf = (text: string): string => text.replace(/=.*/, "=");
  const open = new Set(rows.filter(({ exposure }) => exposure).map(({ name }) => nameOf(name)));
  const page = readFileSync(path.join(top, "docs/how-to/confinement.md"), "utf8");
  const [, section = ""] = page.split("## What the unit does not limit");
  const listed = [...section.matchAll(/^\|.*\|/gm)].flatMap(([row]) =>
    [...(row.split("|")[1] ?? "").matchAll(/`(\w+=)`/g)].map(([, name = ""]) => name),
  );
  t.deepEqual(listed.toSorted(), [...open].toSorted());
});
