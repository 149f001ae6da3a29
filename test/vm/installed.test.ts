/**
 * podnet from its Debian package, on a host with systemd: installed, upgraded with a pod running,
 * restarted, removed and purged. In a complete run that is a Debian with nothing but what the
 * package depends on.
 */
import { execFile } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import ava, { type TestFn } from "ava";
import { version } from "../../api/version.ts";
import { configKeys } from "../../daemon/config/schema.ts";
import { buildDeb } from "../../scripts/packaging/deb.ts";
import { snippets } from "../docs/snippets.ts";
import { type InstalledHost, openInstalledHost } from "../lab/installed/installed-host.ts";

const test = ava.serial as TestFn;
const exec = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../..");

const later = "99.0.0";

/** Commands of a page about the package, by the block's number. */
function commandsOf(page: string, block = 0): string {
  const blocks = snippets().filter((each) => each.page === page && each.where === "installed");
  return (blocks[block]?.commands ?? []).join("\n");
}

let host: InstalledHost;
const directory = mkdtempSync(path.join(tmpdir(), "podnet-packages-"));

test.before(async (t) => {
  // (Two packages are built and compressed, next to whatever else the machine does.)
  t.timeout(900_000);
  await exec(path.join(top, "scripts/node"), ["scripts/release.ts"], { cwd: top });
  host = await openInstalledHost();
  const built = path.join(top, `build/release/podnet_${version}_amd64.deb`);
  copyFileSync(built, path.join(host.root, "root", path.basename(built)));
  // A later release is built, not edited: the command's snapshot has the version in it.
  const next = await buildDeb({ version: later, into: directory });
  copyFileSync(next, path.join(host.root, "root", path.basename(next)));
});

test.after.always("the host is given up", async () => {
  rmSync(directory, { recursive: true, force: true });
  await host?.[Symbol.asyncDispose]();
});

const pid = async (): Promise<string> =>
  (await host.sh("systemctl show -p MainPID --value podnetd")).trim();

/** Words of every process that is a VM. */
const machines = async (): Promise<string> =>
  (await host.attempt("pgrep -a qemu-system")).output.trim();

test("the package installs, and systemd runs podnetd as its own user", async (t) => {
  const commands = commandsOf("docs/how-to/install.md");
  t.true(commands.includes(`_${version}_`), "the page has this version");
  await host.sh(`cd /root\n${commands}`);
  t.is((await host.sh("systemctl is-active podnetd")).trim(), "active");
  t.is((await host.sh("systemctl is-enabled podnetd")).trim(), "enabled");
  t.is((await host.sh(`ps -o user= -p ${await pid()}`)).trim(), "podnet");
  t.is((await host.sh("podnet --version")).trim(), version);
  t.regex(await host.sh("podnet info"), /^Socket +\/run\/podnet\/podnet\.sock$/m);
});

test("every file of the package belongs to root, and only root may write it", async (t) => {
  const files = "dpkg -L podnet | grep -vxF /.";
  const foreign = await host.sh(
    `for file in $(${files}); do [ -L "$file" ] || find "$file" -maxdepth 0 ! -user root -o -maxdepth 0 -perm /022; done`,
  );
  t.is(foreign, "");
});

