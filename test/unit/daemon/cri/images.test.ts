import { Code } from "@connectrpc/connect";
import test from "ava";
import type { Digest } from "../../../../images/archive/digest.ts";
import { putImage, putName } from "../../../../daemon/images/store.ts";
import { type CriRig, startCri } from "./rig.ts";

const digest = `sha256:${"a".repeat(64)}` as Digest;
const name = "docker.io/library/app:1";

/** An image in the store, whose main process has this user. */
function store({ node }: CriRig, user: string): void {
  const config = {
    architecture: "amd64",
    entrypoint: [],
    command: [],
    environment: [],
    directory: "/",
    user,
    stopSignal: "",
    exposedPorts: [],
    labels: {},
  };
  const row = { digest, type: "root", state: "ready", config, bytes: 4096 } as const;
  putImage(node.db, { ...row, createdMs: 1, usedMs: 1 });
  putName(node.db, name, digest);
}

test("an image is found by its names, and is gone after its removal", async (t) => {
  await using rig = await startCri();
  store(rig, "");
  const { images } = rig;
  const asked = (image: string) => ({ image: { image } });
  for (const each of [name, "app:1", digest])
    t.like((await images.imageStatus(asked(each))).image, {
      id: digest,
      repoTags: [name],
      size: 4096n,
    });
  t.is((await images.imageStatus(asked("absent:1"))).image, undefined);
  const ids = async (filter: object) =>
    (await images.listImages({ filter })).images.map(({ id }) => id);
  t.deepEqual(await ids({}), [digest]);
  t.deepEqual(await ids(asked(name)), [digest]);
  t.deepEqual(await ids(asked("absent:1")), []);
  const [usage] = (await images.imageFsInfo({})).imageFilesystems;
  t.is(usage?.usedBytes?.value, 4096n);
  t.is(usage?.fsId?.mountpoint, rig.config.images.directory);
  await images.removeImage(asked(name));
  await images.removeImage(asked(name));
  t.deepEqual(await ids({}), []);
});

for (const [user, uid, username] of [
  ["", 0n, ""],
  ["1000:1000", 1000n, ""],
  ["web:adm", undefined, "web"],
] as const)
  test(`kubelet sees who runs an image with the user "${user}"`, async (t) => {
    await using rig = await startCri();
    store(rig, user);
    const { image } = await rig.images.imageStatus({ image: { image: name } });
    t.is(image?.uid?.value, uid);
    t.is(image?.username, username);
  });

test("credentials and names that cannot be used are refused", async (t) => {
  await using rig = await startCri();
  const image = { image: name };
  for (const text of ["two words", "t\r\nx: y", "t".repeat(16_385)])
    for (const auth of [{ identityToken: text }, { registryToken: text }]) {
      const refused = await t.throwsAsync(rig.images.pullImage({ image, auth }), {
        code: Code.InvalidArgument,
      });
      t.false(refused?.message.includes(text));
    }
  for (const auth of [
    { username: "u" },
    { password: "p" },
    { auth: Buffer.from("no colon").toString("base64") },
  ])
    await t.throwsAsync(rig.images.pullImage({ image, auth }), {
      code: Code.InvalidArgument,
      message: /no user or no password/,
    });
  for (const call of [rig.images.pullImage({}), rig.images.imageStatus({ image: {} })])
    await t.throwsAsync(call, { code: Code.InvalidArgument, message: /No image is named/ });
});

test("kubelet's credential is used for the registry that it is for, and is not logged", async (t) => {
  await using rig = await startCri();
  const image = { image: "registry.example:5000/team/app:1" };
  const both = { username: "ci", password: "hidden" };
  const auth = Buffer.from("ci:hidden").toString("base64");
  const used = { user: "ci", password: "hidden" };
  for (const [given, credential] of [
    [undefined, undefined],
    [{}, undefined],
    [both, used],
    [{ auth }, used],
    [{ ...both, serverAddress: "https://registry.example:5000/v2/" }, used],
    [{ ...both, serverAddress: "registry.example:5000" }, used],
    [{ ...both, serverAddress: "other.example" }, undefined],
    [{ ...both, registryToken: "hidden.r" }, { registryToken: "hidden.r" }],
    [{ ...both, identityToken: "hidden.i" }, { identityToken: "hidden.i" }],
    [{ registryToken: "hidden.r", serverAddress: "other.example" }, undefined],
    [{ ...both, serverAddress: "registry.example" }, undefined],
  ] as const) {
    await rig.images.pullImage(given === undefined ? { image } : { image, auth: given });
    t.deepEqual(rig.pulls.at(-1)?.credential, credential, JSON.stringify(given));
  }
  const hub = { ...both, serverAddress: "https://index.docker.io/v1/" };
  await rig.images.pullImage({ image: { image: "app" }, auth: hub });
  t.deepEqual(rig.pulls.at(-1)?.credential, used);
  t.true(rig.logged.length > 0);
  t.false(rig.logged.some((line) => /hidden|Y2k6/.test(line)));
});
