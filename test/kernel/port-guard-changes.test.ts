import test from "ava";
import type { IpPrefix, Mac } from "../../core/address.ts";
import type { PortDesired } from "../../network/model/desired.ts";
import { dualNetwork, dualPod, FirewallSite } from "../lab/firewall-site.ts";
import { arp, four, udp } from "../lab/forged-frames.ts";
import { type RawFrame, sendFrames } from "../lab/frames.ts";
import {
  ask,
  cases,
  changed,
  datagram,
  dropped,
  heard,
  last,
  openStage,
  options,
  signal,
  texts,
  to4,
  toOther,
} from "./port-guard-rig.ts";

test.serial(
  "the guard is there before a port joins its bridge, goes after it has left, and a tap of the same name inherits nothing",
  async (t) => {
    await using site = await openStage();
    const elements = async (): Promise<string> =>
      site.inside("host", "nft", "list", "table", "bridge", "podnet");
    t.regex(await elements(), /"tap2"/);
    const [first] = await site.host.apply(
      changed(2, { otherMacs: ["02:00:00:00:00:44" as Mac] }),
      signal,
    );
    t.is(first?.kind, "nftables");
    // What joins, and what is taken away.
    const removed = await site.host.remove(dualPod(2), signal);
    t.deepEqual(
      removed.map(({ kind }) => kind).filter((kind) => kind !== "forget-neighbour"),
      ["detach-port", "delete-links", "nftables"],
    );
    t.notRegex(await elements(), /tap2|52540000000?2/);
    const link = "link add name tap2 type veth peer name eth0 netns".split(" ");
    await site.inside("host", "ip", ...link, site.namespaceOf("pod2"));
    const changes = await site.host.apply(dualPod(2), signal);
    const kinds = changes.map(({ kind }) => kind);
    t.true(
      kinds.indexOf("nftables") >= 0 && kinds.indexOf("nftables") < kinds.indexOf("attach-port"),
    );
    // What a crash or another program let stand goes with the next holder of the name.
    await site.inside(
      "host",
      "nft",
      "add element bridge podnet macs { tap2 . 0x020000000055 }; add element bridge podnet addresses4 { tap2 . 192.168.123.99 }",
    );
    const mended = await site.host.inspectRules(
      () => [dualPod(2)],
      () => true,
      signal,
    );
    t.is(mended.size, 1);
    t.notRegex(await elements(), /0x20000000055|192\.168\.123\.99/);
    t.deepEqual(await site.host.diff(dualPod(2), signal), []);
  },
);

test.serial(
  "a port without elements sends nothing, and one that gets them sends its own",
  async (t) => {
    await using site = await openStage();
    const { right } = cases.mac as { right: RawFrame[] };
    await site.inside("host", "nft", "flush", "set", "bridge", "podnet", "macs");
    await sendFrames(site, "pod2", "eth0", right);
    // (The kernel may have said something of its own as well.)
    t.true(((await dropped(site)).mac ?? 0) >= 1);
    await site.ensure(dualPod(2));
    t.deepEqual(await heard(site, right), texts(right));
  },
);

test.serial(
  "addresses that are added are let through before and those that are taken back are not",
  async (t) => {
    await using site = await openStage();
    const [port] = dualPod(2).ports as [PortDesired];
    const more = four(toOther, { ...datagram, saddr: "192.168.123.222" }, udp(9, 9), "one more");
    const probe = arp(to4, { ...ask, sender: "192.168.123.222" }, "ARP of one more");
    t.deepEqual(await heard(site, [more, probe, last]), [last.text]);
    const guestAddresses = [...port.guestAddresses, "192.168.123.222/24" as IpPrefix];
    await site.ensure(changed(2, { guestAddresses }));
    t.deepEqual(await heard(site, [more, probe, last]), [more.text, probe.text, last.text]);
    await site.ensure(dualPod(2));
    t.deepEqual(await heard(site, [more, probe, last]), [last.text]);
  },
);

test.serial(
  "a table that another program deleted comes back with all ports, which are never without it for long",
  async (t) => {
    await using site = await openStage();
    const { wrong, right } = cases.mac as { wrong: RawFrame[]; right: RawFrame[] };
    await site.inside("host", "nft", "delete", "table", "bridge", "podnet");
    // The network is looked at first: its pods come back with it.
    await site.ensure(dualNetwork());
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
    t.deepEqual(await site.host.diff(dualPod(2), signal), []);
  },
);

test.serial(
  "pods that an earlier podnet ran are guarded from the start on, and keep sending meanwhile",
  async (t) => {
    await using site = await openStage();
    await site.inside("host", "nft", "delete", "table", "bridge", "podnet");
    // As podnet 0.19 had it.
    const before = [
      "add table bridge podnet",
      'add set bridge podnet guarded { type devgroup; comment "podnet:table:guarded"; }',
      "add chain bridge podnet host { type filter hook input priority -200; policy accept; }",
      "add chain bridge podnet sender",
      'add rule bridge podnet host meta iifgroup @guarded jump sender comment "podnet:table:00000000:host:0"',
      'add rule bridge podnet sender meta protocol { ip, ip6 } drop comment "podnet:table:00000000:sender:0"',
    ];
    for (const command of before) await site.inside("host", "nft", command);
    const again = FirewallSite.again(site, options);
    const [change, ...others] = await again.apply(
      { kind: "running-pods", pods: [dualPod(2), dualPod(3)] },
      signal,
    );
    t.deepEqual(others, []);
    t.like(change, { kind: "nftables", base: "remake" });
    const table = await site.inside("host", "nft", "list", "table", "bridge", "podnet");
    t.notRegex(table, /set guarded|chain sender/);
    const { wrong, right } = cases.mac as { wrong: RawFrame[]; right: RawFrame[] };
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
    await again[Symbol.asyncDispose]();
  },
);
