import test from "ava";
import type { Ip } from "../../core/address.ts";
import { Conntrack } from "../../linux/conntrack/conntrack.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import { onlyLook } from "../../network/bridge/inspect.ts";
import { AttachmentSite } from "../lab/attachment-site.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import { End, published } from "../lab/firewall-site.ts";
import { ip } from "../lab/network.ts";

const { signal } = new AbortController();
const drivers = driversUnderTest.filter(({ name }) => name !== "iptables-legacy");

for (const { name, options } of drivers)
  test.serial(`what a container publishes is reached as a pod's is, by ${name}`, async (t) => {
    await using site = await AttachmentSite.open({ rules: options });
    for (const n of [2, 3, 90]) await site.container(n);
    await ip(`link add out0 type veth peer name eth0 netns ${site.name(90)}`);
    await ip("address add 192.0.2.1/24 dev out0");
    await ip("link set out0 up");
    await site.inside(90, "address add 192.0.2.20/24 dev eth0");
    await site.inside(90, "link set eth0 up");
    await site.inside(90, "route add default via 192.0.2.1");
    const port = published(2, 4, { hostPort: 8080, podPort: 80 });
    const withPort: AttachmentFragment = site.fragment(2, { published: [port] });
    await site.attachments.ensure(withPort, signal);
    await site.attachments.ensure(site.fragment(3), signal);

    using ends = new DisposableStack();
    const endIn = (n: number | undefined): End => {
      const end = new End(n === undefined ? undefined : site.name(n));
      ends.defer(() => end.end());
      return end;
    };
    const [server, sibling, outside, host] = [endIn(2), endIn(3), endIn(90), endIn(undefined)];
    t.is(await server.order({ do: "serve", protocol: "tcp", port: 80 }), "up");
    const ask = (from: End, address: string, at: number, waitMs: number): Promise<string> =>
      from.order({ do: "ask", protocol: "tcp", address, port: at, waitMs });

    t.is(await ask(outside, "192.0.2.1", 8080, 10_000), "192.0.2.20 80");
    t.is(await ask(sibling, "192.168.123.1", 8080, 10_000), "192.168.123.1 80");
    t.is(await ask(host, "192.168.123.1", 8080, 10_000), "192.168.123.1 80");
    // By no other way from outside.
    t.not(await ask(outside, "192.168.123.2", 80, 1000), "192.0.2.20 80");
    t.deepEqual(await site.attachments.check(withPort, signal), []);

    // A sweep that knows of the container leaves it its rules; one that does not takes them.
    const known = { pods: new Set<string>(), networks: new Set(["default"]) };
    await site.host.remove({ kind: "orphans", known }, signal);
    await site.host.remove(
      { kind: "orphans", known: { ...known, attachments: new Set(["c2", "c3"]) } },
      signal,
    );
    t.is(await ask(outside, "192.0.2.1", 8080, 10_000), "192.0.2.20 80");
    await site.host.remove({ kind: "attachment", key: "c2" }, signal);
    t.not((await site.attachments.check(withPort, signal)).length, 0);
    await site.attachments.ensure(withPort, signal);
    t.is(await ask(outside, "192.0.2.1", 8080, 10_000), "192.0.2.20 80");

    const otherwise = site.fragment(2, {
      published: [{ ...port, hostPort: 8081 }],
      withdrawn: [port],
    });
    await site.attachments.ensure(otherwise, signal);
    await site.host.remove({ kind: "withdrawn-connections", of: hostPart(otherwise) }, signal);
    t.is(await ask(outside, "192.0.2.1", 8081, 10_000), "192.0.2.20 80");
    t.not(await ask(outside, "192.0.2.1", 8080, 1000), "192.0.2.20 80");

    await site.attachments.release([otherwise]);
    t.not(await ask(outside, "192.0.2.1", 8081, 1000), "192.0.2.20 80");
    t.is(await site.attachments.sweep(), 1);
    await site.host.remove(
      { kind: "orphans", known: { ...known, attachments: new Set() } },
      signal,
    );
    t.notRegex(await ip("-o link show"), /pc[23]@/);
    await ip("link del out0");
  });

for (const { name, options } of drivers)
  test.serial(
    `a repair of rules brings no container back that is released meanwhile, by ${name}`,
    async (t) => {
      await using site = await AttachmentSite.open({ rules: options });
      await site.container(2);
      const port = published(2, 4, { hostPort: 8080, podPort: 80 });
      const fragment = site.fragment(2, { published: [port] });
      await site.attachments.ensure(fragment, signal);
      await site.host.remove({ kind: "published", of: hostPart(fragment) }, signal);
      let released: Promise<void> | undefined;
      const found = await site.host.inspectRules(
        () => {
          // Its links go while the rules are read, outside of the queue in which this look is.
          released = site.attachments.release([fragment]);
          return [hostPart(fragment)];
        },
        () => true,
        signal,
      );
      t.is(found.size, 1);
      await released;
      t.is(await site.attachments.sweep(), 1);
      t.notRegex(await ip("-o link show"), /pc2/);
      const after = await site.host.inspectRules(() => [hostPart(fragment)], onlyLook, signal);
      t.is(after.size, 1, "its rules are gone, too");
    },
  );

for (const { name, options } of driversUnderTest)
  test.serial(
    `a loopback port leads to another one, and its flows end with it, by ${name}`,
    async (t) => {
      await using site = await AttachmentSite.open({ rules: options });
      await using conntrack = new Conntrack();
      await site.container(2);
      const redirect = { protocol: "udp", hostPort: 8080, toPort: 9000 } as const;
      const addresses = ["127.0.0.1", "::1"] as const;
      const fragment: AttachmentFragment = site.fragment(2, {
        published: [],
        loopback: addresses.map((hostIp) => ({ ...redirect, hostIp: hostIp as Ip })),
      });
      using ends = new DisposableStack();
      const endHere = (): End => ends.adopt(new End(undefined), (end) => end.end());
      const [server, client] = [endHere(), endHere()];
      t.is(await server.order({ do: "serve", protocol: "udp", port: 9000 }), "up");
      t.is(await server.order({ do: "serve", protocol: "udp", port: 8081 }), "up");
      const ask = (address: string, port: number): Promise<string> =>
        client.order({ do: "ask", protocol: "udp", address, port, waitMs: 3000 });
      /** To these ports, of both families. */
      const flowsTo = async (...ports: readonly number[]): Promise<number> => {
        const all = await conntrack.flows("reply", addresses as readonly string[] as readonly Ip[]);
        return all.filter(({ original }) => ports.includes(original.destinationPort ?? 0)).length;
      };
      t.is(await ask("127.0.0.1", 8080), "refused");

      await site.attachments.ensure(fragment, signal);
      for (const address of addresses) {
        t.is(await ask(address, 8080), `${address} 9000`);
        t.is(await ask(address, 8081), `${address} 8081`, "another port is left alone");
        t.is(await ask(address, 9000), `${address} 9000`);
      }
      t.is(await ask("127.0.0.2", 8080), "refused", "another address is left alone");
      t.deepEqual([await flowsTo(8080), await flowsTo(8081, 9000)], [3, 4]);

      await site.attachments.release([fragment]);
      await site.attachments.sweep();
      await site.host.remove({ kind: "connections", of: [hostPart(fragment)] }, signal);
      t.deepEqual(
        [await flowsTo(8080), await flowsTo(8081, 9000)],
        [1, 4],
        "the one from before is left",
      );
      for (const address of addresses) t.is(await ask(address, 8080), "refused");
    },
  );
