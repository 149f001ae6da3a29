import test from "ava";
import { create } from "@bufbuild/protobuf";
import { PodSpecSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { validateSpec } from "../../../../api/validate/validate.ts";
import { refuseForImage } from "../../../../daemon/pods/plan/refuse-image.ts";
import {
  type FoundImage,
  onImage,
  planProcess,
} from "../../../../daemon/pods/process/plan-process.ts";
import { noConfig } from "../../../../images/worker/messages.ts";

const root: FoundImage = {
  digest: "sha256:a",
  type: "root",
  file: "/store/a.img",
  config: { ...noConfig, command: ["sh"] },
};
const disk: FoundImage = {
  ...root,
  type: "disk",
  config: { ...noConfig, diskFormat: "qcow2" },
};

const specOf = (boot: object, more: object = {}) =>
  validateSpec(create(PodSpecSchema, { boot: { image: "app:1", ...boot }, ...more }), {
    network: "default" as never,
  });

test("an agent and a seed disk go with disks alone, a process and a layer with roots alone", (t) => {
  for (const [boot, more, field] of [
    [{ agent: "none" }, {}, "boot.agent"],
    [{ cloudInit: {} }, {}, "boot.cloud_init"],
  ] as const) {
    const spec = specOf(boot, more);
    t.throws(() => refuseForImage(spec, root), { code: "INVALID_ARGUMENT" });
    t.like(
      t.throws(() => refuseForImage(spec, root)),
      { field },
    );
    t.notThrows(() => refuseForImage(spec, disk));
  }
  for (const [boot, more, field] of [
    [{ layer: "persistent" }, {}, "boot.layer"],
    [{}, { process: { args: ["sh"] } }, "process"],
    [{}, { restart: { policy: "always" } }, "restart"],
    [{ factory: "pool" }, {}, "boot.factory"],
  ] as const) {
    const spec = specOf(boot, more);
    t.like(
      t.throws(() => refuseForImage(spec, disk)),
      { code: "UNSUPPORTED", field },
    );
    t.notThrows(() => refuseForImage(spec, root));
  }
});

test("a disk boots itself before the spec's own disks, and has no main process", (t) => {
  const spec = specOf({ disks: [{ path: "/data", readOnly: true }] });
  const { boot } = onImage(spec, disk);
  t.is(boot.kernel, "none");
  t.deepEqual(
    boot.disks.map(({ path, format }) => `${path} ${format}`),
    ["/store/a.img qcow2", "/data raw"],
  );
  t.is(planProcess(spec, disk), undefined);
  t.deepEqual(planProcess(spec, root)?.args, ["sh"]);
});
