import test from "ava";
import { readlinkSync } from "node:fs";
import { run } from "../../linux/processes/command.ts";
import { kernelHasLinkKind, kernelHasXfrm } from "../../linux/kernel-features.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { refuseBackend } from "../../daemon/overlays/lease/refuse-backend.ts";
import { ownNetns } from "../lab/netns.ts";

test.before(ownNetns);

const succeeds = async (command: string): Promise<boolean> => {
  try {
    await run(command.split(" ") as [string, ...string[]]);
    return true;
  } catch {
    return false;
  }
};

for (const kind of ["veth", "vxlan", "bridge", "dummy", "wireguard", "ipip", "nothing"])
  test.serial(
    `whether the kernel has ${kind} is found out, and leaves nothing behind`,
    async (t) => {
      const namespace = readlinkSync("/proc/thread-self/ns/net");
      using netlink = Rtnetlink.open();
      const before = (await netlink.links()).map(({ name }) => name);
      const has = await kernelHasLinkKind(kind);
      t.is(readlinkSync("/proc/thread-self/ns/net"), namespace);
      t.deepEqual(
        (await netlink.links()).map(({ name }) => name),
        before,
      );
      // (A tunnel without ends is the namespace's own, which is there already.)
      const more =
        kind === "ipip"
          ? " local 192.0.2.1 remote 192.0.2.2"
          : kind === "vxlan"
            ? " id 5 dstport 4789"
            : "";
      const made = await succeeds(`ip link add dev mine0 type ${kind}${more}`);
      if (made) await run(["ip", "link", "del", "mine0"]);
      t.is(has, made);
      if (["veth", "vxlan", "bridge"].includes(kind)) t.true(has);
      if (kind === "nothing") t.false(has);
    },
  );

test.serial("whether the kernel has ipsec is what ip xfrm says", async (t) => {
  t.is(kernelHasXfrm(), await succeeds("ip xfrm policy list"));
});

test.serial("backends are refused by what this kernel lacks", async (t) => {
  const plain = { v6: false, extension: false };
  t.is(await refuseBackend({ type: "vxlan", ...plain }), undefined);
  const refused = await refuseBackend({ type: "ipip", ...plain });
  const lacks = /CONFIG_NET_IPIP/.test(String(refused?.details["missing"]));
  t.is(lacks, !(await kernelHasLinkKind("ipip")));
});
