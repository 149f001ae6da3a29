import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Podnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { WatchPodsResponse } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { standInConfig } from "../lab/standin.ts";
import { endingWith, openRig, type Rig, sharing, type Starting } from "./daemon-rig.ts";

/**
 * A rig whose machines are stand-ins. `config` comes before their tables: top-level keys, and
 * tables of its own.
 */
export async function openStandInRig(
  config = "quarantine_s = 0\n",
  starting?: Starting,
): Promise<Rig> {
  const directory = mkdtempSync(join(tmpdir(), "podnet-images-"));
  const rig = await openRig(`${config}${await standInConfig(directory)}`, starting);
  return endingWith(rig, async () => {
    await rig[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });
}

const shared = sharing(openStandInRig);

/** The shared rig whose machines are stand-ins, without a quarantine. */
export const joinStandInRig = (): Promise<Rig> => shared("quarantine_s = 0\n");

/** Creates a pod whose stand-in behaves as the words say (test/standin-vm/README.md). */
export async function create(client: Podnet, name: string, words = ""): Promise<Pod> {
  const { pod } = await client.pods.create({ spec: { name, boot: { cmdline: words } } });
  if (pod === undefined) throw new Error("There is no pod in the answer");
  return pod;
}

/** How long an event is waited for, milliseconds. */
const eventLimitMs = 100_000;

/**
 * The first event that is what is looked for, from the beginning or after a cursor. Throws with the
 * last events when it does not come.
 */
export async function eventually(
  client: Podnet,
  wanted: (event: WatchPodsResponse) => boolean,
  after?: bigint,
): Promise<WatchPodsResponse> {
  const ended = new AbortController();
  const limit = setTimeout(() => ended.abort(), eventLimitMs);
  const others: string[] = [];
  try {
    const options = after === undefined ? {} : { after };
    for await (const event of client.pods.watch(options, { signal: ended.signal })) {
      if (wanted(event)) return event;
      others.push(`${event.cursor} ${event.pod?.name ?? ""} ${event.text}`);
    }
  } catch (thrown) {
    if (!ended.signal.aborted) throw thrown;
  } finally {
    clearTimeout(limit);
    ended.abort();
  }
  const seen = `after ${after ?? "the first one"}, there were:\n${others.slice(-30).join("\n")}`;
  throw new Error(`The event did not come; ${seen}`);
}

/**
 * Waits until an event of the pod says so; answers when that was, by the host's clock, milliseconds
 * since 1970.
 */
export async function whenReported(client: Podnet, name: string, what: RegExp): Promise<number> {
  const { time } = await eventually(
    client,
    ({ pod, text, error }) => pod?.name === name && what.test(`${text} ${error?.code ?? ""}`),
    0n,
  );
  return Number(time?.seconds ?? 0n) * 1000 + (time?.nanos ?? 0) / 1e6;
}
