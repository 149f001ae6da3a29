import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { standInConfig } from "../lab/standin.ts";
import { addressOf, openRig } from "./daemon-rig.ts";

test("a full pool is RESOURCE_EXHAUSTED with a hint in every dialect; what is freed rests, over a restart too", async (t) => {
  const images = mkdtempSync(join(tmpdir(), "podnet-pool-"));
  const tables = await standInConfig(images);
  await using rig = await openRig(
    `quarantine_s = 3600\n[network]\ncidr = "10.9.0.0/29"\n${tables}`,
  );
  const { host } = rig.lab;
  const create = async (name: string): Promise<string> =>
    addressOf((await rig.client.pods.create({ spec: { name } })).pod);
  t.is(await create("a"), "10.9.0.2");
  await rig.client.pods.delete({ idOrName: "a" });
  t.is(await create("b"), "10.9.0.3", "what was freed rests");
  await rig.restart("kill");
  const { networks } = await rig.client.networks.list({});
  t.like(networks[0]?.subnets[0], {
    used: "1",
    quarantined: "1",
    free: "3",
    reserved: "3",
    size: "8",
  });
  for (const [name, address] of [
    ["c", "10.9.0.4"],
    ["d", "10.9.0.5"],
    ["e", "10.9.0.6"],
    // None but the one that rests is left.
    ["f", "10.9.0.2"],
  ] as const)
    t.is(await create(name), address);
  const refusal = await t.throwsAsync(create("g"), { code: "POOL_EXHAUSTED" });
  t.like(refusal, { hint: "Delete pods, or configure a larger network" });
  const command = await rig.daemon.tryPodnet("create", "--name", "g");
  t.is(command.exitCode, 1);
  t.regex(command.stderr, /POOL_EXHAUSTED[^]*Delete pods, or configure a larger network/);
  const url = "http://podnet/podnet.v1.PodService/Create";
  const json = ["-H", "content-type: application/json", "-d", '{"spec": {"name": "g"}}'];
  const socket = ["--unix-socket", rig.daemon.socket];
  const answer = await host.run("curl", "-s", "-w", " %{http_code}", ...socket, ...json, url);
  t.regex(answer, /"resource_exhausted".* 429$/);
  t.is((await rig.client.pods.list({})).pods.length, 5, "nothing was made");
  await rig.client.pods.delete({ idOrName: "d" });
  t.is(await create("g"), "10.9.0.5");
});
