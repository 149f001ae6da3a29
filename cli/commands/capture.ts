import { open } from "node:fs/promises";
import type { Command } from "commander";
import { toPodnetError } from "../../core/errors.ts";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { parseCount } from "../parse.ts";
import { usage } from "../usage.ts";
import { write } from "../terminal.ts";
import { count, harmless } from "../views/text.ts";

interface Options extends CommonOptions {
  readonly interface?: string;
  readonly write?: string;
  readonly count?: string;
  readonly snaplen?: string;
}

const more = `
Captures both directions, as a pcap file for tcpdump and Wireshark. The capture ends after --count packets, with ctrl-c, or
when the interface or the pod is removed; it then reports how many packets were lost because they were not read in time.

Examples:
  podnet capture web -w web.pcap
  podnet capture web -c 100 | tcpdump -n -r -`;

export function addCapture(program: Command, context: Context): void {
  program
    .command("capture")
    .description("write what passes a pod's interface to a file or pipe")
    .argument("<pod>", "name or id")
    .option("-i, --interface <name>", "its name in the guest; default the first")
    .option("-w, --write <file>", "where to; - or nothing is standard output")
    .option("-c, --count <packets>", "end after this many")
    .option("-s, --snaplen <bytes>", "bytes kept of each packet; default 262144")
    .addHelpText("after", more)
    .action(async (idOrName: string, options: Options) => {
      const { io } = context;
      const file = options.write === "-" ? undefined : options.write;
      if (file === undefined && io.stdout.isTTY === true)
        throw usage("A capture is no text for a terminal", "Give -w FILE, or pipe it to a program");
      const request = {
        idOrName,
        guestName: options.interface ?? "",
        maxPackets: BigInt(
          options.count === undefined ? 0 : parseCount("--count", options.count, 1),
        ),
        snapBytes: options.snaplen === undefined ? 0 : parseCount("--snaplen", options.snaplen, 1),
      };
      await withPodnet(context, options, async (podnet, signal) => {
        await using opened = new AsyncDisposableStack();
        let out: Sink | undefined;
        let packets = 0;
        let lost = 0n;
        try {
          for await (const part of podnet.pods.capture(request, { signal })) {
            // Not before it has begun: what was captured last is not lost to a pod that there is
            // not.
            out ??= opened.use(await openOutput(context, file));
            if (packets === 0 && part.data.length === headerSize)
              io.stderr.write(`Capturing ${harmless(idOrName)}; ctrl-c ends\n`);
            else packets += packetsIn(part.data);
            lost = part.lost;
            await out.write(part.data);
          }
        } catch (thrown) {
          // Who interrupts it has enough, which is its usual end.
          if (!signal.aborted) throw thrown;
        }
        io.stderr.write(`${count(packets, "packet")} captured, ${lost} lost\n`);
      });
    });
}

interface Sink extends AsyncDisposable {
  write(data: Uint8Array): Promise<void>;
}

async function openOutput({ io }: Context, file: string | undefined): Promise<Sink> {
  if (file === undefined)
    return { write: (data) => write(io.stdout, data), [Symbol.asyncDispose]: async () => {} };
  // Captured traffic is private: only the user may read the file.
  const handle = await open(file, "w", 0o600).catch((thrown: unknown) => {
    throw usage(
      `Cannot write "${file}": ${toPodnetError(thrown).message}`,
      "Name a file that can be made",
    );
  });
  return {
    write: (data) => handle.appendFile(data),
    [Symbol.asyncDispose]: () => handle.close(),
  };
}

/** Of the file; of each packet in it the last four times four bytes. */
const headerSize = 24;
const recordHeaderSize = 16;

/** Each part holds whole packets. */
function packetsIn(data: Uint8Array): number {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let packets = 0;
  for (let at = 0; at + recordHeaderSize <= data.length; packets++)
    at += recordHeaderSize + view.getUint32(at + 8, true);
  return packets;
}
