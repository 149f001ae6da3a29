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
  for (const auth of [{ username: "u", password: "p" }, { auth: "dTpw" }, { registryToken: "t" }])
    await t.throwsAsync(rig.images.pullImage({ image, auth }), { code: Code.Unimplemented });
  for (const call of [rig.images.pullImage({}), rig.images.imageStatus({ image: {} })])
    await t.throwsAsync(call, { code: Code.InvalidArgument, message: /No image is named/ });
});
