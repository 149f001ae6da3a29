import test from "ava";
import { hostAccessTexts, parseHostAccess } from "../../../core/host-access.ts";

const again = (texts: readonly string[]): string[] => hostAccessTexts(parseHostAccess(texts));

test("what a network opens of the host is read, in one form, and written as it is read", (t) => {
  t.is(parseHostAccess(["all"]), "all");
  t.deepEqual(again(["all"]), ["all"]);
  t.deepEqual(again([]), []);
  t.deepEqual(again(["udp/53", "tcp/1-65535"]), ["tcp/1-65535", "udp/53"]);
  t.deepEqual(again(["tcp/80", "tcp/22", "tcp/80", "tcp/81-90", "tcp/85-88", "tcp/92"]), [
    "tcp/22",
    "tcp/80-90",
    "tcp/92",
  ]);
  t.deepEqual(again(["tcp/10-20", "udp/15-25"]), ["tcp/10-20", "udp/15-25"]);
});

for (const text of [
  "",
  "tcp",
  "tcp/",
  "tcp/0",
  "tcp/65536",
  "tcp/20-10",
  "tcp/1-",
  "tcp/1-2-3",
  "sctp/5",
  "tcp/ssh",
  "TCP/22",
  "tcp/22 ",
  "tcp/-1",
  "tcp/1e3",
  "22",
  "all",
])
  test(`"${text}" among others names no ports of the host`, (t) => {
    t.throws(() => parseHostAccess(["tcp/22", text]), {
      code: "INVALID_ARGUMENT",
      message: /names no ports/,
    });
  });
