import test from "ava";
import * as fc from "fast-check";
import { encodeUtf8 } from "../../../../core/utf8.ts";
import { command, commandName } from "../../../../guest-init/protocol/codes.ts";
import {
  encodeAwakening,
  encodeGuestConfig,
  encodeHelloReply,
  encodeHelloRequest,
  encodeObservedGuest,
  parseAwakening,
  parseGuestConfig,
  parseHelloReply,
  parseHelloRequest,
  parseObservedGuest,
} from "../../../../guest-init/protocol/extension-messages.ts";
import { asksAttributes, withoutAttributes } from "../../../../guest-init/protocol/attributes.ts";
import {
  encodePlaceFile,
  encodeReadFile,
  encodeWriteFile,
  parsePlaceFile,
  parseReadFile,
  parseWriteFile,
} from "../../../../guest-init/protocol/file-messages.ts";
import {
  encodeMountShare,
  parseMountShare,
} from "../../../../guest-init/protocol/share-messages.ts";
import { decodeJson } from "../../../../guest-init/protocol/fields.ts";
import { isDeeperThan } from "../../../../guest-init/protocol/json-depth.ts";
import {
  encodeInterfaceSetup,
  parseDestination,
  parseInterfaceSetup,
  parseMaskLength,
  parseRouteSetup,
} from "../../../../guest-init/protocol/network-messages.ts";
import { encodeStartPod, parseStartPod } from "../../../../guest-init/protocol/pod-messages.ts";
import {
  encodeExecCmd,
  encodeSignalProcess,
  encodeWinSize,
  parseExecCmd,
  parseProcessEvent,
  parseSignalProcess,
  parseWinSize,
} from "../../../../guest-init/protocol/process-messages.ts";
import {
  encodeErrorText,
  encodeFailure,
  parseFailure,
  refusal,
} from "../../../../guest-init/protocol/replies.ts";

const json = (value: unknown): Uint8Array => encodeUtf8(JSON.stringify(value));
const protocol = { code: "AGENT_PROTOCOL" };

test("codes have names", (t) => {
  t.is(commandName(20), "setupInterface");
  t.is(commandName(command.configure), "configure");
  t.is(commandName(99), "code 99");
});

test("netmasks in every form hyperstart takes", (t) => {
  for (const [text, length] of [
    ["255.255.255.0", 24],
    ["24", 24],
    ["0x18", 24],
    ["0X18", 24],
    ["0", 0],
    ["0.0.0.0", 0],
    ["255.255.255.255", 32],
    ["32", 32],
    ["255.255.254.0", 23],
  ] as const)
    t.is(parseMaskLength(text), length);
  for (const text of ["255.0.255.0", "33", "0x21", "-1", "", "24 ", "0x", "255.255.255", "1e1"])
    t.throws(() => parseMaskLength(text), protocol, text);
});

test("destinations in every spelling", (t) => {
  for (const text of ["0.0.0.0/0", "default", "any", "all", "0.0.0.0/0.0.0.0"])
    t.is(parseDestination(text), "0.0.0.0/0" as never);
  t.is(parseDestination("172.20.0.0/255.255.0.0"), "172.20.0.0/16" as never);
  t.is(parseDestination("172.21.0.5"), "172.21.0.5/32" as never);
  t.is(parseDestination("fd00::/64"), "fd00::/64" as never);
  t.is(parseDestination("fd00::5"), "fd00::5/128" as never);
  t.is(parseDestination("default", "dest", "fd00::1" as never), "::/0" as never);
  for (const text of ["", "Default", "fd00::1/64", "fd00::/129", "10.0.0.1/8", "10.0.0.0/", "/8"])
    t.throws(() => parseDestination(text), protocol, text);
});

test("SETUPINTERFACE: flat, list, both, removal", (t) => {
  const address = (address: string, length: number, remove = false) => ({
    address: address as never,
    length,
    remove,
  });
  t.deepEqual(
    parseInterfaceSetup(json({ device: "eth0", ipAddress: "10.0.0.2", netMask: "0x10" })),
    { device: "eth0", addresses: [address("10.0.0.2", 16)] },
  );
  t.deepEqual(
    parseInterfaceSetup(
      json({
        device: "eth0",
        newDeviceName: "",
        ipAddress: "10.0.0.2",
        netMask: "8",
        ipAddresses: [{ ipAddress: "-10.9.0.2", netMask: "255.255.255.0" }],
        mtu: 1300,
      }),
    ),
    {
      device: "eth0",
      addresses: [address("10.0.0.2", 8), address("10.9.0.2", 24, true)],
      mtu: 1300,
    },
  );
  t.deepEqual(parseInterfaceSetup(json({ device: "eth1", ipAddresses: null, mtu: 0 })), {
    device: "eth1",
    addresses: [],
  });
});

