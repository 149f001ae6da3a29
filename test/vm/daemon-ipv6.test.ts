import test from "ava";
import { InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await openRig('factory = "cold"\n[network]\ncidr = "fd00:123::/64"\n');
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial("a network of IPv6 serves pods as one of IPv4 does", async (t) => {
  const { pod } = await rig.client.pods.create({ spec: { name: "six" } });
  t.is(addressOf(pod), "fd00:123::2");
  t.is(pod?.interfaces[0]?.state, InterfaceState.CONFIGURED);
  await rig.lab.host.ping("fd00:123::2", 2);
  const gateway = await execIn(rig.client, "six", "ping6", "-c", "1", "-W", "2", "fd00:123::1");
  t.is(gateway.code, 0, gateway.output);
  const { ok, checks } = await rig.client.pods.verify({ idOrName: "six" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  await rig.client.pods.delete({ idOrName: "six" });
  t.deepEqual(await rig.changes(), []);
});

/** The link-local address a link of this MAC makes for itself (RFC 4291 appendix A). */
function linkLocal(mac: string): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac
    .split(":")
    .map((byte) => parseInt(byte, 16));
  const words = [(a ^ 2) * 256 + b, c * 256 + 0xff, 0xfe00 + d, e * 256 + f];
  return `fe80::${words.map((word) => word.toString(16)).join(":")}`;
}

/** Whether the pod gets an answer from the bridge's own link-local address. */
async function speaksToHost(on: Rig, pod: string): Promise<boolean> {
  const [link] = JSON.parse(await on.lab.host.run("ip", "-j", "link", "show", "hyper0")) as [
    { readonly address: string },
  ];
  const words = ["ping6", "-c", "1", "-W", "2", "-I", "eth0", linkLocal(link.address)];
  return (await execIn(on.client, pod, ...words)).code === 0;
}

test.serial("a pod of an IPv6 network speaks to the host link-locally", async (t) => {
  await rig.client.pods.create({ spec: { name: "control" } });
  t.true(await speaksToHost(rig, "control"));
  await rig.client.pods.delete({ idOrName: "control" });
});

test.serial(
  "with no IPv6 on the network no path of IPv6 is left, not even link-locally",
  async (t) => {
    await using four = await openRig();
    await four.client.pods.create({ spec: { name: "four" } });
    // A link has its own address only once the kernel finds it up, up to a second after it is
    // (linkwatch, Linux 6.1).
    const look = ["sh", "-c", "sleep 3; cat /proc/net/if_inet6"] as const;
    const speaks = await execIn(four.client, "four", ...look);
    t.deepEqual(
      speaks.output.split("\n").filter((line) => line !== "" && !line.endsWith(" lo")),
      [],
    );
    t.false(await speaksToHost(four, "four"));
    // A guest that will not have it so finds no server there.
    const own = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6";
    const on = await execIn(
      four.client,
      "four",
      "sh",
      "-c",
      `echo 0 >${own} && ip -6 address add fd00::1/64 dev eth0`,
    );
    t.is(on.code, 0, on.output);
    t.false(await speaksToHost(four, "four"));
  },
);
