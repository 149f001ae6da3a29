import test from "ava";
import type { IfName } from "../../core/names.ts";
import { newOfKind } from "../../linux/rtnetlink/links/link-requests.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import type { PortRates } from "../../network/model/rates.ts";
import { dualNetwork, dualPod, FirewallSite } from "../lab/firewall-site.ts";

test("a kernel without the link that a limit needs is named, and other limits hold", async (t) => {
  await using site = await FirewallSite.open(
    { firewall: "nftables", iptables: "auto" },
    {
      kernel: (real) => ({
        ...real,
        netlink: new Proxy(real.netlink, {
          get(target, name) {
            if (name === "addIfb") return refuseKind;
            const value: unknown = Reflect.get(target, name, target);
            return typeof value === "function" ? (value.bind(target) as unknown) : value;
          },
        }),
      }),
    },
  );
  await site.ensure(dualNetwork());
  await site.pod(2);
  const limit = (rates: PortRates): Promise<void> => {
    const { ports, ...pod } = dualPod(2);
    const ifb = "pifb2" as IfName;
    return site.ensure({ ...pod, ports: ports.map((port) => ({ ...port, ifb, rates })) });
  };
  const refused = await t.throwsAsync(limit({ fromGuest: { bitsPerSecond: 1e6 } }), {
    code: "UNSUPPORTED",
    message: /cannot limit rates: .*Unknown device type/,
  } as never);
  t.regex((refused as { readonly hint?: string }).hint ?? "", /ifb/);
  await t.notThrowsAsync(limit({ toGuest: { bitsPerSecond: 1e6 } }));
});

/** The kernel's own answer for a kind of link that it does not have. */
async function refuseKind(): Promise<void> {
  using netlink = Rtnetlink.open();
  const [outcome] = await netlink.tryBatch([newOfKind("podnetnone", { name: "none0" })]);
  if (outcome !== undefined) throw outcome;
}
