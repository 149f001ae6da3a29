import test from "ava";
import fc from "fast-check";
import {
  closingHead,
  type HeadRead,
  longestHead,
  RequestHeadReader,
} from "../../../policy/request-head.ts";
import { startReasons } from "../../../policy/start-reasons.ts";
import { requestHeads } from "../../fixtures/starts.ts";

const latin1 = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "latin1"));
const read = (...pieces: readonly Uint8Array[]): HeadRead => {
  const reader = new RequestHeadReader();
  return pieces.reduce<HeadRead>((_before, piece) => reader.take(piece), { kind: "more" });
};
const head = (first: string, ...fields: readonly string[]): string =>
  [first, ...fields, "", ""].join("\r\n");
/** Where a request goes: `a.example`, `10.0.0.1`, `-` for neither; or why it does not. */
function said(result: HeadRead): string {
  if (result.kind !== "head") return result.kind === "more" ? "more" : `refused ${result.reason}`;
  const { name, address, upgrade } = result.head;
  return `${name ?? address ?? "-"}${upgrade ? " upgrade" : ""}`;
}

test("the host is read from what curl and Node send, as to a proxy and for WebSocket too", (t) => {
  t.deepEqual(
    Object.fromEntries([...requestHeads].map(([client, bytes]) => [client, said(read(bytes))])),
    {
      "curl-connect": "refused tunnel",
      "curl-get": "api.example.com",
      "curl-h2c": "refused tunnel",
      "curl-http2": "refused http2",
      "curl-post": "api.example.com",
      "curl-proxy": "api.example.com",
      "node-websocket": "127.0.0.1 upgrade",
    },
  );
});

test("a head is read alike in any pieces, and its length does not count the body", (t) => {
  const whole = requestHeads.get("curl-post") as Uint8Array;
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 20 }), (cuts) => {
      const pieces: Uint8Array[] = [];
      let at = 0;
      for (const cut of cuts) pieces.push(whole.subarray(at, (at += cut)));
      pieces.push(whole.subarray(at));
      const result = read(...pieces);
      t.is(said(result), "api.example.com");
      t.is(result.kind === "head" && result.head.length, whole.length - 3);
    }),
  );
});

