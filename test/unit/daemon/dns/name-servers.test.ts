import test from "ava";
import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { dnsSnapshot } from "../../../../daemon/pods/plan/gather-networks.ts";
import type { KnownNetworks } from "../../../../daemon/networks/known-networks.ts";
import { definition } from "../../../lab/network-definition.ts";

const both = definition("both", ["10.30.0.1/24", "fd00:30::1/64"], { dnsSearch: ["both.example"] });
const plain = definition("plain", ["10.31.0.1/24"], { dns: ["192.0.2.53" as never] });
const mute = definition("mute", ["10.32.0.1/24"], { dnsSearch: ["mute.example"] });

/** `both` answers names. */
const networks: KnownNetworks = {
  list: () => [both, plain, mute],
  refuseChanging: () => {},
  domainOf: (name) => (name === both.name ? "podnet" : undefined),
};

const on = (...requests: readonly (readonly [network: string, ...addresses: string[]])[]) => {
  const interfaces = requests.map(([network, ...addresses]) => ({
    network,
    ...(addresses.length === 0 ? {} : { addresses }),
  })) as unknown as InterfaceSpec[];
  return dnsSnapshot({ interfaces }, networks);
};

test("a guest is notified of the gateways that answer names, of the families it has", (t) => {
  t.like(on(["both"]), {
    servers: ["10.30.0.1", "fd00:30::1"],
    search: ["podnet", "both.example"],
  });
  t.deepEqual(on(["both", "10.30.0.9"]).servers, ["10.30.0.1" as never]);
  t.deepEqual(on(["both", "fd00:30::9/64"]).servers, ["fd00:30::1" as never]);
});

test("of several networks each has its own, in the order of interfaces", (t) => {
  t.like(on(["plain"], ["both", "10.30.0.9"]), {
    servers: ["192.0.2.53", "10.30.0.1"],
    search: ["podnet", "both.example"],
  });
  t.like(on(["plain"]), { servers: ["192.0.2.53"], search: [], domains: [] });
});

test("without either there are the host's servers, with what domains the network has", (t) => {
  const { servers, search, domains } = on(["mute"]);
  t.deepEqual([search, domains], [["mute.example"], []]);
  t.false(servers.includes("10.32.0.1" as never));
});
