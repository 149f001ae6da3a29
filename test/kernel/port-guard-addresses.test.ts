import test from "ava";
import type { IpPrefix, Mac } from "../../core/address.ts";
import { dualNetwork, dualPod } from "../lab/firewall-site.ts";
import { arp, discovery, four, linkOption, six, udp } from "../lab/forged-frames.ts";
import type { RawFrame } from "../lab/frames.ts";
import {
  ask,
  cases,
  changed,
  datagram,
  heard,
  icmp,
  last,
  openStage,
  other,
  other4,
  other6,
  otherLink,
  own,
  own4,
  ownLink,
  packet,
  signal,
  texts,
  to4,
  to6,
  toOther,
} from "./port-guard-rig.ts";

test.serial(
  "a guest that chooses its link-local addresses uses any but those of others",
  async (t) => {
    await using site = await openStage(changed(2, { guard: "own-link-local" }));
    const chosen = "fe80::7:8:9:a";
    const from = (saddr: string, text: string): RawFrame =>
      six(toOther, { ...packet, saddr }, udp(9, 9), text);
    const bridge = await site.inside("host", "ip", "-o", "-6", "address", "show", "dev", "hyper0");
    const gateway = /(fe80::[0-9a-f:]+)\//.exec(bridge)?.[1] ?? "";
    const right = [
      from(chosen, "chosen"),
      from(ownLink, "made of its MAC"),
      six(to6, { ...icmp, saddr: "::" }, discovery(135, chosen), "DAD for it"),
      six(to6, { ...icmp, saddr: chosen }, discovery(136, chosen, linkOption(2, own)), "NA of it"),
    ];
    const wrong = [
      from(otherLink, "another's"),
      from(gateway, "the gateway's"),
      six(to6, { ...icmp, saddr: chosen }, discovery(136, gateway), "NA of the gateway's"),
      six(to6, { ...icmp, saddr: "::" }, discovery(135, otherLink), "DAD for another's"),
      from("fd00:123::77", "not link-local"),
    ];
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
  },
);

test.serial(
  "while later plugins may change a container's MAC, any but others' passes; with its addresses only",
  async (t) => {
    await using site = await openStage(changed(2, { macMayChange: true }));
    const later = "02:11:22:33:44:55";
    const head = { dst: other, src: later } as const;
    const right = [
      four(head, datagram, udp(9, 9), "the new MAC"),
      arp(head, { ...ask, senderMac: later }, "ARP by it"),
      six({ ...to6, src: later }, icmp, discovery(135, other6, linkOption(1, later)), "NS by it"),
      last,
    ];
    const wrong = [
      four({ dst: other, src: other }, datagram, udp(9, 9), "another's MAC"),
      four(head, { ...datagram, saddr: other4 }, udp(9, 9), "another's address"),
      arp(head, { ...ask, senderMac: other }, "ARP with another's MAC"),
    ];
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
    await site.ensure(changed(2, { otherMacs: [later as Mac] }));
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right), "once it is known");
    const next = { dst: other, src: "02:11:22:33:44:56" };
    t.deepEqual(await heard(site, [four(next, datagram, udp(9, 9), "a third"), last]), [last.text]);
  },
);

test.serial(
  "on a foreign bridge the MAC decides about IPv6, and about IPv4 where podnet gave no address",
  async (t) => {
    await using site = await openStage();
    await site.ensure(changed(2, { foreign: true, guestAddresses: [] }));
    const any = [
      four(toOther, { ...datagram, saddr: "10.9.9.9" }, udp(9, 9), "IPv4 of a DHCP server"),
      arp(to4, { ...ask, sender: "10.9.9.9" }, "ARP of it"),
    ];
    const any6 = [
      six(toOther, { ...packet, saddr: "2001:db8::77" }, udp(9, 9), "IPv6 of a router"),
      six(to6, { ...icmp, saddr: "2001:db8::77" }, discovery(136, "2001:db8::77"), "NA of it"),
    ];
    const { wrong } = cases.mac as { wrong: RawFrame[] };
    t.deepEqual(await heard(site, [...wrong, ...any, ...any6]), texts([...any, ...any6]));
    await site.ensure(changed(2, { foreign: true, guestAddresses: [`${own4}/24` as IpPrefix] }));
    t.deepEqual(
      await heard(site, [...wrong, ...any, ...any6]),
      texts(any6),
      "with an IPv4 address",
    );
  },
);

test.serial(
  "further protocols pass where a network has them, and tags of VLANs are no way around on a bridge that filters them",
  async (t) => {
    await using site = await openStage(dualPod(2), dualNetwork({ ethertypes: [0x88e5] }));
    const { wrong } = cases.ethertype as { wrong: RawFrame[] };
    const [macsec, ...others] = wrong as [RawFrame, ...RawFrame[]];
    t.deepEqual(await heard(site, [...others, macsec]), [macsec.text]);
    t.deepEqual(await site.host.diff(dualNetwork({ ethertypes: [0x88e5] }), signal), []);
    const tagged = (vlan: number): RawFrame =>
      four(
        { ...toOther, vlans: [vlan] },
        { ...datagram, saddr: other4 },
        udp(9, 9),
        `VLAN ${vlan}`,
      );
    t.deepEqual(await heard(site, [tagged(1), last]), [tagged(1).text, last.text]);
    // (As on a bridge that filters VLANs, which this kernel may not have.)
    await site.inside("host", "nft", "flush", "set", "bridge", "podnet", "trunks");
    t.deepEqual(await heard(site, [tagged(1), last]), [last.text]);
  },
);
