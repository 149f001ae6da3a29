import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { openOverlaySite, overlayPrefix } from "../lab/overlay-site.ts";
import { until } from "../lab/until.ts";

test("overlays that are written to etcd are joined, each with a network of its own, and left when they are deleted or a caller says so", async (t) => {
  t.timeout(180_000);
  await using site = await openOverlaySite(["discover = true"]);
  const { etcd, ip, directory } = site;
  const configure = (name: string, network: string, vni: number): Promise<string> =>
    etcd.etcdctl(
      "put",
      `${overlayPrefix}/${name}/config`,
      JSON.stringify({ Network: network, Backend: { Type: "vxlan", VNI: vni } }),
    );
  const keysOf = async (name: string): Promise<readonly string[]> => {
    const text = await etcd.etcdctl(
      "get",
      "--prefix",
      `${overlayPrefix}/${name}/subnets`,
      "--keys-only",
    );
    return text.split("\n").filter((line) => line !== "");
  };
  await configure("red", "10.81.0.0/16", 11);
  await using daemon = await site.start(`subnet_dir = "${join(directory, "networks")}"`);
  await configure("blue", "10.82.0.0/16", 12);
  const addressed = (name: string, start: string): Promise<unknown> =>
    until(
      `${name} on its bridge`,
      async () => (await ip(`addr show pn-${name}`)).includes(`inet ${start}`),
      60_000,
      () => daemon.log(),
    );
  await addressed("red", "10.81.");
  await addressed("blue", "10.82.");
  const file = (name: string): string => join(directory, "networks", `${name}.env`);
  await until("both files", () => existsSync(file("red")) && existsSync(file("blue")));
  t.regex(readFileSync(file("blue"), "utf8"), /^FLANNEL_NETWORK=10\.82\.0\.0\/16$/m);
  t.regex(await ip("-d link show flannel.11"), /vxlan id 11/);
  t.regex(await ip("-d link show flannel.12"), /vxlan id 12/);
  // The configured network is none of theirs.
  t.true((await ip("addr show hyper0")).includes("inet 192.168.123.1/24"));
  const { stderr } = await daemon.tryPodnet("network", "delete", "blue");
  t.regex(stderr, /WRONG_STATE/);

  // One that would hand out another's addresses is refused, and says so.
  await configure("green", "10.81.128.0/17", 13);
  await until("the conflict", async () =>
    (await daemon.podnet("overlay", "list", "-o", "json")).includes(
      "of this host has 10.81.0.0/16",
    ),
  );
  t.is(await ip("link show flannel.13"), "");
  t.deepEqual(await keysOf("green"), []);

  // One whose network's name is taken is reported, and joined when the name is free.
  await daemon.podnet("network", "create", "grey", "--cidr", "10.84.0.0/24");
  await configure("grey", "10.83.0.0/16", 14);
  const taken = /overlay grey: This host cannot take part in the overlay: .*grey/;
  await until("the trouble", async () => taken.test(await daemon.podnet("overlay", "list")));
  t.regex((await daemon.tryPodnet("info")).stdout, taken);
  await daemon.podnet("network", "delete", "grey");
  await addressed("grey", "10.83.");
  t.notRegex(await daemon.podnet("overlay", "list"), taken);

  await etcd.etcdctl("del", `${overlayPrefix}/blue/config`);
  await until(
    "blue gone",
    async () => (await ip("link show pn-blue")) === "",
    60_000,
    () => daemon.log(),
  );
  await until("its device gone", async () => (await ip("link show flannel.12")) === "");
  t.deepEqual(await keysOf("blue"), []);
  t.false(existsSync(file("blue")));
  t.is((await keysOf("red")).length, 1);
  t.regex(await ip("-d link show flannel.11"), /vxlan id 11/);

  // An overlay that was left stays left, whatever others come.
  await daemon.podnet("overlay", "leave", "--overlay", "red");
  await configure("last", "10.85.0.0/16", 15);
  await addressed("last", "10.85.");
  t.deepEqual(await keysOf("red"), []);
  await until("red's device gone", async () => (await ip("link show flannel.11")) === "");
});
