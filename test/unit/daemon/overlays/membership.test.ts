import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { type NetworkName, parseNetworkName } from "../../../../core/names.ts";
import { Membership } from "../../../../daemon/overlays/lease/membership.ts";
import { configKey, networkPrefix, parsePrefix } from "../../../../overlay/flannel/prefix.ts";
import type { LeasePhase } from "../../../../overlay/lease-status.ts";
import type { StoreUpdate } from "../../../../overlay/store.ts";
import { until } from "../../../lab/until.ts";

const prefix = parsePrefix("/coreos.com/network");
const blue = parseNetworkName("blue");
const red = parseNetworkName("red");
const green = parseNetworkName("green");

/** A host's part of an overlay whose database cannot be written so many times. */
class FakeHost {
  phase: LeasePhase;
  unwritable: number;
  resigned = false;
  asked = 0;

  constructor(phase: LeasePhase, unwritable = 0) {
    this.phase = phase;
    this.unwritable = unwritable;
  }

  join(): void {
    this.#write();
    this.phase = "held";
  }

  async end(): Promise<void> {
    this.#write();
    this.phase = "left";
  }

  #write(): void {
    this.asked += 1;
    if (this.unwritable-- > 0)
      throw new PodnetError("STATE_UNWRITABLE", "database is locked", { hint: "Wait" });
  }
}

/** A host in these overlays; `refused` is how often another one cannot be added. */
function openMembership(hosts: Map<string, FakeHost>, refused = 0) {
  const reported: string[] = [];
  let left = refused;
  const membership = new Membership({
    hosts,
    add: async (name) => {
      if (left-- > 0) throw new PodnetError("NAME_IN_USE", "the name is taken", { hint: "Wait" });
      hosts.set(name, new FakeHost("held"));
    },
    drop: async (name) => void hosts.delete(name),
    log: {
      error: (fields: object, text?: string) => {
        reported.push(`${"overlay" in fields ? String(fields.overlay) : ""}: ${text}`);
      },
    },
    backoff: { firstMs: 50, longestMs: 50 },
  });
  return { membership, reported, hosts };
}

const phases = (hosts: ReadonlyMap<string, FakeHost>): string =>
  [...hosts].map(([name, { phase }]) => `${name} ${phase}`).join();

test("a store that cannot be written once is reported, tried again, and holds up no other overlay", async (t) => {
  const { membership, reported, hosts } = openMembership(
    new Map([["blue", new FakeHost("left", 2)]]),
  );
  await using _ = membership;
  await membership.become([blue, red]);
  t.is(phases(hosts), "blue left,red held");
  const trouble = "overlay blue: This host cannot take part in the overlay: database is locked";
  t.deepEqual(membership.troubles, [trouble]);
  await until("blue's return", () => membership.troubles.length === 0);
  t.is(phases(hosts), "blue held,red held");
  await membership.become([blue, green]);
  await until("red's end", () => !hosts.has("red"));
  t.is(phases(hosts), "blue held,green held");
  t.is(hosts.get("blue")?.asked, 3, "what works is left at that");
  t.deepEqual(
    reported,
    ["blue: Failed to change this host's part in an overlay; retrying"],
    "once, not at each try",
  );
});

test("a host that an administrator had leave an overlay stays out of it, whatever others come and go", async (t) => {
  const blues = new FakeHost("left");
  const { membership, hosts } = openMembership(new Map([["blue", blues]]));
  await using _ = membership;
  blues.resigned = true;
  await membership.become([blue, red]);
  await membership.become([blue]);
  await until("red's end", () => !hosts.has("red"));
  t.is(phases(hosts), "blue left");
  t.is(blues.asked, 0);
  // Once an administrator has it join again, it is as the others.
  blues.resigned = false;
  await membership.become([blue]);
  t.is(phases(hosts), "blue held");
});

test("a leave that fails is tried again until the overlay has gone", async (t) => {
  const { membership, reported, hosts } = openMembership(
    new Map([["blue", new FakeHost("held", 2)]]),
  );
  await using _ = membership;
  await membership.become([]);
  await until("the trouble", () => membership.troubles.length === 1);
  t.deepEqual(membership.troubles, [
    "overlay blue: The overlay cannot be left: database is locked",
  ]);
  await until("its end", () => hosts.size === 0);
  t.deepEqual(membership.troubles, []);
  t.true(reported.length > 0);
});

test("an overlay that comes again is not left any more, though its leave has failed", async (t) => {
  const { membership, hosts } = openMembership(new Map([["blue", new FakeHost("held", 1)]]));
  await using _ = membership;
  await membership.become([]);
  await membership.become([blue]);
  t.deepEqual(membership.troubles, []);
  await new Promise((resolve) => setTimeout(resolve, 200));
  t.is(phases(hosts), "blue held");
  t.is(hosts.get("blue")?.asked, 1);
});

test("an overlay that cannot be added is reported and tried again, unless it is no more", async (t) => {
  const { membership, reported, hosts } = openMembership(new Map(), 2);
  await using _ = membership;
  await membership.become([red]);
  t.deepEqual(membership.troubles, [
    "overlay red: This host cannot take part in the overlay: the name is taken",
  ]);
  await until("red", () => hosts.has("red"));
  t.deepEqual(membership.troubles, []);
  t.is(reported.length, 1);

  const hopeless = openMembership(new Map(), Number.POSITIVE_INFINITY);
  await using other = hopeless.membership;
  await other.become([red]);
  t.is(other.troubles.length, 1);
  await other.become([]);
  t.deepEqual(other.troubles, []);
});

test("what fails of overlays that are found ends neither podnetd nor the following", async (t) => {
  const { membership, hosts } = openMembership(new Map([["blue", new FakeHost("left", 1)]]));
  const key = (name: NetworkName) => ({
    key: configKey(networkPrefix(prefix, name)),
    value: "",
    grant: 0n,
    createRevision: 1n,
    modRevision: 1n,
  });
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  async function* follow(_prefix: string, signal: AbortSignal): AsyncGenerator<StoreUpdate> {
    yield { kind: "snapshot", cluster: 1n, revision: 1n, keys: [key(blue)] };
    await gates[0].promise;
    yield { kind: "changes", revision: 2n, events: [{ kind: "put", at: key(red) }] };
    await gates[1].promise;
    if (!signal.aborted) await new Promise((ended) => signal.addEventListener("abort", ended));
  }
  membership.follow({ store: { follow }, prefix, always: [green], onUnread: () => {} });
  await until("green", () => hosts.has("green"));
  gates[0].resolve();
  await until("all", () => phases(hosts) === "blue held,green held,red held");
  gates[1].resolve();
  await t.notThrowsAsync(async () => membership[Symbol.asyncDispose]());
});