const host = "Host: a.example";
const heads: readonly (readonly [what: string, text: string, expected: string])[] = [
  ["a port", head("GET / HTTP/1.1", "Host: A.Example:8080"), "a.example"],
  ["the root's dot", head("GET / HTTP/1.1", "host:a.example."), "a.example"],
  ["an address", head("GET / HTTP/1.1", "Host: 192.0.2.1:80"), "192.0.2.1"],
  ["an IPv6 address", head("GET / HTTP/1.1", "Host: [2001:DB8::1]:80"), "2001:db8::1"],
  ["HTTP/1.0 without a host", head("GET / HTTP/1.0"), "-"],
  ["HTTP/1.0 with one", head("GET / HTTP/1.0", host), "a.example"],
  ["OPTIONS of all", head("OPTIONS * HTTP/1.1", host), "a.example"],
  ["as to a proxy", head("GET http://A.example/x HTTP/1.1", "Host: a.example:80"), "a.example"],
  ["as to a proxy, without path", head("GET http://a.example HTTP/1.1", host), "a.example"],
  ["as to a proxy, HTTP/1.0", head("GET http://a.example?q HTTP/1.0"), "a.example"],
  ["tabs around a value", head("GET / HTTP/1.1", "Host:\ta.example \t"), "a.example"],
  [
    "WebSocket",
    head("GET / HTTP/1.1", host, "Connection: Upgrade", "Upgrade: WebSocket"),
    "a.example upgrade",
  ],
  ["an empty connection", "", "more"],
  ["half a method", "GE", "more"],
  ["a head without end", `GET / HTTP/1.1\r\n${host}\r\n`, "more"],
  ["TLS", "\u0016\u0003\u0001", "refused not-http"],
  ["SSH", "SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n", "refused malformed"],
  ["a method that does not end", "A".repeat(40), "refused not-http"],
  ["a head too long", `GET /${"a".repeat(longestHead)}`, "refused too-long"],
  [
    "too many fields",
    head("GET / HTTP/1.1", host, ...Array.from({ length: 200 }, () => "a: b")),
    "refused malformed",
  ],
  ["no host", head("GET / HTTP/1.1"), "refused malformed"],
  ["two hosts", head("GET / HTTP/1.1", host, host), "refused malformed"],
  ["an empty host", head("GET / HTTP/1.1", "Host:"), "refused bad-name"],
  [
    "a user before the host",
    head("GET / HTTP/1.1", "Host: a.example@b.example"),
    "refused bad-name",
  ],
  ["a list of hosts", head("GET / HTTP/1.1", "Host: a.example, b.example"), "refused bad-name"],
  ["another host in the target", head("GET http://b.example/ HTTP/1.1", host), "refused two-hosts"],
  [
    "a user in the target",
    head("GET http://a.example@b.example/ HTTP/1.1", host),
    "refused two-hosts",
  ],
  [
    "a user in target and host",
    head("GET http://x@b.example/ HTTP/1.1", "Host: x@b.example"),
    "refused bad-name",
  ],
  ["another scheme", head("GET https://a.example/ HTTP/1.1", host), "refused malformed"],
  ["no path", head("GET a.example HTTP/1.1", host), "refused malformed"],
  ["a tunnel", head("CONNECT a.example:443 HTTP/1.1", host), "refused tunnel"],
  ["HTTP/2 over an upgrade", head("GET / HTTP/1.1", host, "Upgrade: h2c"), "refused tunnel"],
  [
    "WebSocket or HTTP/2",
    head("GET / HTTP/1.1", host, "Upgrade: websocket, h2c"),
    "refused tunnel",
  ],
  ["HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "refused http2"],
  ["another method of HTTP/2", head("GET / HTTP/2.0", host), "refused malformed"],
  ["HTTP/0.9", "GET /\r\n\r\n", "refused malformed"],
  ["HTTP/1.2", head("GET / HTTP/1.2", host), "refused malformed"],
  ["two blanks", head("GET  / HTTP/1.1", host), "refused malformed"],
  ["an empty line first", `\r\n${head("GET / HTTP/1.1", host)}`, "refused not-http"],
  ["a line feed alone", `GET / HTTP/1.1\n${host}\n\n`, "refused malformed"],
  ["a line feed first", "GET / HTTP/1.1\r\n\n", "refused malformed"],
  ["a carriage return in a value", head("GET / HTTP/1.1", `${host}\rX: y`), "refused malformed"],
  ["a blank before the colon", head("GET / HTTP/1.1", "Host : a.example"), "refused malformed"],
  ["a line that continues", head("GET / HTTP/1.1", host, " b.example"), "refused malformed"],
  ["a line without colon", head("GET / HTTP/1.1", host, "nonsense"), "refused malformed"],
  ["a zero in a value", head("GET / HTTP/1.1", host, "a: b\u0000c"), "refused malformed"],
  ["a name beyond ASCII", head("GET / HTTP/1.1", "Host: b\u00fccher.example"), "refused bad-name"],
];

for (const [what, text, expected] of heads) {
  test(`where a request goes, or why it is refused: ${what}`, (t) => {
    t.is(said(read(latin1(text))), expected);
    t.is(said(read(...[...latin1(text)].map((byte) => Uint8Array.of(byte)))), expected);
  });
}

test("a head that ends its connection has one word on that, and all else as before", (t) => {
  const before = head(
    "GET /a HTTP/1.1",
    "Host: a.example",
    "Connection: keep-alive, x",
    "KEEP-ALIVE: timeout=5",
    "Proxy-Connection: keep-alive",
    "X: \u00e9",
  );
  t.is(
    Buffer.from(closingHead(latin1(before))).toString("latin1"),
    head("GET /a HTTP/1.1", "Host: a.example", "X: \u00e9", "Connection: close"),
  );
});

test("every refusal has words for people", (t) => {
  for (const [, , expected] of heads) {
    const [, reason] = /^refused (.*)$/.exec(expected) ?? [];
    if (reason !== undefined)
      t.regex(startReasons[reason as keyof typeof startReasons], /^[a-zA-Z]/);
  }
});
