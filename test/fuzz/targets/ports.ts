import { deepStrictEqual } from "node:assert";
import { create } from "@bufbuild/protobuf";
import { PublishedPortSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { parsePortText, portText } from "../../../api/port-text.ts";
import { validatePorts } from "../../../api/validate/ports.ts";
import { isIp } from "../../../core/address.ts";
import { findName } from "../../../linux/processes/accounts.ts";
import { parseBoundSockets } from "../../../linux/sockets/listeners.ts";
import { listenersAt, parseListener } from "../../../linux/sockdiag/listener.ts";
import { parsePortRange } from "../../../linux/sockets/port-range.ts";
import { choosing, chosen, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT", "ADDRESS_INVALID", "UNSUPPORTED"] as const;

/**
 * Several, one a line: what is read is written so that it is read the same, and is usable or
 * refused.
 */
function portTexts(bytes: Uint8Array): void {
  const read = textOf(bytes)
    .split("\n")
    .flatMap((line) => valueOf(refusals, () => parsePortText(line)) ?? []);
  for (const port of read) {
    const again = parsePortText(portText(port));
    const protocol = port.protocol === "tcp" ? "" : port.protocol;
    deepStrictEqual(again, { ...port, protocol });
  }
  const specs = valueOf(refusals, () =>
    validatePorts(read.map((port) => create(PublishedPortSchema, port))),
  );
  for (const { hostPort, podPort, count } of specs ?? []) {
    if (podPort < 1 || hostPort < 0 || podPort + count > 65_536 || hostPort + count > 65_536)
      throw new Error(`Ports ${hostPort}:${podPort}, ${count} of them`);
  }
}

function procNet(bytes: Uint8Array): void {
  for (const { address, port, uid, inode } of parseBoundSockets(textOf(bytes), "tcp"))
    if (!isIp(address) || port > 65_535 || Number.isNaN(uid) || inode === "")
      throw new Error(`A socket at ${address} port ${port}`);
}

function range(bytes: Uint8Array): void {
  const read = valueOf(refusals, () => parsePortRange(textOf(bytes)));
  if (read !== undefined && !(read.first >= 1 && read.first <= read.last && read.last <= 65_535))
    throw new Error(`A range ${read.first} to ${read.last}`);
}

function name(bytes: Uint8Array): void {
  if (findName(textOf(bytes), 7) === "") throw new Error("A user without a name");
}

function listener(bytes: Uint8Array): void {
  const read = valueOf(["NETLINK_FAILED"], () => parseListener(bytes));
  if (read !== undefined && (!isIp(read.address) || read.port > 65_535))
    throw new Error(`A listener at ${read.address} port ${read.port}`);
}

/** A request, as long as an answer: struct inet_diag_msg begins alike. */
const answer = (family: 4 | 6): Uint8Array =>
  Uint8Array.from([...listenersAt(family, 80), ...Array.from({ length: 20 }, () => 1)]);

const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid";

export const ports: Target = {
  name: "ports",
  files: [
    "api/port-text.ts",
    "api/validate/ports.ts",
    "linux/sockets/listeners.ts",
    "linux/sockdiag/listener.ts",
    "linux/sockets/port-range.ts",
    "linux/processes/accounts.ts",
  ],
  only: [
    "parsePortText",
    "parseRange",
    "isAddress",
    "portText",
    "validatePorts",
    "validatePort",
    "checkPortCount",
    "refuseOverlap",
    "checkRange",
    "parseHostIp",
    "overlap",
    "sameAddress",
    "bindAddresses",
    "parseBoundSockets",
    "parseListener",
    "addressOf",
    "parsePortRange",
    "findName",
  ],
  seeds: [
    chosen(0, utf8("80\n8080:80\n0:80\n127.0.0.1:8443:443/tcp\n:81")),
    chosen(0, utf8("*:8000-8010:80-90/udp\n[::1]:8080:80\n[::]:9000:9000/sctp")),
    chosen(0, utf8("8080:80\n*:8080:80\n0.0.0.0:8080:81")),
    chosen(0, utf8("8080:80\n8080:81")),
    chosen(0, utf8("1-4096\n1")),
    chosen(0, utf8("1-5000")),
    chosen(0, utf8("80/sctp\n80/icmp")),
    chosen(0, utf8("[fe80::1]:1:1\n224.0.0.1:1:1\n0.0.0.1:1:1\n[::ffff:1.2.3.4]:1:1")),
    chosen(0, utf8("8000-8001:80\n90-80\n65535-65536\n0\n1:0\n70000:1\n1.2:1:1\n[1.2.3.4]:1:1")),
    chosen(0, utf8("web")),
    chosen(0, utf8("1\n".repeat(65))),
    chosen(
      1,
      utf8(
        `${header}\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0\n`,
      ),
    ),
    chosen(
      1,
      utf8(
        `${header}\n   1: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 0:0 00:0 0     0        0 77 2\n   2: x\n`,
      ),
    ),
    chosen(2, utf8("32768\t60999\n")),
    chosen(2, utf8("30000-30999")),
    chosen(2, utf8("9-8")),
    chosen(4, answer(4)),
    chosen(4, answer(6)),
    chosen(3, utf8("root:x:0:0\n:x:7:7\nweb:x:7:7\n")),
  ],
  words: [
    "80",
    "8080:",
    "*:",
    "[::1]:",
    "/udp",
    "/sctp",
    "-",
    "0.0.0.0:",
    "65535",
    "0100007F:",
    " 0A ",
  ],
  run: choosing([portTexts, procNet, range, name, listener]),
};
