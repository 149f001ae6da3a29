import test from "ava";
import type { Ipv4, Cidr } from "../../../../core/address.ts";
import { decodeUtf8, encodeUtf8 } from "../../../../core/utf8.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import {
  CtlDecoder,
  encodeCtlFrame,
  encodeNext,
} from "../../../../guest-init/protocol/ctl-frame.ts";
import {
  encodeInterfaceSetup,
  encodeRouteSetup,
  parseInterfaceSetup,
  parseRouteSetup,
} from "../../../../guest-init/protocol/network-messages.ts";
import {
  emptyStartPod,
  encodeStartPod,
  parseStartPod,
} from "../../../../guest-init/protocol/pod-messages.ts";
import {
  encodeExecCmd,
  encodeProcessEvent,
  parseExecCmd,
  parseProcessEvent,
} from "../../../../guest-init/protocol/process-messages.ts";
import { encodeVersion, parseNext, parseVersion } from "../../../../guest-init/protocol/replies.ts";
import { TtyDecoder, encodeTtyFrame } from "../../../../guest-init/protocol/tty-frame.ts";

// The JSON below was recorded from a real hyperd and runv driving a real hyperstart.
const recorded = {
  startPod:
    '{"hostname":"pod-one","dns":["8.8.8.8"],"shareDir":"share_dir","portmappingWhiteLists":{}}',
  setupInterface:
    '{"device":"eth0","newDeviceName":"eth0","ipAddresses":[{"ipAddress":"192.168.123.2","netMask":"255.255.255.0"}],"mtu":0}',
  setupRoute: '{"routes":[{"dest":"0.0.0.0/0","gateway":"192.168.123.1","device":"eth0"}]}',
  exec: '{"container":"hyperstart","process":{"id":"hyperstart-exec-XXXXXXXXXX","terminal":false,"stdio":1,"stderr":2,"args":["ip","route"],"workdir":"/"}}',
  finished:
    '{"container":"hyperstart","process":"hyperstart-exec-XXXXXXXXXX","event":"finished","status":0}',
} as const;

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

test("frames are the captured bytes", (t) => {
  t.is(hex(encodeCtlFrame(command.ready)), "0000000800000008");
  t.is(hex(encodeCtlFrame(command.getVersion, encodeUtf8("null"))), "000000000000000c6e756c6c");
  t.is(hex(encodeCtlFrame(command.ack, encodeVersion())), "000000090000000c00001094");
  t.is(hex(encodeNext(15792)), "0000000e0000000c00003db0");
  t.is(hex(encodeTtyFrame(1n)), "00000000000000010000000c");
  t.is(hex(encodeTtyFrame(0x0102030405060708n, encodeUtf8("hi"))), "01020304050607080000000e6869");
});

test("GETVERSION's answer is 4244", (t) => {
  const [frame] = new CtlDecoder().push(
    Uint8Array.from(Buffer.from("000000090000000c00001094", "hex")),
  );
  t.true(frame?.kind === "frame" && parseVersion(frame.payload) === 4244);
  t.throws(() => parseVersion(new Uint8Array(3)), { code: "AGENT_PROTOCOL" });
  t.throws(() => parseNext(new Uint8Array(0)), { code: "AGENT_PROTOCOL" });
});

test("STARTPOD is written as runv writes it, and read", (t) => {
  const pod = {
    ...emptyStartPod,
    hostname: "pod-one",
    dns: ["8.8.8.8"],
    shareDir: "share_dir",
  };
  t.is(decodeUtf8(encodeStartPod(pod)), recorded.startPod);
  t.deepEqual(parseStartPod(encodeUtf8(recorded.startPod)), pod);
});

test("SETUPINTERFACE is written as runv writes it, and read", (t) => {
  const setup = {
    device: "eth0",
    newName: "eth0",
    addresses: [{ address: "192.168.123.2" as Ipv4, length: 24, remove: false }],
  };
  t.is(decodeUtf8(encodeInterfaceSetup(setup)), recorded.setupInterface);
  t.deepEqual(parseInterfaceSetup(encodeUtf8(recorded.setupInterface)), setup);
});

test("SETUPROUTE is written as runv writes it, and read", (t) => {
  const route = {
    destination: "0.0.0.0/0" as Cidr,
    gateway: "192.168.123.1" as Ipv4,
    device: "eth0",
  };
  t.is(decodeUtf8(encodeRouteSetup([route])), recorded.setupRoute);
  t.deepEqual(parseRouteSetup(encodeUtf8(recorded.setupRoute)), [route]);
});

test("EXECCMD is written as runv writes it, and read", (t) => {
  const exec = {
    container: "hyperstart",
    process: {
      id: "hyperstart-exec-XXXXXXXXXX",
      additionalGroups: [],
      terminal: false,
      stdio: 1n,
      stderr: 2n,
      args: ["ip", "route"],
      envs: [],
      workdir: "/",
    },
  };
  t.is(decodeUtf8(encodeExecCmd(exec)), recorded.exec);
  t.deepEqual(parseExecCmd(encodeUtf8(recorded.exec)), exec);
});

test("PROCESSASYNCEVENT is written as hyperstart writes it, and read", (t) => {
  const event = parseProcessEvent(encodeUtf8(recorded.finished));
  t.is(event.status, 0);
  t.is(decodeUtf8(encodeProcessEvent(event)), recorded.finished);
});

test("a tty frame with no data is the end of its stream", (t) => {
  const items = new TtyDecoder().push(
    Uint8Array.from(Buffer.from("00000000000000010000000c", "hex")),
  );
  t.deepEqual(items, [{ kind: "frame", stream: 1n, data: new Uint8Array(0) }]);
});
