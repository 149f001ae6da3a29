import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import test from "ava";
import { type CollectedSpan, spansOf } from "../lab/collector.ts";
import { type Machine, openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";
import { until } from "../lab/until.ts";

const top = path.resolve(import.meta.dirname, "../..");
const endpoint = "http://127.0.0.1:4318";

/** A collector on a machine of the lab; it fills `spans`. */
async function startCollector(host: Machine, awayFile: string) {
  const program = path.join(top, "test/lab/collector.ts");
  const child = host.spawn([path.join(top, "scripts/node"), program, "4318", awayFile], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const spans: CollectedSpan[] = [];
  let refused = "";
  child.stderr?.on("data", (text: Buffer) => (refused += text.toString()));
  const ready = Promise.withResolvers<void>();
  if (child.stdout === null) throw new Error("It has no output");
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (line === "ready") ready.resolve();
    else spans.push(...spansOf(line));
  });
  await ready.promise;
  return {
    spans,
    refused: () => refused,
    [Symbol.dispose]: () => void child.kill("SIGKILL"),
  };
}

/** Runs the command where the collector is, and resolves with its exit code. */
function runTraced(
  host: Machine,
  socket: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<number | null> {
  const child = host.spawn([path.join(top, "bin/podnet"), ...args, "--socket", socket], {
    stdio: "ignore",
    env: { ...process.env, ...env },
  });
  return new Promise((resolve) => child.once("exit", resolve));
}

test.serial("a create is one trace, from the command to the guest's steps", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "telemetry-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const { host } = stack.use(await openLab("telemetry-"));
  const awayFile = path.join(directory, "away");
  const collector = stack.use(await startCollector(host, awayFile));
  const { spans } = collector;
  const daemon = await startPodnetd({
    machine: host,
    directory,
    config: `tracing.endpoint = "${endpoint}"\n${await standInConfig(path.join(directory, "image"))}`,
  });
  stack.defer(async () => {
    await daemon.tryPodnet("down", "--yes");
    await daemon.stop();
  });
  const caller = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" };
  const traced = {
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    TRACEPARENT: `00-${caller.traceId}-${caller.spanId}-01`,
  };
  t.is(await runTraced(host, daemon.socket, ["create", "web"], traced), 0);
  const named = (name: string): CollectedSpan | undefined =>
    spans.find((span) => span.name === name);
  const method = "podnet.v1.PodService/CreateStream";
  await until(
    "spans of the create",
    () => named("podnet create") !== undefined && named(method) !== undefined,
  );

  const command = named("podnet create");
  const call = named(method);
  t.is(command?.service, "podnet");
  t.is(command?.parentSpanId, caller.spanId);
  t.is(call?.service, "podnetd");
  t.is(call?.parentSpanId, command?.spanId);
  t.true(call?.attributes.some(({ key }) => key === "podnet.pod.id"));
  const steps = spans.filter(({ parentSpanId }) => parentSpanId === call?.spanId);
  for (const step of ["tap.open", "port.attach", "vm.start", "guest.ready", "guest.configure"])
    t.true(
      steps.some(({ name }) => name === step),
      `${step} of ${steps.map(({ name }) => name).join()}`,
    );
  for (const { traceId, startTimeUnixNano: start, endTimeUnixNano: end } of spans) {
    t.is(traceId, caller.traceId);
    t.true(BigInt(start) <= BigInt(end));
  }
  for (const each of steps)
    t.true(
      BigInt(each.startTimeUnixNano) >= BigInt(call?.startTimeUnixNano ?? 0) &&
        BigInt(each.endTimeUnixNano) <= BigInt(call?.endTimeUnixNano ?? 0) + 1_000_000n,
      each.name,
    );

  // Errors have podnet's code; a caller that asks for no spans gets none.
  t.not(await runTraced(host, daemon.socket, ["create", "web"], traced), 0);
  const failed = await until("the failed call", () =>
    spans.find(({ name, status }) => name === method && status.code === 2),
  );
  t.deepEqual(failed.attributes.find(({ key }) => key === "error.type")?.value, {
    stringValue: "NAME_IN_USE",
  });
  const unwanted = { TRACEPARENT: `00-${"1".repeat(32)}-${caller.spanId}-00` };
  t.is(await runTraced(host, daemon.socket, ["get", "web"], unwanted), 0);

  // A collector that is away is waited for; podnetd serves on.
  writeFileSync(awayFile, "");
  const before = spans.length;
  t.is(await runTraced(host, daemon.socket, ["get", "web"], {}), 0);
  await until("a line of the log", () =>
    daemon.log().includes("The collector does not take spans"),
  );
  t.is(spans.length, before);
  rmSync(awayFile);
  await until("the span that waited", () =>
    spans.some(({ name }) => name === "podnet.v1.PodService/Get"),
  );
  t.true(daemon.log().includes("The collector takes spans again"));
  t.false(spans.some(({ traceId }) => traceId === "1".repeat(32)));
  t.is(collector.refused(), "");
  t.false(existsSync(awayFile));
});