test("SETUPINTERFACE: what hyperstart refuses is refused", (t) => {
  for (const value of [
    {},
    { device: "" },
    { device: 1 },
    { device: "eth0", nope: 1 },
    { device: "eth0", ipAddress: "10.0.0.2" },
    { device: "eth0", ipAddress: "10.0.0.256", netMask: "24" },
    { device: "eth0", ipAddresses: [{ ipAddress: "10.0.0.2" }] },
    { device: "eth0", ipAddresses: [{ ipAddress: "fd00::2", netMask: "255.255.255.0" }] },
    { device: "eth0", ipAddresses: [{ ipAddress: "fd00::2", netMask: "129" }] },
    { device: "eth0", ipAddresses: [{ ipAddress: "10.0.0.2", netMask: "255.0.255.0" }] },
    { device: "eth0", ipAddresses: [{ ipAddress: "10.0.0.2", netMask: "8", x: 1 }] },
    { device: "eth0", ipAddresses: {} },
    { device: "eth0", mtu: -1 },
    { device: "eth0", mtu: 1.5 },
    { device: "eth0", mtu: "1500" },
    [],
    null,
    "eth0",
  ])
    t.throws(() => parseInterfaceSetup(json(value)), protocol, JSON.stringify(value));
  for (const text of ["", "{", '{"device":"eth0"', "\u0000"])
    t.throws(() => parseInterfaceSetup(encodeUtf8(text)), protocol);
});

test("an unknown key is named in the error", (t) => {
  const error = t.throws(
    () =>
      parseInterfaceSetup(
        json({ device: "e", ipAddresses: [{ ipAddress: "10.0.0.1", netMask: "8", "x\n": 1 }] }),
      ),
    protocol,
  );
  t.like(error, { field: "ipAddresses[0].x\\u000a" });
  t.throws(() => parseInterfaceSetup(encodeUtf8('{"device":"e","__proto__":{}}')), protocol);
});

test("SETUPROUTE: nothing to do is valid, an empty gateway is not", (t) => {
  t.deepEqual(parseRouteSetup(json({})), []);
  t.deepEqual(parseRouteSetup(json({ routes: [] })), []);
  t.deepEqual(parseRouteSetup(json({ routes: null })), []);
  t.deepEqual(parseRouteSetup(json({ routes: [{ dest: "172.21.0.5", device: "eth0" }] })), [
    { destination: "172.21.0.5/32" as never, device: "eth0" },
  ]);
  for (const routes of [
    [{}],
    [{ dest: "any", gateway: "" }],
    [{ dest: "0.0.0.0/0", gateway: "fd00::1" }],
    [{ dest: "fd00::/64", gateway: "10.0.0.1" }],
    [{ dest: "any", via: "10.0.0.1" }],
  ])
    t.throws(() => parseRouteSetup(json({ routes })), protocol, JSON.stringify(routes));
});

test("STARTPOD: everything at once, and unknown keys", (t) => {
  const pod = {
    hostname: "h",
    dns: ["1.1.1.1"],
    dnsSearch: ["a.b"],
    dnsOptions: ["ndots:5"],
    shareDir: "share_dir",
    portmappingWhiteLists: { internalNetworks: ["10.0.0.0/8"], externalNetworks: ["any"] },
    interfaces: [{ device: "eth0", newName: "net0", addresses: [], mtu: 1400 }],
    routes: [{ destination: "0.0.0.0/0" as never, device: "net0" }],
    containers: [{ id: "c" }],
  };
  t.deepEqual(parseStartPod(encodeStartPod(pod)), pod);
  t.throws(() => parseStartPod(json({ hostnam: "x" })), protocol);
  t.throws(() => parseStartPod(json({ portmappingWhiteLists: { internalNetwork: [] } })), protocol);
  t.throws(() => parseStartPod(json(null)), protocol);
});

