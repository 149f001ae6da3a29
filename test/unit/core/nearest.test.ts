import test from "ava";
import { nearest } from "../../../core/nearest.ts";

const names = ["address", "mac", "mtu", "gateway", "name", "network", "vlan"];

test("a name that was written wrongly is found, and another word is not taken for one", (t) => {
  for (const [text, meant] of [
    ["adress", "address"],
    ["addresss", "address"],
    ["adrress", "address"],
    ["adrss", undefined],
    ["Address", "address"],
    ["gatewya", "gateway"],
    ["nmae", "name"],
    ["mtv", "mtu"],
    ["netwrk", "network"],
    ["ntwrk", undefined],
    ["colour", undefined],
    ["", undefined],
    ["x", undefined],
  ] as const)
    t.is(nearest(text, names), meant, text);
  t.is(nearest("name", []), undefined);
});
