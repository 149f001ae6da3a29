import type { Command } from "commander";
import { copyFromPod, defaultLimit } from "../copy/from-pod.ts";
import { copyToPod } from "../copy/to-pod.ts";
import { endpointOf } from "../copy/endpoint.ts";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import type { Output } from "../io.ts";
import { parseBytes } from "../parse.ts";
import { usage } from "../usage.ts";
import { harmless } from "../views/text.ts";

interface Options extends CommonOptions {
  readonly followLink?: boolean;
  readonly outsideLinks?: boolean;
  readonly limit?: string;
}

const more = `
If the destination is an existing directory, the source is copied into it. Otherwise the destination is the new name, and its
parent directory must exist. DIRECTORY/. means the contents of a directory. Paths in a pod begin at its root. Write a local path
that looks like POD:PATH as ./POD:PATH. - means a tar archive: on standard input, unpacked into a directory of the pod, or on
standard output.
Modes, times and links are kept. Owners become root in the pod, and you on this host, where set-user-id bits are dropped.
A copy out of a pod leaves out links that lead outside of what is copied, because the next copy could follow them. A copy appears
under its name only when it is complete: a file or link of that name is replaced, and the target of such a link stays
unchanged. Only a copy into an existing directory of a pod is unpacked in place.
The guest needs sh, and tar unless you copy a single file; busybox has both.

Examples:
  podnet cp site web:/srv
  podnet cp web:/var/log/app.log .
  podnet cp web:/etc/. etc-of-web
  tar -c site | podnet cp - web:/srv`;

export function addCopy(program: Command, context: Context): void {
  program
    .command("cp")
    .description("copy files to or from a pod")
    .argument("<source>", "PATH, POD:PATH or -")
    .argument("<destination>", "POD:PATH, PATH or -")
    .option("-L, --follow-link", "copy what links lead to instead of links")
    .option("--outside-links", "from a pod: keep links that lead outside of what is copied")
    .option(
      "--limit <amount>",
      "from a pod: at most this many bytes, or with a unit: 512M, 64G; default 16G",
    )
    .addHelpText("after", more)
    .action(async (from: string, to: string, options: Options) => {
      const { io } = context;
      const source = endpointOf(from, "source");
      const target = endpointOf(to, "destination");
      const followLinks = options.followLink === true;
      context.given.add("id_or_name", source.kind === "pod" ? "--source" : "--destination");
      await withPodnet(context, options, async (podnet, signal) => {
        if (source.kind === "pod" && target.kind !== "pod") {
          const guest = { podnet, idOrName: source.idOrName, signal };
          if (target.kind === "stream" && io.stdout.isTTY === true) {
            throw usage(
              "An archive would go to your terminal",
              "Pipe it: podnet cp POD:PATH - | tar -t",
            );
          }
          const left = new LeftOut(io.stderr);
          await copyFromPod(guest, {
            source: source.path,
            target: target.kind === "stream" ? io.stdout : target.path,
            followLinks,
            outsideLinks: options.outsideLinks === true,
            limit:
              options.limit === undefined ? defaultLimit : parseBytes("--limit", options.limit),
            leftOut: left.out,
          });
          left.close();
        } else if (target.kind === "pod" && source.kind !== "pod") {
          const guest = { podnet, idOrName: target.idOrName, signal };
          const bytes = io.stdin as AsyncIterable<Uint8Array>;
          await copyToPod(guest, {
            source: source.kind === "stream" ? bytes : source.path,
            target: target.path,
            followLinks,
          });
        } else if (source.kind === "pod") {
          throw usage(
            "Both are in pods",
            "Pipe one into the other: podnet cp A:PATH - | podnet cp - B:DIRECTORY",
          );
        } else
          throw usage("Neither is in a pod", "Write one of them as POD:PATH, such as web:/tmp");
      });
    });
}

/** How many omitted things are named; of the rest, the number is given. */
const mostReported = 20;

/** Says what a copy leaves out: a guest may make it as much as it likes. */
class LeftOut {
  readonly #stderr: Output;
  #count = 0;

  constructor(stderr: Output) {
    this.#stderr = stderr;
  }

  readonly out = (what: string, why: string): void => {
    if (++this.#count <= mostReported) this.#stderr.write(`left out, ${why}: ${harmless(what)}\n`);
  };

  close(): void {
    const more = this.#count - mostReported;
    if (more > 0) this.#stderr.write(`left out: ${more} more\n`);
  }
}