test("EXECCMD: streams, terminal, and what may be missing", (t) => {
  const base = { stdio: 1, stderr: 2, args: ["true"] };
  const exec = (process: unknown): Uint8Array => json({ container: "hyperstart", process });
  t.is(parseExecCmd(exec(base)).process.id, "");
  t.true(parseExecCmd(exec({ ...base, terminal: "yes" })).process.terminal);
  t.is(parseExecCmd(exec({ stdio: 1, terminal: true, args: ["sh"] })).process.stderr, 0n);
  for (const process of [
    { ...base, stdio: 0 },
    { stdio: 1, args: ["true"] },
    { ...base, args: [] },
    { ...base, args: "true" },
    { ...base, stdio: 2 ** 60 },
    { ...base, rlimits: [] },
    { ...base, envs: [{ value: "1" }] },
  ])
    t.throws(() => parseExecCmd(exec(process)), protocol, JSON.stringify(process));
  const full = {
    container: "hyperstart",
    process: {
      id: "p",
      user: "u",
      group: "g",
      additionalGroups: ["1"],
      terminal: true,
      stdio: 7n,
      stderr: 0n,
      args: ["sh", "-c", "echo é"],
      envs: [{ env: "A", value: "" }],
      workdir: "/w",
    },
  };
  t.deepEqual(parseExecCmd(encodeExecCmd(full)), full);
});

test("WINSIZE by process and, of old, by stream", (t) => {
  for (const size of [
    { target: { kind: "process", container: "c", process: "p" }, row: 1, column: 2 },
    { target: { kind: "stream", stream: 5n }, row: 24, column: 80 },
  ] as const)
    t.deepEqual(parseWinSize(encodeWinSize(size)), size);
  t.throws(() => parseWinSize(json({ row: 1, column: 2 })), protocol);
});

test("signals and events", (t) => {
  const signal = { container: "c", process: "p", signal: 15 };
  t.deepEqual(parseSignalProcess(encodeSignalProcess(signal)), signal);
  t.throws(() => parseSignalProcess(json({ ...signal, signal: 65 })), protocol);
  const event = { container: "c", process: "p", event: "finished", status: 0 };
  t.throws(() => parseProcessEvent(json({ ...event, event: "begun" })), protocol);
  t.throws(() => parseProcessEvent(json({ ...event, status: -1 })), protocol);
});

test("files: the bytes begin after the first brace", (t) => {
  const file = { container: "c", file: "/etc/hosts", data: encodeUtf8("}{ raw \u0000") };
  t.deepEqual(parseWriteFile(encodeWriteFile(file)), file);
  t.deepEqual(parseReadFile(encodeReadFile(file)), { container: "c", file: "/etc/hosts" });
  t.throws(() => parseWriteFile(encodeUtf8('{"container":"c"')), protocol);
  t.throws(() => encodeWriteFile({ ...file, file: "/a}b" }), protocol);
});

test("a file to place is preceded by the length of what is said about it", (t) => {
  const data = encodeUtf8("}{ raw \u0000");
  const file = { path: "/a}b", mode: 0o600, uid: 1, gid: 0xfffffffe, data };
  const whole = encodePlaceFile(file);
  t.deepEqual(parsePlaceFile(whole), file);
  for (const cut of [0, 3, 4, whole.length - data.length - 1])
    t.throws(() => parsePlaceFile(whole.subarray(0, cut)), protocol);
  for (const wrong of [{ mode: 0o10000 }, { uid: -1 }, { gid: 0xffffffff }])
    t.throws(() => parsePlaceFile(encodePlaceFile({ ...file, ...wrong })), protocol);
});

test("a share has a tag, and an absolute place", (t) => {
  const share = { tag: "share0", path: "/srv/a b" };
  t.deepEqual(parseMountShare(encodeMountShare(share)), share);
  for (const wrong of [
    { tag: "" },
    { tag: "a,b" },
    { path: "srv" },
    { path: "/" },
    { path: "/a/.." },
  ])
    t.throws(() => parseMountShare(encodeMountShare({ ...share, ...wrong })), protocol);
});

test("HELLO is open to later keys, CONFIGURE is not", (t) => {
  t.deepEqual(parseHelloRequest(encodeHelloRequest({ versions: [1], nonce: "n" })), {
    versions: [1],
    nonce: "n",
  });
  t.deepEqual(parseHelloRequest(json({ versions: [1, 2], nonce: "n", more: {} })).versions, [1, 2]);
  const reply = { version: 1, agent: "0.1.0", epoch: "e", nonce: "n" };
  t.deepEqual(parseHelloReply(encodeHelloReply(reply)), reply);
  t.deepEqual(parseHelloReply(json({ ...reply, more: 1 })), reply);
  const able = { ...reply, features: ["awake"] };
  t.deepEqual(parseHelloReply(encodeHelloReply(able)), able);
  t.throws(() => parseHelloReply(json({ ...reply, features: "awake" })), protocol);
  t.throws(() => parseHelloReply(json({ ...reply, agent: "two words" })), protocol);
  t.throws(() => parseGuestConfig(json({ requestId: "r", waitMs: 0, more: 1 })), protocol);
});