test("the package has the manual pages and completions of its commands", async (t) => {
  for (const page of [
    "man1/podnet.1",
    "man1/podnet-create.1",
    "man5/podnet-config.toml.5",
    "man8/podnetd.8",
  ]) {
    const file = `/usr/share/man/${page}.gz`;
    t.regex(await host.sh(`gzip -dc ${file}`), /^\.TH "?PODNET/im, page);
  }
  for (const file of [
    "bash-completion/completions/podnet",
    "zsh/vendor-completions/_podnet",
    "fish/vendor_completions.d/podnet.fish",
  ])
    t.regex(await host.sh(`cat /usr/share/${file}`), /__complete/, file);
  const completion = "/usr/share/bash-completion/completions/podnet";
  t.regex(
    await host.sh(`bash -c '. ${completion} && complete -p podnet'`),
    /-F _podnet podnet/,
    "bash takes it",
  );
});

test("the installed configuration has every key, and says nothing until one is uncommented", async (t) => {
  const text = await host.sh("cat /etc/podnet/config.toml");
  for (const { key } of configKeys)
    t.true(new RegExp(`^#${key.slice(key.lastIndexOf(".") + 1)} = `, "m").test(text), key);
  t.false(/^[a-z]/m.test(text));
  const origins = await host.sh("podnetd config --resolved");
  t.notRegex(origins, /config\.toml/);
});

test("a key that is uncommented holds after a restart", async (t) => {
  await host.sh("sed -i 's/^#quarantine_s = .*/quarantine_s = 5/' /etc/podnet/config.toml");
  await host.sh("systemctl restart podnetd");
  t.regex(await host.sh("podnetd config --resolved"), /quarantine_s.*5.*config\.toml/);
});

test("a pod of the installed podnet is on the network, and every check finds it as recorded", async (t) => {
  t.timeout(120_000);
  await host.sh("podnet create --name web --address 192.168.123.9");
  await host.sh("ping -c 1 -W 2 192.168.123.9");
  t.is((await host.sh("podnet exec web -- echo here")).trim(), "here");
  t.regex(await host.sh("podnet verify web"), /checks, all as recorded/);
});

test("the service imports an image, and starts again after a pull that failed", async (t) => {
  t.timeout(120_000);
  await host.sh("mkdir -p /root/files/etc && echo here >/root/files/etc/text");
  await host.sh(
    "tar -C /root/files -cf /root/files.tar . && podnet image import /root/files.tar app:1",
  );
  const { code, output } = await host.attempt("podnet image pull localhost:1/app:2");
  t.not(code, 0);
  t.regex(output, /REGISTRY_UNREACHABLE/);
  t.is(await host.sh("ls /var/lib/podnet/image-store/jobs"), "", "jobs leave nothing");
  await host.sh("systemctl restart podnetd");
  t.regex(await host.sh("podnet image list"), /^app:1 /m);
});

test("an upgrade replaces podnetd and keeps the configuration and the pod's connections", async (t) => {
  const [podnetdBefore, machinesBefore] = [await pid(), await machines()];
  const pings = host.sh("ping -q -i 0.05 -c 100 -W 2 192.168.123.9");
  await host.sh(`cd /root\n${commandsOf("docs/how-to/upgrade.md").replace("VERSION", later)}`);
  t.regex(await pings, / 0% packet loss/);
  t.is((await host.sh("podnet --version")).trim(), later);
  t.not(await pid(), podnetdBefore);
  t.is(await machines(), machinesBefore);
  t.regex(await host.sh("cat /etc/podnet/config.toml"), /^quarantine_s = 5$/m);
  t.is((await host.sh("podnet exec web -- echo still")).trim(), "still");
});

test("systemd starts a podnetd again that hangs", async (t) => {
  t.timeout(60_000);
  await host.sh("mkdir -p /run/systemd/system/podnetd.service.d");
  await host.sh(
    "printf '[Service]\\nWatchdogSec=2\\n' >/run/systemd/system/podnetd.service.d/soon.conf",
  );
  await host.sh("systemctl daemon-reload && systemctl restart podnetd");
  const hanging = await pid();
  await host.sh("sleep 5");
  t.is(await pid(), hanging, "One that answers is left alone");
  await host.sh(`kill -STOP ${hanging}`);
  await host.sh(
    `for i in $(seq 300); do now=$(systemctl show -p MainPID --value podnetd); [ "$now" != 0 ] && [ "$now" != ${hanging} ] && podnet list >/dev/null 2>&1 && exit; sleep 0.1; done; exit 1`,
  );
  t.is((await host.sh("podnet exec web -- echo again")).trim(), "again");
});

test("a removal leaves the pods and says so, and a purge waits for them", async (t) => {
  const before = await machines();
  const said = await host.sh(commandsOf("docs/how-to/uninstall.md", 1));
  t.regex(said, /1 pod|pods: 1/);
  t.is(await machines(), before);
  t.is((await host.attempt("systemctl is-active podnetd")).output.trim(), "inactive");
  const { code, output } = await host.attempt("dpkg -P podnet");
  t.not(code, 0);
  t.regex(output, /VMs still run, so \/var\/lib\/podnet stays/);
  t.true(existsSync(path.join(host.root, "var/lib/podnet/state.db")));
});

test("another installation manages them again, and after podnet down a purge leaves nothing", async (t) => {
  await host.sh(`cd /root\n${commandsOf("docs/how-to/install.md")}`);
  t.regex(await host.sh("podnet list"), /^web .*running/m);
  await host.sh("ping -c 1 -W 2 192.168.123.9");
  await host.sh(commandsOf("docs/how-to/uninstall.md", 0));
  t.is(await machines(), "");
  const left = await host.sh(
    "find / -xdev -name '*podnet*' -not -path '/proc/*' -not -path '/root/*' -not -path '/work/*' -not -path '/srv/*' | head; ip -o link show group 73; iptables-save 2>&1 | grep podnet || true",
  );
  t.is(left, "");
});
