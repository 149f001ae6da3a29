import { readdirSync } from "node:fs";
import test from "ava";
import { labAddresses, openLab } from "../lab/lab.ts";

test("the lab's machines reach each other as a host, its LAN and the internet would", async (t) => {
  await using lab = await openLab("labtest-");
  t.true(await lab.host.reaches(labAddresses.internet));
  t.true(await lab.lan.reaches(labAddresses.hostOnLan));
  // Nothing forwards yet, and the internet has no way back to the LAN.
  t.false(await lab.lan.reaches(labAddresses.internet));
});

test("a closed lab leaves no namespace", async (t) => {
  {
    await using lab = await openLab("gone-");
    t.true(readdirSync("/run/netns").includes(lab.host.name));
  }
  t.deepEqual(
    readdirSync("/run/netns").filter((name) => name.startsWith("gone-")),
    [],
  );
});