test("AWAKE is strict, and never without randomness", (t) => {
  const awakening = { entropy: "00ff", clockMs: 1_700_000_000_000 };
  t.deepEqual(parseAwakening(encodeAwakening(awakening)), awakening);
  for (const wrong of [
    { clockMs: 1 },
    { entropy: "", clockMs: 1 },
    { entropy: "0", clockMs: 1 },
    { entropy: "0G", clockMs: 1 },
    { entropy: "00" },
    { ...awakening, more: 1 },
  ])
    t.throws(() => parseAwakening(json(wrong)), protocol);
});

const config = {
  requestId: "r1",
  hostname: "pod-one",
  dns: { servers: ["1.1.1.1", "fd00::53"], search: ["a.b"], options: ["ndots:2"] },
  interfaces: [
    { mac: "52:54:00:00:00:01", name: "eth0", mtu: 1400, addresses: ["10.0.0.2/24", "fd00::2/64"] },
  ],
  routes: [
    { destination: "0.0.0.0/0", gateway: "10.0.0.1", interface: "eth0" },
    { destination: "::/0", gateway: "fe80::1", interface: "eth0", metric: 100 },
  ],
  neighbours: [{ interface: "eth0", address: "10.0.0.1", mac: "52:54:00:00:00:ff" }],
  waitMs: 5000,
  clockMs: 1_700_000_000_000,
  entropy: "00ff",
};

test("CONFIGURE survives, v4 and v6", (t) => {
  t.deepEqual(parseGuestConfig(encodeGuestConfig(config as never)), config as never);
});

test("what an earlier agent does not know is left out of CONFIGURE for it, and nothing else", (t) => {
  const [one] = config.interfaces;
  const [route, ...others] = config.routes;
  const more = { source: "10.0.0.2", mtu: 1300, advmss: 1200 };
  const rich = {
    ...config,
    interfaces: [{ ...one, noArp: true }],
    routes: [{ ...route, ...more }, ...others],
  };
  t.deepEqual(parseGuestConfig(encodeGuestConfig(rich as never)), rich as never);
  t.true(asksAttributes(rich as never));
  t.deepEqual(withoutAttributes(rich as never), config as never);
  t.false(asksAttributes(config as never));
});

test("CONFIGURE: what is wrong is refused and named", (t) => {
  const [one] = config.interfaces;
  for (const [change, field] of [
    [{ requestId: "a b" }, "requestId"],
    [{ hostname: "-x" }, "hostname"],
    [{ dns: { servers: ["x"] } }, "dns.servers[0]"],
    [{ dns: { search: ["a b"] } }, "dns.search[0]"],
    [{ dns: { options: ["a\nnameserver 6.6.6.6"] } }, "dns.options[0]"],
    [{ interfaces: [{ ...one, mac: "01:00:00:00:00:00" }] }, "interfaces[0].mac"],
    [{ interfaces: [{ ...one, name: "a/b" }] }, "interfaces[0].name"],
    [{ interfaces: [{ ...one, mtu: 67 }] }, "interfaces[0].mtu"],
    [{ interfaces: [{ ...one, addresses: ["10.0.0.2"] }] }, "interfaces[0].addresses[0]"],
    [{ interfaces: [one, { ...one, name: "eth1" }] }, "interfaces[1].mac"],
    [{ interfaces: [one, { ...one, mac: "52:54:00:00:00:02" }] }, "interfaces[1].name"],
    [{ routes: [{ destination: "10.0.0.1/8", interface: "eth0" }] }, "routes[0].destination"],
    [
      { routes: [{ destination: "::/0", gateway: "10.0.0.1", interface: "e" }] },
      "routes[0].gateway",
    ],
    [{ interfaces: [{ ...one, noArp: false }] }, "interfaces[0].noArp"],
    [{ routes: [{ destination: "::/0", source: "10.0.0.1", interface: "e" }] }, "routes[0].source"],
    [{ routes: [{ destination: "::/0", mtu: 0, interface: "e" }] }, "routes[0].mtu"],
    [{ waitMs: 60_001 }, "waitMs"],
    [{ entropy: "0" }, "entropy"],
    [{ entropy: "zz" }, "entropy"],
  ] as const)
    t.like(
      t.throws(() => parseGuestConfig(json({ ...config, ...change })), protocol),
      { field },
    );
});

