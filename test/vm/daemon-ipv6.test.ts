import test from "ava";
import { InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await openRig('[network]\ncidr = "fd00:123::/64"\n');
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
