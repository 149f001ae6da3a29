/** A node that runs containers only, until QEMU is installed. */
import { chmodSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openCniRig } from "../cni/cni-rig.ts";
import { standInQemu } from "../lab/standin.ts";
import { writeTinyGuest } from "../peers/tiny-guest.ts";
import { openRig } from "./daemon-rig.ts";
import { create } from "./standin-rig.ts";

function scratch(stack: DisposableStack | AsyncDisposableStack): string {
  const directory = mkdtempSync(join(tmpdir(), "podnet-no-qemu-"));
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Puts a program there as a package would: whole from its first moment on. */
function install(path: string, script: string): void {
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
}

test.serial(
  "without QEMU podnetd attaches containers and says so; pods follow once it is installed",
  async (t) => {
    await using stack = new AsyncDisposableStack();
    const qemu = join(scratch(stack), "qemu");
    const cni = stack.use(await openCniRig());
    const { rig } = cni;
    await rig.restart("stop", { PODNET_QEMU_PATH: qemu });
    t.regex(rig.daemon.log(), /QEMU is not installed: only containers/);
    const container = await cni.container();
    await cni.done({ container });
    await container.run("ping", "-c1", "-W2", "192.168.123.1");
    const info = await rig.daemon.podnet("info");
    t.regex(info, /^VMs +qemu not installed,/m);
    t.regex(info, /qemu: containers only, no pod can start: There is no program/);
    const refused = await rig.daemon.tryPodnet("create", "--name=early");
    t.is(refused.exitCode, 6);
    t.regex(refused.stderr, /QEMU_MISSING[^]*hint: Install it/);
    install(qemu, `exec ${standInQemu} "$@"`);
    await create(rig.client, "later");
    t.notRegex(await rig.daemon.podnet("info"), /not installed|containers only/);
    await rig.client.pods.delete({ idOrName: "later" });
    await cni.done({ command: "DEL", container });
  },
);

test.serial(
  "a QEMU that is installed later is tried in the jail before a machine starts",
  async (t) => {
    await using stack = new AsyncDisposableStack();
    const directory = scratch(stack);
    const qemu = join(directory, "qemu");
    const guest = await writeTinyGuest(directory, "deaf");
    const config = 'factory = "cold"\nquarantine_s = 0\n[timeouts]\nready_s = 1\n';
    const rig = stack.use(await openRig(config));
    await rig.restart("stop", { PODNET_QEMU_PATH: qemu });
    const boot = (): Promise<unknown> =>
      rig.client.pods.create({ spec: { name: "one", boot: guest } });
    await t.throwsAsync(boot(), { code: "QEMU_MISSING" });
    // A shell, which the jail lacks: no machine starts in another way instead.
    install(qemu, 'exec qemu-system-x86_64 "$@"');
    await t.throwsAsync(boot(), {
      code: "PREFLIGHT_FAILED",
      message: /^VMs cannot be confined/,
    });
    rmSync(qemu);
    symlinkSync("/usr/bin/qemu-system-x86_64", qemu);
    // QEMU itself now runs in its jail, and by this path finds none of its modules.
    await t.throwsAsync(boot(), { code: "QEMU_EXITED", message: /could not load module/ });
  },
);
