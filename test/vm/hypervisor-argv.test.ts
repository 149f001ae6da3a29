import { symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { channelPorts } from "../../hypervisor/argv/argv.ts";
import { hotplugBridge } from "../../hypervisor/argv/machine-kinds.ts";
import { never, rig } from "./hypervisor-rig.ts";

test("paths full of QEMU's own syntax are paths to the real QEMU", async (t) => {
  await using it = await rig("deaf");
  const name = (stem: string): string => join(it.directory, `${stem},readonly=off,id=x "'=\n%s`);
  await writeFile(name("disk"), new Uint8Array(65_536));
  await symlink(it.plan.kernel, name("kernel"));
  await symlink(it.plan.initrd, name("initrd"));
  const vm = await it.driver.start(
    {
      ...it.plan,
      kernel: name("kernel"),
      initrd: name("initrd"),
      cmdline: "a=b,c=d -drive file=/etc/passwd",
      disks: [
        { path: name("disk"), format: "raw", readOnly: true },
        { path: name("disk"), format: "raw", readOnly: true },
      ],
    },
    never,
  );
  using observer = await QmpClient.open(vm.socketPath("verify"));
  const ask = observer.execute as (name: string, args: object) => Promise<unknown>;
  const blocks = (await ask.call(observer, "query-block", {})) as {
    inserted: { file: string; ro: boolean };
  }[];
  t.deepEqual(
    blocks.map(({ inserted }) => [inserted.file, inserted.ro]),
    [
      ["/dev/fdset/0", true],
      ["/dev/fdset/1", true],
    ],
  );
  const sets = (await ask.call(observer, "query-fdsets", {})) as { fds: { opaque: string }[] }[];
  t.deepEqual(
    sets.flatMap(({ fds }) => fds.map(({ opaque }) => opaque)),
    [name("disk"), name("disk")],
  );
  await vm.stop({ graceMs: 0 });
});

test("the machine has the devices its description names, and no others", async (t) => {
  await using it = await rig("deaf");
  const { vm } = await it.start();
  using observer = await QmpClient.open(vm.socketPath("verify"));
  const children = async (path: string): Promise<string[]> =>
    (await observer.execute("qom-list", { path }))
      .filter(({ type }) => type.startsWith("child<"))
      .map(({ name, type }) => `${name} ${type.slice(6, -1)}`)
      .sort();
  t.deepEqual(await children("/machine/peripheral"), [
    `${hotplugBridge} pcie-pci-bridge`,
    ...channelPorts.map((id) => `${id} virtserialport`),
    "serial0 virtio-serial-pci",
  ]);
  t.deepEqual(
    (await children("/machine/peripheral-anon")).map((child) => child.split(" ")[1]),
    ["virtio-rng-pci"],
  );
  await vm.stop({ graceMs: 0 });
});
