import test from "ava";
import {
  type BackendNeeds,
  type BackendUse,
  refuseBackend,
} from "../../../../daemon/overlays/lease/refuse-backend.ts";
import { type BackendType, parseBackend } from "../../../../overlay/flannel/backend.ts";

const everything: BackendNeeds = {
  hasLinkKind: () => Promise.resolve(true),
  hasXfrm: () => true,
  hasFile: () => true,
};
const nothing: BackendNeeds = {
  hasLinkKind: () => Promise.resolve(false),
  hasXfrm: () => false,
  hasFile: () => false,
};

const use = (type: BackendType, more: Partial<BackendUse> = {}): BackendUse => ({
  type,
  v6: false,
  extension: false,
  ...more,
});
const missing = async (type: BackendType, needs: BackendNeeds, more?: Partial<BackendUse>) =>
  (await refuseBackend(use(type, more), needs))?.details["missing"];

test("a backend that this host cannot have is refused with all that is missing", async (t) => {
  t.is(
    await missing("wireguard", nothing),
    "wireguard in the kernel (CONFIG_WIREGUARD); a podnet that makes it",
  );
  t.is(
    await missing("ipip", nothing),
    "ipip in the kernel (CONFIG_NET_IPIP); a podnet that makes it",
  );
  t.is(
    await missing("ipsec", nothing),
    "xfrm in the kernel (CONFIG_XFRM_USER); strongSwan's charon; a podnet that makes it",
  );
  t.is(await missing("vxlan", nothing), "vxlan in the kernel");
  for (const type of ["wireguard", "ipip", "ipsec"] as const)
    t.is(await missing(type, everything), "a podnet that makes it");
  const refused = await refuseBackend(use("ipip"), nothing);
  t.is(refused?.code, "UNSUPPORTED");
  t.is(refused?.field, "Backend.Type");
});

test("an extension is refused until podnetd's own configuration allows it", async (t) => {
  t.is(
    await missing("extension", everything),
    "overlay.extension = true in podnetd's configuration",
  );
  t.is(await missing("extension", nothing, { extension: true }), undefined);
});

test("an overlay with IPv6 is refused by udp, whose tunnel carries none, and by no other for that", async (t) => {
  const refused = await refuseBackend(use("udp", { v6: true }), everything);
  t.is(refused?.code, "UNSUPPORTED");
  t.regex(String(refused?.details["missing"]), /^a way for IPv6/);
  t.regex(refused?.hint ?? "", /no IPv6$/);
  t.is(await missing("udp", everything), undefined);
  for (const type of ["vxlan", "host-gw", "alloc"] as const)
    t.is(await missing(type, everything, { v6: true }), undefined);
});

test("backends that need nothing but podnet are not refused, nor is vxlan where the kernel has it", async (t) => {
  for (const type of ["host-gw", "udp", "alloc"] as const)
    t.is(await missing(type, nothing), undefined);
  t.is(await missing("vxlan", everything), undefined);
  // Types are found in any case, as flannel does.
  for (const [text, type] of [
    ["VXLAN", "vxlan"],
    ["Host-GW", "host-gw"],
    ["Alloc", "alloc"],
  ] as const)
    t.is(parseBackend({ Type: text }).type, type);
});
