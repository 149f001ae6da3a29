import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { parseConflist } from "../../cni/runtime/list.ts";
import type { Machine } from "../lab/lab.ts";
import { openCniRig } from "./cni-rig.ts";

test("the plugin and its configuration are put where runtimes look, stay while podnetd is stopped, and go", async (t) => {
  await using cni = await openCniRig();
  const { rig } = cni;
  const dir = join(rig.directory, "net.d");
  const binDir = join(rig.directory, "bin");
  const list = join(dir, "10-podnet.conflist");
  const container = await cni.container();
  await cni.done({ container });
  const shown = await rig.daemon.podnet("cni");
  t.regex(shown, new RegExp(`${container.name} +eth0 +ready .* default +192\\.168\\.123\\.`));
  const written = await rig.daemon.podnet("cni", "install", "--dir", dir, "--bin-dir", binDir);
  t.deepEqual(written.trim().split("\n"), [`Wrote ${join(binDir, "podnet-cni")}`, `Wrote ${list}`]);
  const { cniVersion, plugins } = JSON.parse(readFileSync(list, "utf8"));
  t.deepEqual(
    [cniVersion, plugins[0].type, plugins[0].socket],
    ["1.0.0", "podnet-cni", cni.socket],
  );
  // The version that a runtime takes which knows 1.1.0, and with it STATUS and GC.
  t.is(parseConflist(readFileSync(list)).version, "1.1.0");
  t.is(statSync(join(binDir, "podnet-cni")).mode & 0o777, 0o755);
  const newest = { ...plugins[0], cniVersion: "1.1.0", name: "podnet" };
  await cni.done({ command: "STATUS", container, config: newest });
  const left = await cni.container();
  await cni.done({ container: left, config: newest });
  const valid = [{ containerID: container.name, ifname: "eth0" }];
  await cni.done({
    command: "GC",
    container,
    config: { ...newest, "cni.dev/valid-attachments": valid },
  });
  const after = await rig.daemon.podnet("cni");
  const ready = ({ name }: Machine): boolean => new RegExp(`${name} +eth0 +ready`).test(after);
  t.deepEqual([container, left].map(ready), [true, false]);
  // A runtime that has just read it is served by it.
  const { capabilities: _declared, ...derived } = plugins[0];
  await cni.done({ command: "DEL", container, config: { ...derived, cniVersion, name: "podnet" } });
  await rig.daemon.stop();
  t.true(existsSync(list));
  await rig.restart("kill");
  t.true(existsSync(list));
  t.regex(await rig.daemon.podnet("info"), /cni plugin: .* have this podnetd's/);
  // After an upgrade, or a loss of power, the plugin there is another one than podnetd's.
  const plugin = join(binDir, "podnet-cni");
  const whole = readFileSync(plugin);
  writeFileSync(plugin, "");
  await rig.restart("stop");
  t.true(readFileSync(plugin).equals(whole));
  // One that cannot be renewed is reported; without a list runtimes would take another network.
  rmSync(plugin);
  mkdirSync(join(plugin, "taken"), { recursive: true });
  await rig.restart("kill");
  t.true(existsSync(list));
  t.regex(await rig.daemon.podnet("info"), /cni plugin: container runtimes are not served/);
  rmSync(plugin, { recursive: true });
  await rig.restart("stop");
  t.true(readFileSync(plugin).equals(whole) && existsSync(list));
  const other = await cni.container();
  await cni.done({ container: other });
  const refused = await rig.daemon.tryPodnet("cni", "uninstall");
  t.regex(refused.stderr, /^error: 1 container is attached.*WRONG_STATE/);
  t.true(existsSync(list) && existsSync(plugin));
  await cni.done({ command: "DEL", container: other });
  const removed = await rig.daemon.podnet("cni", "uninstall");
  t.is(removed.trim().split("\n").length, 2);
  t.false(existsSync(list) || existsSync(join(binDir, "podnet-cni")));
  t.is(await rig.daemon.podnet("cni", "uninstall"), "Nothing was installed\n");
  // `podnet down` takes containers off first; with --force they stay attached.
  await cni.done({ container: other });
  await rig.daemon.podnet("cni", "install", "--dir", dir, "--bin-dir", binDir);
  await rig.daemon.podnet("cni", "uninstall", "--force");
  t.false(existsSync(list));
  t.regex(await rig.daemon.podnet("cni"), new RegExp(`${other.name} +eth0 +ready`));
  await rig.daemon.podnet("cni", "install", "--dir", dir, "--bin-dir", binDir);
  t.true((await rig.daemon.podnet("down", "--plan")).includes(list));
  t.true((await rig.daemon.podnet("down", "--yes")).includes(`Removed ${list}`));
  t.false(existsSync(list) || existsSync(plugin));
});
