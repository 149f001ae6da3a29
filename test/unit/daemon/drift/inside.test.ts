import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { DriftWatch } from "../../../../daemon/drift/drift.ts";
import type { RunningAttachment } from "../../../../daemon/drift/parts.ts";
import { openLog } from "../../../../linux/log.ts";
import { nothingFound } from "../../../../network/bridge/inspect.ts";
import { noContainers } from "../../../lab/no-containers.ts";
import { noPods } from "../../../lab/no-pods.ts";
import { noServices } from "../../../lab/no-services.ts";

test("all containers are looked into in turn, so many at a look", async (t) => {
  const all = Array.from({ length: 150 }, (_, n) => `c${n}`);
  const looks: string[][] = [];
  let ports = 0;
  await using _watch = DriftWatch.open({
    services: noServices,
    attachments: {
      ready: {
        ...noContainers,
        running: () =>
          all.map((id) => ({ id, containerId: id, tap: id }) as unknown as RunningAttachment),
        inspect: async (id, { inside }) => {
          if (inside) looks.at(-1)?.push(id);
          else ports++;
          return nothingFound;
        },
      },
    },
    networks: {
      fragments: () => [],
      stableFragment: () => undefined,
      answerNames: async () => {},
    },
    pods: noPods,
    everyMs: 20,
    clock: { now: () => 0, monotonic: () => 0 },
    log: openLog({ component: "test", level: "silent" }),
    metrics: {} as never,
    journal: {} as never,
    records: {} as never,
    watch: () => ({ [Symbol.dispose]: () => {} }) as never,
    network: {
      observe: {
        fingerprint: async () => {
          looks.push([]);
          return "as it was";
        },
      } as never,
      inspect: async () => nothingFound,
      inspectRules: async () => new Map(),
    },
  });
  for (let i = 0; i < 1000 && looks.length < 5; i++) await delay(5);
  const [one = [], two = [], three = [], four = []] = looks;
  t.deepEqual([one.length, two.length, three.length, four.length], [64, 64, 22, 64]);
  t.deepEqual([...one, ...two, ...three], all);
  // Each port is looked at once, unasked; from then on nothing is but by its turn.
  t.is(ports, 150 - 64);
});
