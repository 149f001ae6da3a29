import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { openStage } from "../lab/networks-stage.ts";

test("the log's level changes while podnetd runs, the log says who changed it, and a start has the configured one", async (t) => {
  await using stage = await openStage();
  const daemon = await stage.start();
  using podnet = connectPodnet({ socket: daemon.socket });
  /** The lines that a network's create and delete bring. */
  const linesOf = async (name: string): Promise<string[]> => {
    const before = daemon.log().length;
    await daemon.podnet("network", "create", name);
    await daemon.podnet("network", "delete", name);
    return daemon.log().slice(before).split("\n").filter(Boolean);
  };
  t.is(await daemon.podnet("log-level"), "info\n");
  t.true((await linesOf("one")).some((line) => line.includes('"level":"info"')));

  t.is(await daemon.podnet("log-level", "error"), "error; info after a restart\n");
  t.regex(daemon.log(), /"level":"info".*log level error instead of info/);
  t.deepEqual(await linesOf("two"), []);
  t.is(await daemon.podnet("log-level"), "error; info after a restart\n");
  t.deepEqual(await podnet.node.logLevel({}).then(({ level, configured }) => [level, configured]), [
    "error",
    "info",
  ]);

  await daemon.podnet("log-level", "debug");
  t.regex(daemon.log(), /log level debug instead of error/);
  t.true((await linesOf("three")).length > 0);

  t.like(await t.throwsAsync(podnet.node.logLevel({ level: "silent" })), {
    code: "INVALID_ARGUMENT",
    field: "level",
  });
  const { exitCode, stderr } = await daemon.tryPodnet("log-level", "loud");
  t.is(exitCode, 2);
  t.regex(stderr, /Allowed choices are trace, debug, info, warn, error/);
  t.is((await podnet.node.logLevel({})).level, "debug");

  await daemon.stop();
  const next = await stage.start();
  t.is(await next.podnet("log-level"), "info\n");
});
