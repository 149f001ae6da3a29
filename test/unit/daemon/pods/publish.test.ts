import { createServer } from "node:net";
import test from "ava";
import { watchEffects } from "../../../../core/effect.ts";
import type { PortSpec } from "../../../../api/pod-spec.ts";
import { notPublished, removedPorts } from "../../../../daemon/pods/lifecycle/publish.ts";
import { configuration, openNode } from "../fixtures/node.ts";

/** A port on loopback that is free now. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { readonly port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const tcp = (hostPort: number): PortSpec => ({ protocol: "tcp", hostPort, podPort: 80, count: 1 });

test("a port that another pod is given while it is being held is refused, and let go of", async (t) => {
  using node = openNode(configuration({}));
  const [one, other] = [await node.create(), await node.create()];
  const { published } = node.host;
  const port = await freePort();
  const hold = published.hold.bind(published);
  published.hold = async (...asked) => {
    await hold(...asked);
    node.db.run(
      "INSERT INTO ports (protocol, host_port, host_ip, count, pod_id) VALUES ('tcp', ?, '127.0.0.1', 1, ?)",
      port,
      other.id,
    );
  };
  const refused = { code: "PORT_IN_USE", message: new RegExp(`published by pod "${other.name}"`) };
  await t.throwsAsync(node.pods.changes.publish(one.id, [tcp(port)]), refused);
  t.is(published.size, 0);
  t.is(node.pods.find(one.id).plan.published, undefined);
  // By itself it is had.
  published.hold = hold;
  node.db.run("DELETE FROM ports");
  await node.pods.changes.publish(one.id, [tcp(port)]);
  t.true(published.size > 0);
  await node.pods.close(0);
  published[Symbol.dispose]();
});

test("a publish is one commit, and an unpublish", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const events = (): number => node.stored("SELECT * FROM events").length;
  const port = await freePort();
  const before = events();
  await node.pods.changes.publish(id, [tcp(port)]);
  t.is(events(), before + 1);
  t.is(node.stored("SELECT * FROM pods WHERE plan LIKE '%\"hostPort\"%'").length, 1);
  await node.pods.changes.unpublish(id, [tcp(port)]);
  t.is(events(), before + 2);
  t.is(node.host.published.size, 0);
  await node.pods.close(0);
});

test.serial(
  "a publish's one flush begins with its commit, before anything else is done",
  async (t) => {
    using node = openNode(configuration({}));
    const { id } = await node.create();
    const port = await freePort();
    const seen: string[] = [];
    watchEffects({
      at: ({ boundary, what }, side) => void seen.push(`${boundary}:${what}:${side}`),
      async atAsync({ boundary, what }, side) {
        seen.push(`${boundary}:${what}:${side}`);
      },
    });
    try {
      await node.pods.changes.publish(id, [tcp(port)]);
    } finally {
      watchEffects(undefined);
    }
    const committed = seen.indexOf("commit:replan:after");
    t.is(seen[committed + 1], "commit:flush:before");
    t.is(seen.filter((each) => each === "commit:flush:before").length, 1);
    t.true(seen.includes("file:keep plan:after"));
    // Of 127.0.0.1 and ::1. Nothing was committed while the port was held: it is planned once.
    t.is(seen.filter((each) => each === "socket:ask for an address of the host:before").length, 2);
    await node.pods.close(0);
    node.host.published[Symbol.dispose]();
  },
);

test.serial("a publish whose flush fails is taken back, and works again", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const port = await freePort();
  let flushes = 0;
  watchEffects({
    at() {},
    async atAsync({ what }, side) {
      if (what === "flush" && side === "before" && ++flushes === 1) throw new Error("EIO");
    },
  });
  try {
    await t.throwsAsync(node.pods.changes.publish(id, [tcp(port)]), { code: "STATE_UNWRITABLE" });
  } finally {
    watchEffects(undefined);
  }
  t.is(flushes, 1);
  t.deepEqual(node.pods.find(id).plan.published, []);
  t.deepEqual(node.stored("SELECT * FROM ports"), []);
  t.is(node.host.published.size, 0);
  await node.pods.changes.publish(id, [tcp(port)]);
  t.true(node.stored("SELECT * FROM ports").length > 0);
  await node.pods.close(0);
  node.host.published[Symbol.dispose]();
});

test("a publish writes the rows of its own ports, however many the pod has", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const changes = (): number => Number(node.db.get("SELECT total_changes() AS n")?.["n"]);
  const written: number[] = [];
  for (let i = 0; i < 3; i++) {
    const port = await freePort();
    const before = changes();
    await node.pods.changes.publish(id, [tcp(port)]);
    written.push(changes() - before);
  }
  t.deepEqual(new Set(written).size, 1, written.join());
  const hostPorts = (): unknown[] =>
    node.stored("SELECT host_port FROM ports ORDER BY host_port").map((row) => row["host_port"]);
  const { published = [] } = node.pods.find(id).plan;
  const planned = published.flatMap(({ at, hostPort }) => at.map(() => hostPort));
  t.deepEqual(
    hostPorts(),
    planned.toSorted((a, b) => a - b),
  );
  const [first, second] = published;
  await node.pods.changes.unpublish(id, [tcp(first?.hostPort ?? 0)]);
  t.false(hostPorts().includes(first?.hostPort));
  t.true(hostPorts().includes(second?.hostPort));
  await node.pods.close(0);
  node.host.published[Symbol.dispose]();
});

test("an unpublish answers what it removed and what was not published", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const [port, other] = [await freePort(), await freePort()];
  await node.pods.changes.publish(id, [tcp(port)]);
  const asked: readonly PortSpec[] = [
    { ...tcp(port), protocol: "udp" },
    tcp(port),
    { ...tcp(0), podPort: 81 },
    tcp(other),
  ];
  const done = await node.pods.changes.unpublish(id, asked);
  t.deepEqual(notPublished(done.before.plan, asked), [0, 2, 3]);
  const removed = removedPorts(done.before.plan, done.after.plan);
  t.deepEqual(
    removed.map(({ hostPort }) => hostPort),
    [port],
  );
  const again = await node.pods.changes.unpublish(id, asked);
  t.deepEqual(notPublished(again.before.plan, asked), [0, 1, 2, 3]);
  t.deepEqual(removedPorts(again.before.plan, again.after.plan), []);
  await node.pods.close(0);
});
