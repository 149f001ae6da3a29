import test from "ava";
import { PodnetError } from "../../../core/errors.ts";
import { interfaceFrom, routeFrom } from "../../../cli/flags/interface-flags.ts";

test("an interface is one word of the command line, whatever it leads to", (t) => {
  t.like(interfaceFrom("--interface", ""), { network: "", bridge: "", loopback: false });
  t.like(interfaceFrom("--interface", "blue"), { network: "blue" });
  t.like(interfaceFrom("--interface", "blue,address=10.0.0.2+fd00::2,metric=5,name=lan"), {
    network: "blue",
    address: "",
    addresses: ["10.0.0.2", "fd00::2"],
    metric: 5,
    guestName: "lan",
  });
  t.like(interfaceFrom("--interface", "bridge=br0,address=none,vlan=7,isolated=on,learning=off"), {
    network: "",
    bridge: "br0",
    address: "none",
    port: { vlan: 7, isolated: true, learning: false },
  });
  t.like(interfaceFrom("--interface", "tap=vpn0,kept,address=10.0.0.2/24"), {
    tap: "vpn0",
    tapKept: true,
    address: "10.0.0.2/24",
  });
  t.like(interfaceFrom("--interface", "loopback,address=10.9.0.1/32"), {
    network: "",
    loopback: true,
    address: "10.9.0.1/32",
  });
  t.like(interfaceFrom("--interface", "cni"), { network: "", cni: { list: "", netns: "" } });
  t.like(interfaceFrom("--interface", "cni=net,name=lan"), {
    guestName: "lan",
    cni: { list: "net" },
  });
  t.like(interfaceFrom("--interface", "netns=/run/netns/x,link=net0"), {
    network: "",
    cni: { list: "", netns: "/run/netns/x", link: "net0" },
  });
  t.is(interfaceFrom("--interface", "blue").port, undefined, "what is not said is left to podnetd");
});

test("what is not understood of an interface is said", (t) => {
  for (const [text, message] of [
    ["bridge=br0,colour=blue", /colour/],
    ["vlan=many", /whole number/],
    ["metric=99999999999", /too large/],
    ["isolated=perhaps", /neither on nor off/],
    // A key that does not exist is no network's name, wherever it stands.
    ["adress=10.0.0.2", /"adress=10\.0\.0\.2" that means nothing/],
    ["blue,adress=10.0.0.2", /"adress=10\.0\.0\.2" that means nothing/],
    ["=", /"=" that means nothing/],
  ] as const)
    t.throws(() => interfaceFrom("--interface", text), { message });
  for (const [text, hint] of [
    ["adress=10.0.0.2", /^Did you mean address\? Parts are network=/],
    ["blue,gatway=10.0.0.1", /^Did you mean gateway\?/],
    ["colour=blue", /^Parts are network=/],
  ] as const)
    t.regex(
      t.throws(() => interfaceFrom("--interface", text), { instanceOf: PodnetError }).hint ?? "",
      hint,
    );
  t.throws(() => routeFrom("--route", "va=10.0.0.1"), { message: /"va=10\.0\.0\.1" that means/ });
  t.is(interfaceFrom("--interface", "mtu=0").mtu, 0, "a zero reaches podnetd, which refuses it");
});

test("a route has a metric where one is written", (t) => {
  t.deepEqual(routeFrom("--route", "10.0.0.0/8,via=10.0.0.1,metric=7"), {
    destination: "10.0.0.0/8",
    gateway: "10.0.0.1",
    interface: "",
    metric: 7,
  });
  t.is(routeFrom("--route", "default,via=10.0.0.1").metric, 0);
  t.is(routeFrom("--route", "default,via=10.0.0.1,metric=4294967295").metric, 4_294_967_295);
});
