import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { openCniRig } from "./cni-rig.ts";

test("the plugin and its configuration are put where runtimes look, are there while podnetd serves, and go", async (t) => {
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
  t.is(statSync(join(binDir, "podnet-cni")).mode & 0o777, 0o755);
  // A runtime that has just read it is served by it.
  const { capabilities: _declared, ...derived } = plugins[0];
  await cni.done({ command: "DEL", container, config: { ...derived, cniVersion, name: "podnet" } });
  await rig.daemon.stop();
  t.false(existsSync(list));
  await rig.restart("kill");
  t.true(existsSync(list));
  t.regex(await rig.daemon.podnet("info"), /cni plugin: .* have this podnetd's/);
  // After an upgrade, or a loss of power, the plugin there is another one than podnetd's.
  const plugin = join(binDir, "podnet-cni");
  const whole = readFileSync(plugin);
  writeFileSync(plugin, "");
  await rig.restart("stop");
  t.true(readFileSync(plugin).equals(whole));
  // One that cannot be renewed is not announced.
  rmSync(plugin);
  mkdirSync(join(plugin, "taken"), { recursive: true });
  await rig.restart("kill");
  t.false(existsSync(list));
  t.regex(await rig.daemon.podnet("info"), /cni plugin: container runtimes are not served/);
  rmSync(plugin, { recursive: true });
  await rig.restart("stop");
  t.true(readFileSync(plugin).equals(whole) && existsSync(list));
  // One that is killed cannot take it back; the next one writes it anew.
  await rig.daemon.kill();
  t.true(existsSync(list));
  await rig.restart("kill");
  const removed = await rig.daemon.podnet("cni", "uninstall");
  t.is(removed.trim().split("\n").length, 2);
  t.false(existsSync(list) || existsSync(join(binDir, "podnet-cni")));
  t.is(await rig.daemon.podnet("cni", "uninstall"), "Nothing was installed\n");
});
