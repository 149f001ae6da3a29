import { arch } from "node:os";
import type { Command } from "commander";
import type { Converted } from "../../../images/convert-image.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { sinceText } from "../../views/ticking.ts";
import { interruption } from "../../io.ts";
import { document, printDocument } from "../../output.ts";
import { parseCount } from "../../parse.ts";
import { count, harmless, size } from "../../views/text.ts";

interface Options extends OutputOptions {
  readonly name?: string;
  readonly architecture?: string;
  readonly maxMib?: string;
  readonly force?: boolean;
}

const more = `
SOURCE is an OCI layout, an archive of one, or an archive of docker save or podman save. FILE becomes a read-only disk that
all pods of the image share. It appears when it is complete and all digests are right. Needs sqfstar of squashfs-tools.

Example:
  podnet image convert app.tar app.squashfs
  podnet create --name app --disk $PWD/app.squashfs,ro --cmdline podnet.root=vda`;

/** MiB of files that an image may have, unless the caller says otherwise. */
const usualMib = 16_384;
const mostEntries = 500_000;

/** `podnet image convert`: the one command of images that works without podnetd. */
export function addConvert(group: Command, context: Context): void {
  addOutput(group.command("convert").description("make a disk of a container image"))
    .argument("<source>", "the image: a directory or an archive")
    .argument("<file>", "the disk to make, a squashfs")
    .option("--name <name>", "the image's name, where there are several")
    .option("--architecture <name>", "amd64 or arm64; default this host's")
    .option("--max-mib <mib>", `refuse an image with more files; default ${usualMib}`)
    .option("--force", "replace the file")
    .addHelpText("after", more)
    .action(async (source: string, file: string, options: Options) => {
      const { io } = context;
      // Loaded only now, so that other commands start without it.
      const { convertImage } = await import("../../../images/convert-image.ts");
      using interrupted = interruption(io);
      const { signal } = interrupted;
      const mib =
        options.maxMib === undefined ? usualMib : parseCount("--max-mib", options.maxMib, 1);
      const converted = await convertImage({
        from: source,
        to: file,
        name: options.name,
        architecture: options.architecture ?? hostArchitecture(),
        force: options.force === true,
        limits: { entries: mostEntries, bytes: mib * 2 ** 20 },
        signal,
        progress: progressOn(context),
      }).catch((thrown: unknown) => {
        if (!signal.aborted) throw thrown;
        throw new PodnetError("CANCELLED", "Interrupted", {
          details: { signal: Number(signal.reason) },
          cause: thrown,
        });
      });
      if (options.output !== "table") {
        await printDocument(io, options.output, document("Image", plainOf(converted)));
        return;
      }
      io.stdout.write(linesOf(file, converted));
    });
}

/** As Go names the processor, which images do. */
const hostArchitecture = (): string => (arch() === "x64" ? "amd64" : arch());

/** Writes how far it is to a terminal, now and then. */
function progressOn({ io }: Context): (read: number, all: number) => void {
  if (io.stderr.isTTY !== true) return () => {};
  const began = performance.now();
  let last = began;
  return (read, all) => {
    const now = performance.now();
    if (now - last < 200 && read < all) return;
    last = now;
    const left = read === 0 ? 0 : ((now - began) / 1000) * (all / read - 1);
    const percent = all === 0 ? 100 : Math.floor((read / all) * 100);
    io.stderr.write(
      `\rReading layers: ${percent} %${sinceText(now - began)}, ${Math.ceil(left)} s left \u001b[K`,
    );
    if (read >= all) io.stderr.write("\r\u001b[K");
  };
}

function plainOf({ image, paths, bytes, squashfsBytes }: Converted) {
  const { digest, names, config, layers } = image;
  return {
    digest,
    names: [...names],
    layers: layers.length,
    files: paths,
    bytes,
    disk_bytes: squashfsBytes,
    config: {
      architecture: config.architecture,
      entrypoint: [...config.entrypoint],
      command: [...config.command],
      environment: [...config.environment],
      directory: config.directory,
      user: config.user,
      stop_signal: config.stopSignal,
    },
  };
}

function linesOf(file: string, { image, paths, bytes, squashfsBytes }: Converted): string {
  const { digest, names, config, layers } = image;
  const rows: [string, string][] = [
    ["Image", names.join(", ") || "without a name"],
    ["Digest", digest],
    ["Layers", `${layers.length}`],
    ["Files", `${count(paths, "path")}, ${size(bytes)}`],
    ["Disk", `${file}, ${size(squashfsBytes)}`],
    ["Command", [...config.entrypoint, ...config.command].join(" ") || "none"],
    ["User", config.user || "root"],
    ["Directory", config.directory || "/"],
  ];
  return rows.map(([name, text]) => `${`${name}:`.padEnd(11)}${harmless(text)}\n`).join("");
}
