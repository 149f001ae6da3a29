import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { ImageService } from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { PodnetError } from "../../../core/errors.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const directory = mkdtempSync("/tmp/podnet-run-name-");
const image = { digest: `sha256:${"a".repeat(64)}`, names: ["app:1"] };
const fetched: string[] = [];
const made: string[] = [];
const server = await serve((router) => {
  addService(router, ImageService, {
    get: ({ reference }) => {
      if (reference === "there") return { image };
      throw new PodnetError("IMAGE_NOT_FOUND", "There is no image");
    },
    async *pull({ reference }) {
      fetched.push(reference);
      yield { stage: "done", image };
    },
    async *import() {
      fetched.push("import");
      yield { stage: "done", image };
    },
  });
  addService(router, PodService, {
    get: ({ idOrName }) => {
      if (idOrName === "ambiguous") throw new PodnetError("INVALID_ARGUMENT", "Several pods");
      if (idOrName === "abcd") return { pod: { name: "web", id: "abcdefghijkl" } };
      if (idOrName === "web") return { pod: { name: "web", id: "abcdefghijkl" } };
      throw new PodnetError("POD_NOT_FOUND", "There is no pod");
    },
    create: async ({ spec }) => {
      made.push(spec?.name ?? "");
      if (spec?.name === "slow") await delay(1800);
      return { pod: { name: spec?.name ?? "", id: "mnopqrstuvwx" } };
    },
  });
});
test.after.always(async () => {
  await server.kill();
  rmSync(directory, { recursive: true, force: true });
});
const here = { socket: server.h2 };

test.serial("a taken name is refused before an image is fetched for it", async (t) => {
  const archive = `${directory}/app.tar`;
  writeFileSync(archive, Buffer.alloc(10_240));
  for (const words of [["app:2"], ["--pull", "always", "there"], [archive]]) {
    const { code, err } = await podnet(["run", "-d", "--name", "web", ...words], here);
    t.is(code, 125, err);
    t.regex(err, /"web" is taken by pod abcdefghijkl \(NAME_IN_USE\)\n {2}flag: --name\n/);
  }
  t.deepEqual([fetched, made], [[], []]);
});

test.serial(
  "a name that is only the beginning of an id, or nothing yet, is not taken",
  async (t) => {
    for (const name of ["abcd", "ambiguous", "free"])
      t.is((await podnet(["run", "-d", "--name", name, "app:2"], here)).code, 0, name);
    // An image that is there costs no question: the create says that the name is taken.
    t.is((await podnet(["run", "-d", "--name", "web", "there"], here)).code, 0);
    t.is((await podnet(["run", "-d", "app:3"], here)).code, 0);
    t.deepEqual(fetched.splice(0), ["app:2", "app:2", "app:2", "app:3"]);
    t.deepEqual(made.splice(0), ["abcd", "ambiguous", "free", "web", ""]);
  },
);

test.serial(
  "a start that takes long says so on a terminal, and leaves nothing of it",
  async (t) => {
    const slow = ["run", "-d", "--name", "slow", "there"];
    const { out, err } = await podnet(slow, { ...here, tty: true });
    t.is(out, "mnopqrstuvwx\n");
    t.regex(err, /Starting the pod, \d s …/);
    t.true(err.endsWith("\r\u001b[K"));
    t.is((await podnet(slow, here)).err, "");
  },
);
