import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { connectPodnet, type Podnet } from "../../../api/client.ts";
import { openLab } from "../../../test/lab/lab.ts";
import { startPodnetd } from "../../../test/lab/podnetd.ts";
import { standInConfig } from "../../../test/lab/standin.ts";
import { row, summarise } from "../../measure.ts";

/** Milliseconds of a change that adds a backend to a service that has so many. */
export async function measureServiceChanges(rounds: number): Promise<Record<string, number>> {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-bench-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const { host } = stack.use(await openLab("service-"));
  const config = `drift_s = 3600
limits.requests_per_s = 1000000
${await standInConfig(path.join(directory, "image"))}`;
  const daemon = await startPodnetd({ machine: host, directory, config });
  stack.defer(async () => {
    await daemon.tryPodnet("down", "--yes");
    await daemon.stop();
  });
  const client = stack.adopt(connectPodnet({ socket: daemon.socket }), (each) => each.close());
  for (const [name, count] of [
    ["few", 1],
    ["many", 999],
  ] as const)
    await client.services.create({ spec: specOf(name, count) });
  const few: number[] = [];
  const many: number[] = [];
  for (let round = 0; round < rounds; round++)
    for (const [times, name, count] of [
      [few, "few", 1],
      [many, "many", 999],
    ] as const)
      times.push(await addOne(client, name, count));
  const [one, thousand] = [summarise(few).median, summarise(many).median];
  row("a backend more, ms, median", "the second", "the 1,000th");
  row("", one.toFixed(2), thousand.toFixed(2));
  return { change_ms: one, change_growth: thousand / one };
}

/** Backends that nothing connects to. */
const specOf = (name: string, count: number) => ({
  name,
  ports: [{ port: 80 }],
  backends: Array.from({ length: count }, (_, i) => ({
    address: `100.64.${i >> 7}.${(i & 127) + 1}`,
  })),
});

async function addOne(client: Podnet, name: string, count: number): Promise<number> {
  const [backend] = specOf(name, count + 1).backends.slice(-1);
  if (backend === undefined) throw new Error("There is no backend to add");
  const begin = performance.now();
  await client.services.changeBackends({ name, set: [backend] });
  const ms = performance.now() - begin;
  await client.services.changeBackends({ name, remove: [backend.address] });
  return ms;
}
