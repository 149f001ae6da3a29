import test from "ava";
import fc from "fast-check";
import { parseIp, parseMac } from "../../../../core/address.ts";
import {
  gratuitousArp,
  neighbourAdvertisement,
} from "../../../../guest-init/network/announcement.ts";
import { guestRoutes } from "../../../../guest-init/network/observed.ts";
import { parseOptions } from "../../../../guest-init/agent/options.ts";
import { environment } from "../../../../guest-init/agent/processes.ts";
import { layerDisk, rootDisk } from "../../../../guest-init/agent/mounts/root-disk.ts";
import { hasShares, isMounted } from "../../../../guest-init/agent/mounts/shares.ts";
import { failurePayload } from "../../../../guest-init/agent/reply.ts";
import { parseResolver, renderResolver } from "../../../../guest-init/protocol/resolver.ts";
import { SysError } from "../../../../guest-init/agent/sys.ts";
import { identify } from "../../../../guest-init/agent/users.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { Link } from "../../../../linux/rtnetlink/links/link.ts";
import type { Route } from "../../../../linux/rtnetlink/route.ts";

const names = { control: "sh.hyper.channel.0", tty: "sh.hyper.channel.1" };

test("PID 1 ignores the kernel's words; a plain process does not", (t) => {
  const words = ["quiet-ish", "foo=bar", "--channel", "/dev/vport1p1"];
  t.deepEqual(parseOptions(words, true, names), {
    kind: "run",
    isInit: true,
    channel: "/dev/vport1p1",
    tty: names.tty,
  });
  t.like(parseOptions(words, false, names), { kind: "usage" });
  t.like(parseOptions(["--channel"], false, names), { kind: "usage" });
  t.like(parseOptions(["--version"], false, names), { kind: "version" });
  t.deepEqual(parseOptions([], false, names), {
    kind: "run",
    isInit: false,
    channel: names.control,
    tty: names.tty,
  });
});

test("the kernel's command line names the root disk, or none", (t) => {
  t.is(rootDisk("console=ttyS0 podnet.root=vda quiet\n"), "vda");
  t.is(rootDisk("podnet.root=vdb"), "vdb");
  for (const line of [
    "",
    "root=/dev/vda",
    "not-podnet.root=vda",
    "podnet.root=",
    "podnet.root=../x",
  ])
    t.is(rootDisk(line), undefined, line);
  t.is(layerDisk("podnet.root=vda podnet.layer=vdc"), "vdc");
  t.is(layerDisk("podnet.root=vda podnet.layer=../x"), undefined);
});

const accounts = {
  passwd: () => "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:100:Web:/srv/web:/bin/false\n",
  group: () => "root:x:0:\nusers:x:100:web\ntty:x:5:\nwheel:x:10:root,web\nodd:x:-1:web\n",
};
const noGroups = { additionalGroups: [] };

test("users and groups by name and by number", (t) => {
  t.deepEqual(identify(noGroups, accounts), { uid: 0, gid: 0, groups: [0], home: "/root" });
  const web = { uid: 1000, gid: 100, groups: [100, 10], home: "/srv/web" };
  t.deepEqual(identify({ ...noGroups, user: "web" }, accounts), web);
  t.deepEqual(identify({ ...noGroups, user: "1000" }, accounts), web);
  // With a group, that group alone; a number that is in no file is taken as it is.
  const asTty = identify({ ...noGroups, user: "web", group: "tty" }, accounts);
  t.deepEqual(asTty, { ...web, gid: 5, groups: [5] });
  t.deepEqual(identify({ ...noGroups, user: "01000" }, accounts), web);
  t.deepEqual(identify({ ...noGroups, user: "7", group: "8" }, accounts), {
    uid: 7,
    gid: 8,
    groups: [8],
    home: "/",
  });
  const digits = { ...accounts, passwd: () => "a:x:7:1::/a:\n7:x:8:2::/b:\n" };
  t.is(identify({ ...noGroups, user: "7" }, digits).uid, 8);
  t.deepEqual(identify({ user: "7", group: "tty", additionalGroups: ["users", "9"] }, accounts), {
    uid: 7,
    gid: 5,
    groups: [5, 100, 9],
    home: "/",
  });
  for (const spec of [{ user: "none" }, { group: "none" }, { user: "-1" }, { user: "0x1" }])
    t.throws(() => identify({ ...noGroups, ...spec }, accounts), { code: "INVALID_ARGUMENT" });
});

test("a process's environment: defaults, then what was asked for", (t) => {
  const spec = {
    id: "",
    additionalGroups: [],
    terminal: true,
    stdio: 1n,
    stderr: 0n,
    args: ["sh"],
    envs: [
      { env: "A", value: "b=c" },
      { env: "HOME", value: "/x" },
    ],
  };
  t.deepEqual(environment(spec, "/root"), [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/x",
    "TERM=xterm",
    "A=b=c",
  ]);
});

