import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

/** Files of Debian's package that nothing needs here. */
const needless = /^\/usr\/(?:share|lib\/udev|lib\/systemd\/system-generators)\//;
const programs = ["systemd", "systemd-journald", "systemd-shutdown", "systemd-executor"];

const textOf = (program: string, ...words: string[]): string =>
  execFileSync(program, words, { encoding: "utf8" });

/**
 * Adds this host's systemd, as Debian packs it, with the libraries that it needs to a root
 * directory, and a unit `probe` that it starts.
 */
export function addSystemd(root: string): void {
  const put = (path: string, isLink = false): void => {
    const to = join(root, path);
    mkdirSync(dirname(to), { recursive: true });
    if (existsSync(to)) return;
    if (isLink) symlinkSync(readlinkSync(path), to);
    else copyFileSync(path, to);
  };
  // As Debian has it; busybox's own programs are in bin already.
  for (const name of ["lib", "lib64", "sbin"]) {
    mkdirSync(join(root, "usr", name), { recursive: true });
    rmSync(join(root, name), { recursive: true, force: true });
    symlinkSync(`usr/${name}`, join(root, name));
  }
  const usr = (path: string): string => path.replace(/^\/(?=lib|sbin)/, "/usr/");
  for (const line of textOf("dpkg", "-L", "systemd").split("\n")) {
    const path = usr(line);
    if (path === "" || needless.test(path) || !existsSync(path)) continue;
    const stat = lstatSync(path);
    if (!stat.isDirectory()) put(path, stat.isSymbolicLink());
  }
  const all = programs.map((name) => `/usr/lib/systemd/${name}`).filter((path) => existsSync(path));
  for (const program of [...all, "/usr/bin/systemctl", "/usr/bin/systemd-tmpfiles"])
    for (const [, library = ""] of textOf("ldd", program).matchAll(/(\/\S+) \(0x/g))
      put(usr(library));
  const unit = (name: string, text: string): void =>
    writeFileSync(join(root, "etc/systemd/system", name), text);
  mkdirSync(join(root, "etc/systemd/system"), { recursive: true });
  writeFileSync(join(root, "etc/machine-id"), "");
  unit(
    "default.target",
    "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=probe.service\nAllowIsolate=yes\n",
  );
  unit(
    "probe.service",
    `[Service]
ExecStart=/bin/sh -c 'echo up > /run/probe; exec sleep 100000'
ExecStop=/bin/sh -c 'echo stopped >> /probe-stopped'
`,
  );
}
