import test from "ava";
import { systemClock } from "../../../core/clock.ts";
import type { Cidr } from "../../../core/address.ts";
import { refuseOverlap } from "../../../daemon/overlays/lease/refuse-overlap.ts";
import type { OverlayConfig as OverlayNetworks } from "../../../overlay/flannel/config.ts";
import { parseConfig } from "../../../overlay/flannel/config.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import { LeaseDriver } from "../../../overlay/drive-lease.ts";
import type { HostLeaseState } from "../../../overlay/host-lease.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import type { LeaseStore, StoreUpdate } from "../../../overlay/store.ts";
import { PodnetError } from "../../../core/errors.ts";
import { troubleText } from "../../../daemon/overlays/trouble-text.ts";
import { until } from "../../lab/until.ts";

const textOf = (network: string): string =>
  JSON.stringify({ Network: network, Backend: { Type: "host-gw" } });
const lan = { subnet: "192.0.2.0/24" as Cidr, with: 'address 192.0.2.1/24 of "eth0"' };

test("a network that the host uses is refused with what it overlaps; one in force is not judged anew", async (t) => {
  const config = parseConfig(textOf("192.0.2.0/24"));
  const asked: (readonly Cidr[])[] = [];
  const overlaps = async (networks: readonly Cidr[]) => {
    asked.push(networks);
    return [lan, lan];
  };
  const refusal = await refuseOverlap(config, [], overlaps);
  t.is(refusal?.code, "OVERLAY_CONFLICT");
  t.is(
    refusal?.message,
    'The overlay\'s network 192.0.2.0/24 overlaps with address 192.0.2.1/24 of "eth0" and 1 more of this host',
  );
  t.is(await refuseOverlap(config, ["192.0.2.0/24" as Cidr], overlaps), undefined);
  t.deepEqual(asked, [["192.0.2.0/24"]]);
  t.is(await refuseOverlap(config, [], async () => []), undefined);
});

test("a configuration that is refused is reported, and the last good one stays in force", async (t) => {
  const prefix = parsePrefix("/net");
  const update = Promise.withResolvers<void>();
  async function* follow(key: string): AsyncGenerator<StoreUpdate> {
    const at = (value: string, modRevision: bigint) => ({
      key,
      value,
      grant: 0n,
      createRevision: 1n,
      modRevision,
    });
    const isConfig = key.endsWith("/config");
    const keys = isConfig ? [at(textOf("10.77.0.0/16"), 1n)] : [];
    yield { kind: "snapshot", cluster: 1n, revision: 1n, keys };
    await update.promise;
    if (isConfig)
      yield {
        kind: "changes",
        revision: 2n,
        events: [{ kind: "put", at: at(textOf("192.0.2.0/24"), 2n) }],
      };
  }
  let state: HostLeaseState | undefined;
  const never = (_what: unknown, more: AbortSignal | number, limit?: AbortSignal) =>
    new Promise((_resolve, reject) => {
      const signal = limit ?? (more as AbortSignal);
      signal.addEventListener("abort", () => reject(new Error("never")));
    });
  const store = { follow, read: never, grant: never } as unknown as LeaseStore;
  await using driver = new LeaseDriver({
    store,
    settings: { prefix, ttlSeconds: 60, marginSeconds: 10, misfit: "drain" },
    host: {
      owner: 7 as OwnerId,
      publicIp: undefined,
      publicIp6: undefined,
      attributes: { type: "alloc" },
    },
    previous: undefined,
    clock: systemClock,
    random: Math.random,
    onState: (now) => {
      state = now;
    },
    onLeases: () => {},
    onUnread: () => {},
    refuse: async ({ v4 }: OverlayNetworks) =>
      v4?.network === "192.0.2.0/24"
        ? new PodnetError("OVERLAY_CONFLICT", "It overlaps")
        : undefined,
    drain: async () => {},
  });
  driver.start();
  await until("the first network", () => state?.config?.v4?.network === "10.77.0.0/16");
  t.false(state?.troubles.some(({ kind }) => kind === "config-invalid"));
  update.resolve();
  await until("word of the refusal", () =>
    state?.troubles.some((trouble) => troubleText(trouble) === "It overlaps"),
  );
  t.is(state?.config?.v4?.network, "10.77.0.0/16" as Cidr);
});