test("observations survive; nonsense from a guest is refused", (t) => {
  const observed = {
    requestId: "r1",
    hostname: "pod",
    dns: { servers: [], search: [], options: [] },
    interfaces: [
      { name: "lo", mac: "00:00:00:00:00:00", index: 1, mtu: 65536, up: true, addresses: [] },
    ],
    routes: [],
    clockMs: 1,
    agentRssKib: 1600,
  };
  t.deepEqual(parseObservedGuest(encodeObservedGuest(observed as never)), observed as never);
  for (const change of [
    { hostname: 1 },
    { hostname: "x".repeat(256) },
    { clockMs: null },
    { x: 1 },
  ])
    t.throws(() => parseObservedGuest(json({ ...observed, ...change })), protocol);
});

test("reasons are bounded, escaped and never throw", (t) => {
  t.deepEqual(parseFailure(encodeErrorText("no such container")), { message: "no such container" });
  t.deepEqual(parseFailure(encodeFailure({ message: "m", field: "f", errno: "EEXIST" })), {
    message: "m",
    field: "f",
    errno: "EEXIST",
  });
  t.is(refusal("X", new Uint8Array(0)).message, "The guest refused X");
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 6000 }), (payload) => {
      const { message } = parseFailure(payload);
      t.true(message.length <= 2600);
      t.false(/[\u0000-\u001f\u007f-\u009f]/.test(message));
    }),
  );
});

test("parsers throw nothing but AGENT_PROTOCOL, whatever JSON comes", (t) => {
  const parsers = [
    parseInterfaceSetup,
    parseRouteSetup,
    parseStartPod,
    parseExecCmd,
    parseWinSize,
    parseSignalProcess,
    parseProcessEvent,
    parseWriteFile,
    parsePlaceFile,
    parseMountShare,
    parseGuestConfig,
    parseObservedGuest,
    parseHelloRequest,
    parseHelloReply,
  ];
  fc.assert(
    fc.property(fc.json(), fc.nat(parsers.length - 1), (text, i) => {
      try {
        parsers[i]?.(encodeUtf8(text));
      } catch (error) {
        t.like(error, protocol);
      }
    }),
    { numRuns: 2000 },
  );
});

test("SETUPINTERFACE is always written with runv's four keys", (t) => {
  t.deepEqual(
    JSON.parse(Buffer.from(encodeInterfaceSetup({ device: "eth0", addresses: [] })).toString()),
    {
      device: "eth0",
      newDeviceName: "",
      ipAddresses: [],
      mtu: 0,
    },
  );
});

test("a NUL in a text and JSON nested too deeply are refused", (t) => {
  const bytes = (text: string): Uint8Array => encodeUtf8(text);
  for (const device of ["eth0\\u0000x", "\\u0000", "eth0\\u0000"])
    t.throws(() => parseInterfaceSetup(bytes(`{"device":"${device}"}`)), {
      code: "AGENT_PROTOCOL",
      message: '"device" has a NUL character in it',
    });
  const nested = (levels: number, inner: string): string =>
    `${"[".repeat(levels)}${inner}${"]".repeat(levels)}`;
  const deep = { code: "AGENT_PROTOCOL", message: /nested deeper than 32 levels/ };
  for (const text of [nested(33, ""), "[".repeat(100_000), '{"a":'.repeat(33)])
    t.throws(() => decodeJson(bytes(text)), deep);
  // Brackets in a text count for nothing.
  for (const inner of ["", JSON.stringify("[".repeat(100)), JSON.stringify('\\"[['.repeat(20))])
    t.notThrows(() => decodeJson(bytes(nested(32, inner))));
  fc.assert(
    fc.property(fc.json({ maxDepth: 8 }), fc.nat({ max: 20 }), (text, limit) => {
      const depth = (value: unknown): number =>
        typeof value === "object" && value !== null
          ? 1 + Math.max(0, ...Object.values(value).map(depth))
          : 0;
      t.is(isDeeperThan(text, limit), depth(JSON.parse(text)) > limit);
    }),
  );
});
