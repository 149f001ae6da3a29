import { create } from "@bufbuild/protobuf";
import test from "ava";
import { PodSpecSchema } from "../../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { validateSpec } from "../../../../../api/validate/validate.ts";
import { signalFromText } from "../../../../../api/validate/process.ts";
import type { NetworkName } from "../../../../../core/names.ts";
import {
  type FoundImage,
  onImage,
  planProcess,
} from "../../../../../daemon/pods/process/plan-process.ts";
import { nextStart } from "../../../../../daemon/pods/process/restart.ts";

const spec = (fields: Parameters<typeof create<typeof PodSpecSchema>>[1]) =>
  validateSpec(create(PodSpecSchema, fields), { network: "default" as NetworkName });

const image: FoundImage = {
  digest: "sha256:00",
  type: "root",
  file: "/images/app.squashfs",
  config: {
    architecture: "amd64",
    entrypoint: ["/entry", "-v"],
    command: ["serve"],
    environment: ["PATH=/bin", "A=1", "B=x=y", "none"],
    directory: "srv",
    user: "web",
    stopSignal: "SIGQUIT",
  },
};

test("a program that starts a system is PID 1, and is asked to end as systemd wants it", (t) => {
  const planned = (args: readonly string[], more: object = {}) =>
    planProcess(spec({ boot: { image: "app" }, process: { entrypoint: [...args], ...more } }), {
      ...image,
      config: { ...image.config, stopSignal: "" },
    });
  for (const program of ["/sbin/init", "/usr/sbin/init", "/usr/lib/systemd/systemd", "systemd"])
    t.like(planned([program]), { init: true, stopSignal: 37, stopTimeoutMs: 30_000 }, program);
  t.deepEqual(planned(["/sbin/init"])?.env[0], { env: "container", value: "podnet" });
  const own = { stopSignal: "SIGUSR2", stopTimeoutMs: 5, env: { container: "other" } };
  t.like(planned(["/sbin/init"], own), { init: true, stopSignal: 12, stopTimeoutMs: 5 });
  t.deepEqual(planned(["/sbin/init"], own)?.env[0], { env: "container", value: "other" });
  for (const program of [
    "init",
    "/srv/init",
    "/sbin/initctl",
    "/bin/systemd-run",
    "/sbin/init/x",
  ]) {
    const plan = planned([program]);
    t.is(plan?.init, undefined, program);
    t.is(plan?.stopSignal, 15);
  }
});

test("an image's main process, and what a spec changes of it", (t) => {
  const asImage = planProcess(spec({ boot: { image: "app" } }), image);
  t.deepEqual(asImage, {
    args: ["/entry", "-v", "serve"],
    env: [
      { env: "PATH", value: "/bin" },
      { env: "A", value: "1" },
      { env: "B", value: "x=y" },
    ],
    user: "web",
    workdir: "/srv",
    terminal: false,
    stdin: false,
    stopSignal: 3,
    stopTimeoutMs: 10_000,
    digest: "sha256:00",
  });
  const args = (process: object): readonly string[] | undefined =>
    planProcess(spec({ boot: { image: "app" }, process }), image)?.args;
  t.deepEqual(args({ args: ["other"] }), ["/entry", "-v", "other"]);
  t.deepEqual(args({ entrypoint: ["/bin/sh"] }), ["/bin/sh"]);
  t.deepEqual(args({ entrypoint: ["/bin/sh"], args: ["-c", "x"] }), ["/bin/sh", "-c", "x"]);
  const changed = planProcess(
    spec({ process: { env: { A: "2" }, user: "0:0", workdir: "/w", stopTimeoutMs: 0 } }),
    image,
  );
  t.like(changed, { user: "0:0", workdir: "/w", stopTimeoutMs: 0 });
  t.deepEqual(changed?.env[1], { env: "A", value: "2" });
  t.throws(() => planProcess(spec({ process: {} }), undefined), { code: "INVALID_ARGUMENT" });
  t.is(planProcess(spec({}), undefined), undefined);
});

test("an image is the first disk and the root; other disks follow", (t) => {
  const disks = [{ path: "/data.raw" }];
  const { boot } = onImage(spec({ boot: { image: "app", cmdline: "quiet", disks } }), image);
  t.is(boot.cmdline, "podnet.root=vda quiet");
  t.deepEqual(
    boot.disks.map(({ path, readOnly }) => [path, readOnly]),
    [
      ["/images/app.squashfs", true],
      ["/data.raw", false],
    ],
  );
});

test("a main process that cannot be is refused with its field", (t) => {
  const refused = (fields: Parameters<typeof spec>[0]): string | undefined =>
    (t.throws(() => spec(fields)) as { field?: string } | undefined)?.field;
  t.is(refused({ process: { args: ["a\0b"] } }), "process.args[0]");
  t.is(refused({ process: { args: ["a"], env: { "A=B": "c" } } }), 'process.env["A=B"]');
  t.is(refused({ process: { args: ["a"], workdir: "srv" } }), "process.workdir");
  t.is(refused({ process: { args: ["a"], user: "a:b:c" } }), "process.user");
  t.is(refused({ process: { args: ["a"], stopSignal: "SIG_ABSENT" } }), "process.stop_signal");
  t.is(refused({ process: { args: ["a"], stopTimeoutMs: 1e9 } }), "process.stop_timeout_ms");
  t.is(refused({ process: { args: ["x".repeat(300_000)] } }), "process.args");
  t.is(refused({ restart: { policy: "always" } }), "restart");
  t.is(refused({ process: { args: ["a"] }, restart: { policy: "maybe" } }), "restart.policy");
  t.is(refused({ process: { args: ["a"] }, boot: { agent: "none" } }), "process");
  t.is(refused({ boot: { image: "app", kernel: "/k" } }), "boot.kernel");
  t.is(refused({ boot: { image: "app", initrd: "/i" } }), "boot.initrd");
  t.is(refused({ boot: { image: "a b" } }), "boot.image");
});

test("signals by name and number", (t) => {
  const number = (text: string): number => signalFromText(text, "signal");
  t.deepEqual(["SIGTERM", "term", "9", "SIGRTMIN+3"].map(number), [15, 15, 9, 37]);
  for (const bad of ["0", "65", "SIG", "", "SIGRTMIN+40"])
    t.throws(() => number(bad), undefined, bad);
});

test("pauses double, and a process that ran for long is started soon", (t) => {
  const restart = { policy: "always" } as const;
  const pause = (inARow: number, ranMs = 0): number | undefined =>
    nextStart(restart, { inARow, ranMs, success: true })?.pauseMs;
  t.deepEqual(
    [0, 1, 2, 9, 20].map((n) => pause(n)),
    [100, 200, 400, 51_200, 60_000],
  );
  t.is(pause(20, 10_000), 100);
  const onFailure = { policy: "on-failure", max: 2 } as const;
  t.is(nextStart(onFailure, { inARow: 0, ranMs: 0, success: true }), undefined);
  t.is(nextStart(onFailure, { inARow: 2, ranMs: 0, success: false }), undefined);
  t.is(nextStart(onFailure, { inARow: 1, ranMs: 0, success: false })?.inARow, 2);
  t.is(nextStart(undefined, { inARow: 0, ranMs: 0, success: false }), undefined);
});
