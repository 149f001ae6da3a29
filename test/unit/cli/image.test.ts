import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { tarOf, writeDockerArchive } from "../images/image-archive.ts";
import { podnet } from "./fixtures/io.ts";

const here = { socket: "/nowhere" };

test("image convert makes a disk without podnetd, and shows what the image runs", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-cli-image-"));
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const at = (name: string): string => path.join(directory, name);
  mkdirSync(at("files"));
  writeFileSync(at("files/a"), "a");
  writeDockerArchive(at("app.tar"), {
    layers: [tarOf(at("files"))],
    name: "app:1",
    config: { Entrypoint: ["/bin/serve"], Cmd: ["-p", "80"], User: "web\u001b[2J" },
  });
  const convert = ["image", "convert", at("app.tar"), at("app.squashfs")];
  const { out, code } = await podnet(convert, here);
  t.is(code, 0);
  t.regex(out, /^Image: +app:1$/m);
  t.regex(out, /^Layers: +1$/m);
  t.regex(out, /^Command: +\/bin\/serve -p 80$/m);
  t.false(out.includes("\u001b"), "an image does not steer the terminal");
  t.true(existsSync(at("app.squashfs")));
  const again = await podnet(convert, here);
  t.is(again.code, 2);
  t.regex(again.err, /There is a file .* already \(INVALID_ARGUMENT\)/);
  t.regex(again.err, /--force/);
  const shown = await podnet([...convert, "--force", "-o", "json"], here);
  const { kind, config } = JSON.parse(shown.out) as { kind: string; config: object };
  t.is(kind, "Image");
  t.like(config, { architecture: "amd64", entrypoint: ["/bin/serve"], command: ["-p", "80"] });
  const missing = await podnet(["image", "convert", at("nothing"), at("out")], here);
  t.regex(missing.err, /There is no image at .*nothing" \(IMAGE_MISSING\)/);
});

test("image import refuses what is no image before anything is sent", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-cli-image-"));
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const disk = path.join(directory, "disk.vmdk");
  writeFileSync(disk, "KDMV".padEnd(4096));
  const { err, code } = await podnet(["image", "import", disk, "app"], here);
  t.is(code, 6);
  t.regex(err, /The file is a vmdk disk, not a container image \(IMAGE_UNREADABLE\)/);
  t.regex(err, /Expected an OCI layout[^]*podnet create --disk FILE/);
});