test("resolv.conf survives being written and read", (t) => {
  const dns = { servers: ["10.0.0.1", "fd00::1"], search: ["a.b", "c"], options: ["ndots:2"] };
  t.is(
    renderResolver(dns),
    "nameserver 10.0.0.1\nnameserver fd00::1\nsearch a.b c\noptions ndots:2\n",
  );
  t.deepEqual(parseResolver(renderResolver(dns)) as unknown, dns);
  t.deepEqual(
    parseResolver(
      "# x\nnameserver fe80::1%eth0\nnameserver x\ndomain d\n\tsearch\te f \n",
    ) as unknown,
    {
      servers: [],
      search: ["e", "f"],
      options: [],
    },
  );
  t.deepEqual(parseResolver("") as unknown, { servers: [], search: [], options: [] });
});

const mac = parseMac("52:54:00:12:34:56");

test("a gratuitous ARP request, byte by byte", (t) => {
  t.is(
    Buffer.from(gratuitousArp(mac, parseIp("10.1.2.3"))).toString("hex"),
    "ffffffffffff" +
      "525400123456" +
      "0806" +
      "0001080006040001" +
      "525400123456" +
      "0a010203" +
      "000000000000" +
      "0a010203",
  );
});

test("a neighbour advertisement's checksum holds for every address", (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
        const text = Array.from({ length: 8 }, (_, i) =>
          (((bytes[2 * i] as number) << 8) | (bytes[2 * i + 1] as number)).toString(16),
        ).join(":");
        const frame = Buffer.from(neighbourAdvertisement(mac, parseIp(text)));
        const body = frame.subarray(54);
        // Pseudo-header (RFC 8200 8.1) and message add up to all ones.
        const pseudo = Buffer.concat([
          frame.subarray(22, 54),
          Buffer.from([0, 0, 0, body.length, 0, 0, 0, 58]),
        ]);
        let sum = 0;
        for (const part of [pseudo, body])
          for (let i = 0; i < part.length; i += 2) sum += part.readUInt16BE(i);
        while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
        return sum === 0xffff && frame.length === 86;
      }),
    ),
  );
});

test("observed routes: those out of a link, metrics only when they were chosen", (t) => {
  const link = (index: number, name: string, loopback = false) =>
    ({ index, name, loopback }) as Link;
  const route = (more: object) => ({ type: "unicast", metric: 0, link: 2, ...more }) as Route;
  const found = guestRoutes(
    [
      route({ destination: "0.0.0.0/0", gateway: "10.0.0.1" }),
      route({ destination: "10.0.0.0/24", metric: 5 }),
      route({ destination: "::/0", gateway: "fd00::1", metric: 1024 }),
      route({ destination: "fe80::/64", metric: 256 }),
      route({ destination: "ff00::/8", metric: 256 }),
      route({ destination: "127.0.0.0/8", link: 1 }),
      route({ destination: "10.9.0.0/16", link: 3 }),
      route({ destination: "10.8.0.0/16", type: "blackhole" }),
    ],
    [link(1, "lo", true), link(2, "eth0"), link(3, "bad name")],
  );
  t.deepEqual(found as unknown, [
    { destination: "0.0.0.0/0", gateway: "10.0.0.1", interface: "eth0" },
    { destination: "10.0.0.0/24", interface: "eth0", metric: 5 },
    { destination: "::/0", gateway: "fd00::1", interface: "eth0" },
  ]);
});

test("ERROR carries text for hyperstart's commands and JSON for ours", (t) => {
  const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();
  t.is(text(failurePayload(20, new SysError("open", 2))), "open: ENOENT\0");
  t.deepEqual(JSON.parse(text(failurePayload(101, new SysError("open", 2)))), {
    message: "open: ENOENT",
    errno: "ENOENT",
  });
  const refused = new PodnetError("NETLINK_FAILED", "No", {
    field: "x",
    details: { errno: "EPERM" },
  });
  t.deepEqual(JSON.parse(text(failurePayload(101, refused))), {
    message: "No",
    field: "x",
    errno: "EPERM",
  });
  t.deepEqual(JSON.parse(text(failurePayload(100, "thrown text"))), { message: "thrown text" });
});

test("a share that is mounted is found by its tag and its place, whatever is in the place's name", (t) => {
  const mounts = [
    "tmpfs /srv/a tmpfs rw 0 0",
    "share0 /srv/a\\040b virtiofs ro,nosuid,nodev,relatime 0 0",
    "share1 /srv/c virtiofs ro 0 0",
  ].join("\n");
  t.true(isMounted(mounts, "share0", "/srv/a b"));
  t.true(isMounted(mounts, "share1", "/srv/c"));
  for (const [tag, path] of [
    ["share0", "/srv/a"],
    ["share0", "/srv/c"],
    ["are1", "/srv/c"],
    ["share1", "/srv"],
  ] as const)
    t.false(isMounted(mounts, tag, path), `${tag} ${path}`);
  t.true(hasShares("console=ttyS0 podnet.shares"));
  t.true(hasShares("podnet.shares quiet"));
  t.false(hasShares("podnet.shares2 xpodnet.shares"));
});
