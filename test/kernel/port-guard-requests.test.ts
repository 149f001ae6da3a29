/**
 * Where ARP requests go: to the port that has the address, and to all where no port is known to
 * have it, or where neighbors may know another MAC for it.
 */
import test from "ava";
import { dualPod, podAddress } from "../lab/firewall-site.ts";
import { arp } from "../lab/forged-frames.ts";
import { heardWhile, sendFrames } from "../lab/frames.ts";
import {
  ask,
  changed,
  heard,
  last,
  openStage,
  other4,
  own4,
  texts,
  to4,
} from "./port-guard-rig.ts";

const gateway = "192.168.123.1";

test.serial(
  "a guest's ARP request reaches the port that has the address, and no other",
  async (t) => {
    await using site = await openStage();
    await site.pod(4);
    await site.ensure(dualPod(4));
    const third = arp(to4, { ...ask, target: podAddress(4, 4) }, "asks for a third pod's");
    const right = [
      arp(to4, { ...ask, target: other4 }, "asks for its listener's"),
      arp(to4, { ...ask, target: "192.168.123.77" }, "asks for one that no port has"),
      arp({ ...to4, vlans: [5] }, { ...ask, target: podAddress(4, 4) }, "asks in a VLAN"),
    ];
    t.deepEqual(await heard(site, [third, ...right, last]), [...texts(right), last.text]);
    await site.ensure(changed(4, { guard: "off" }));
    t.deepEqual(await heard(site, [third, last]), texts([third, last]), "it may have any address");
  },
);

test.serial(
  "an address that something had before is announced to all, a fresh one to the host",
  async (t) => {
    await using site = await openStage();
    const announcement = arp(to4, { ...ask, target: own4 }, "announces itself");
    const probe = arp(to4, { ...ask, sender: "0.0.0.0", target: own4 }, "asks whether it is free");
    const both = [announcement, probe];
    t.deepEqual(await heard(site, [...both, last]), texts([...both, last]));
    await site.ensure(changed(2, { fresh: true }));
    t.deepEqual(await heard(site, [...both, last]), [last.text]);
    const atHost = await heardWhile(
      { site, machine: "host", link: "hyper0" },
      texts([probe, announcement]),
      () => sendFrames(site, "pod2", "eth0", [probe, announcement]),
    );
    t.deepEqual(atHost, texts([probe, announcement]), "the host learns it");
  },
);

test.serial(
  "the host's ARP requests reach the port that has the address, and no other",
  async (t) => {
    await using site = await openStage();
    const mac = "02:00:00:00:00:09";
    const from = (target: string, text: string) =>
      arp({ ...to4, src: mac }, { operation: 1, senderMac: mac, sender: gateway, target }, text);
    const right = [
      from(gateway, "announces the gateway"),
      from("192.168.123.77", "asks for one that no port has"),
      from(other4, "asks for its listener's"),
    ];
    const frames = [from(own4, "asks for another's"), ...right];
    const got = await heardWhile({ site, machine: "pod3", link: "eth0" }, texts(frames), () =>
      sendFrames(site, "host", "hyper0", frames),
    );
    t.deepEqual(got, texts(right));
  },
);
