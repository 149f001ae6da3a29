/**
 * Published ports whose host ports the runtime holds, as podman does: reached at loopback, through
 * a port of podnetd's.
 */
import test, { type ExecutionContext } from "ava";
import type { Attachment } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { End } from "../lab/firewall-site.ts";
import type { Machine } from "../lab/lab.ts";
import { until } from "../lab/until.ts";
import { type CniRig, openCniRig } from "./cni-rig.ts";

const portMappings = (["tcp", "udp"] as const).map((protocol) => ({
  hostPort: 8081,
  containerPort: 80,
  protocol,
}));
const config = { network: "both", portsHeldByRuntime: true, runtimeConfig: { portMappings } };
const seen = { "127.0.0.1": "10.88.0.1 80", "::1": "fd00:88::1 80" } as const;

/**
 * Does with the port what podman does (`bindPorts`): binds it, listens, and never accepts. For IPv6
 * as well.
 */
const holder = `
import socket
held = []
for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(family, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((address, 8081))
        if kind == socket.SOCK_STREAM: s.listen()
        held.append(s)
print("held", flush=True)
input()`;

async function holdPort(t: ExecutionContext, host: Machine): Promise<void> {
  const held = host.spawn(["python3", "-c", holder], { stdio: ["pipe", "pipe", "inherit"] });
  t.teardown(() => held.kill("SIGKILL"));
  await new Promise((resolve) => held.stdout?.once("data", resolve));
}

const tableOf = (firewall: string): string =>
  firewall === "nftables" ? "podnet" : "podnet_published";

const rulesIn = (host: Machine, firewall: string): Promise<string> =>
  host.run("nft", "list", "table", "inet", tableOf(firewall));

/** Removes what redirects TCP at 127.0.0.1, as another program may. */
async function removeRedirect(host: Machine, firewall: string): Promise<void> {
  const element = "{ tcp . 127.0.0.1 . 8081 }";
  await host.run("nft", "delete", "element", "inet", tableOf(firewall), "loopback4", element);
}

/** The sockets of podnetd's that are bound to loopback: protocol, address and port. */
async function forwardersOf(host: Machine, pid: number): Promise<string[]> {
  const lines = (await host.run("ss", "-Hlntup")).split("\n");
  const own = lines.filter((line) => line.includes(`pid=${pid},`));
  return own.flatMap((line) => {
    const [, protocol, at] = /^(tcp|udp) .* (127\.0\.0\.1:\d+|\[::1\]:\d+) /.exec(line) ?? [];
    return at === undefined ? [] : `${protocol} ${at}`;
  });
}

for (const firewall of ["iptables", "nftables"])
  test.serial(
    `a port that the runtime holds is reached at 127.0.0.1 and ::1, by TCP and UDP, until DEL; by ${firewall}`,
    async (t) => {
      t.timeout(120_000);
      await using cni: CniRig = await openCniRig(
        `quarantine_s = 0\ndrift_s = 1\nfirewall = "${firewall}"\n`,
      );
      const { rig } = cni;
      const { host, lan } = rig.lab;
      const subnets = [{ cidr: "10.88.0.0/24" }, { cidr: "fd00:88::/64" }];
      await rig.client.networks.create({ spec: { name: "both", subnets } });
      const before = await rulesIn(host, firewall);
      await holdPort(t, host);
      const container = await cni.container();
      using ends = new DisposableStack();
      const endIn = ({ name }: Machine): End => ends.adopt(new End(name), (end) => end.end());
      const [inside, here, outside] = [endIn(container), endIn(host), endIn(lan)];
      const ask = (
        from: End,
        address: string,
        { port = 8081, protocol = "tcp" }: { port?: number; protocol?: "tcp" | "udp" } = {},
      ): Promise<string> => from.order({ do: "ask", protocol, address, port, waitMs: 2000 });
      const reached = async (when: string): Promise<void> => {
        for (const [address, answer] of Object.entries(seen))
          for (const protocol of ["tcp", "udp"] as const)
            t.is(await ask(here, address, { protocol }), answer, `${when}: ${protocol} ${address}`);
      };
      // Control: who holds the port answers nothing.
      t.is(await ask(here, "127.0.0.1"), "silence");

      await cni.done({ container, config });
      for (const protocol of ["tcp", "udp"] as const)
        t.is(await inside.order({ do: "serve", protocol, port: 80 }), "up");
      await reached("after ADD");
      t.is(await ask(outside, "192.0.2.1"), "192.0.2.20 80");
      const [shown]: Attachment[] = (await rig.client.cni.list({})).attachments;
      t.is(shown?.ports.length, 4, "podnetd's own ports are not published");

      // podnetd's own ports are at loopback alone, and no other loopback port leads anywhere else.
      const forwarders = await forwardersOf(host, rig.daemon.process.pid as number);
      t.is(forwarders.length, 4, forwarders.join());
      for (const each of forwarders) {
        const port = Number(each.slice(each.lastIndexOf(":") + 1));
        t.not(await ask(outside, "192.0.2.1", { port }), "10.88.0.1 80");
      }
      t.is(await here.order({ do: "serve", protocol: "tcp", port: 8082 }), "up");
      t.is(await ask(here, "127.0.0.1", { port: 8082 }), "127.0.0.1 8082");
      t.is((await host.run("sysctl", "-n", "net.ipv4.conf.all.route_localnet")).trim(), "0");

      await removeRedirect(host, firewall);
      await until("drift repair", async () => (await ask(here, "127.0.0.1")) === seen["127.0.0.1"]);
      for (const how of ["stop", "kill"] as const) {
        await rig.restart(how);
        await reached(`after ${how}`);
      }

      // Another program has taken podnetd's port while podnetd was stopped: that is reported, and
      // podnetd has it again afterwards.
      await rig.daemon.stop();
      const thief = endIn(host);
      const taken = Number(/(?<=tcp 127\.0\.0\.1:)\d+/.exec(forwarders.join("\n"))?.[0]);
      t.is(await thief.order({ do: "serve", protocol: "tcp", port: taken }), "up");
      await rig.restart("stop");
      const [troubled] = (await rig.client.cni.list({})).attachments;
      t.regex(troubled?.trouble ?? "", new RegExp(`${taken}/tcp at 127.0.0.1 is taken by `));
      t.is(await ask(here, "127.0.0.1", { protocol: "udp" }), seen["127.0.0.1"]);
      thief.end();
      await until(
        "podnetd to have its port",
        async () => (await ask(here, "127.0.0.1")) === seen["127.0.0.1"],
      );

      await cni.done({ command: "DEL", container, config });
      t.is(await ask(here, "127.0.0.1"), "silence");
      await cni.converged();
      t.is(await rulesIn(host, firewall), before);
      t.deepEqual(await forwardersOf(host, rig.daemon.process.pid as number), []);
      await rig.client.networks.delete({ name: "both" });
    },
  );
