import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { type Overlay, OverlayPhase } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { snippets } from "../docs/snippets.ts";
import { openOverlaySite, overlayPrefix, type OverlaySite } from "../lab/overlay-site.ts";
import type { Podnetd } from "../lab/podnetd.ts";
import { until } from "../lab/until.ts";

// An etcd with users: what podnet's has to be permitted, and what is said where it is not.

let site: OverlaySite;
let folder: string;

test.serial.before(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "etcd-rights-"));
  writeFileSync(path.join(folder, "password"), "secret\n", { mode: 0o600 });
  site = await openOverlaySite();
  await site.configure({ Network: "10.77.0.0/16", Backend: { Type: "host-gw" } });
  await site.etcd.requirePassword("root's own");
});
test.serial.after.always(async () => {
  await site?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const start = (user: string): Promise<Podnetd> =>
  site.start(
    `etcd.username = "${user}"`,
    `etcd.password_file = "${path.join(folder, "password")}"`,
  );

interface Said {
  readonly overlay: Overlay | undefined;
  /** Of all overlays together. */
  readonly troubles: readonly string[];
}

const said = async (client: Podnet): Promise<Said> => {
  const { overlays, troubles } = await client.overlays.list({});
  return { overlay: overlays[0], troubles };
};

test.serial("with the rights that docs name podnetd has all of its part", async (t) => {
  t.timeout(180_000);
  const blocks = snippets().filter(({ where }) => where === "rights");
  t.is(blocks.length, 1);
  for (const line of blocks.flatMap(({ commands }) => commands)) {
    const [program, ...words] = line.split(" ");
    t.is(program, "etcdctl");
    await site.etcd.etcdctl(...words);
  }
  await using daemon = await start("podnet");
  using client = connectPodnet({ socket: daemon.socket });
  await until(
    "a lease",
    async () => (await said(client)).overlay?.phase === OverlayPhase.HELD,
    60_000,
    () => daemon.log(),
  );
  const records = `/podnet${overlayPrefix}/hosts/`;
  await until("this host's record", async () =>
    (await site.etcd.etcdctl("get", "--prefix", records, "--keys-only")).includes(records),
  );
  const { overlay, troubles } = await said(client);
  t.deepEqual([overlay?.troubles, troubles], [[], []]);
  await client.overlays.leave({});
});

test.serial(
  "each right that is missing is named with its keys, and what was missing works once it is there",
  async (t) => {
    t.timeout(240_000);
    const { etcdctl } = site.etcd;
    await etcdctl("user", "add", "few:secret");
    await etcdctl("role", "add", "few");
    await etcdctl("user", "grant-role", "few", "few");
    const permit = (right: string, keys: string): Promise<string> =>
      etcdctl("role", "grant-permission", "--prefix=true", "few", right, keys);
    await using daemon = await start("few");
    using client = connectPodnet({ socket: daemon.socket });
    await client.overlays.join({});
    const reported = (
      what: string,
      of: (all: Said) => readonly string[] | undefined,
    ): Promise<unknown> =>
      until(
        what,
        async () => of(await said(client))?.some((line) => line.includes(what)),
        60_000,
        async () => JSON.stringify((await said(client)).overlay?.troubles) + daemon.log(),
      );
    const ofOverlay = ({ overlay }: Said) => overlay?.troubles;
    const ofAll = ({ troubles }: Said) => troubles;
    const may = (right: string, keys: string): string =>
      `User "few" may not ${right} ${keys} in etcd`;
    const below = (keys: string): string => `keys that begin with "${keys}"`;
    const [config, subnets] = [`${overlayPrefix}/config`, `${overlayPrefix}/subnets`];
    const own = `/podnet${overlayPrefix}/`;

    await reported(may("read", `key "${config}"`), ofOverlay);
    await reported(`grant-permission ROLE read --prefix=true ${config}`, ofOverlay);
    t.is((await said(client)).overlay?.phase, OverlayPhase.WAITING);
    await reported(may("read", below(own)), ofAll);
    const { checks } = await client.node.health({});
    t.true(checks.some(({ name, message }) => name === "overlays" && message.includes(own)));

    await permit("read", config);
    await reported(may("read", below(subnets)), ofOverlay);
    await until(
      "the configuration",
      async () => !ofOverlay(await said(client))?.some((line) => line.includes(config)),
    );

    await permit("read", subnets);
    await reported(may("read and write", below(`${subnets}/`)), ofOverlay);
    await reported(`grant-permission ROLE readwrite --prefix=true ${subnets}/`, ofOverlay);
    t.is((await said(client)).overlay?.phase, OverlayPhase.ACQUIRING);

    await permit("readwrite", subnets);
    await until(
      "a lease",
      async () => (await said(client)).overlay?.phase === OverlayPhase.HELD,
      60_000,
      () => daemon.log(),
    );
    t.deepEqual((await said(client)).overlay?.troubles, []);

    await permit("read", own);
    await reported(may("write", below(`${own}hosts/`)), ofAll);
    await permit("readwrite", own);
    await until("nothing in the way", async () => (await said(client)).troubles.length === 0);
    // Each was logged, and not at each try.
    const lines = daemon.log().split("\n");
    const logged = lines.filter((line) => line.includes("may not"));
    t.true(logged.length >= 3 && logged.length < 20, logged.join("\n"));
  },
);
