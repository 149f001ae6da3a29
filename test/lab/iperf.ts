import { spawn } from "node:child_process";
import { run } from "../../linux/processes/command.ts";

/** One measurement between two namespaces; `undefined` as a namespace is the caller's. */
export interface Measurement {
  readonly server: string | undefined;
  readonly client: string | undefined;
  readonly address: string;
  /** From the client to the server, or back. */
  readonly back?: boolean;
  readonly seconds: number;
  /** TCP unless given. */
  readonly udp?: { readonly bitsPerSecond: number; readonly bytes?: number };
}

/** What arrived, in a second. */
export interface Arrived {
  /** Of payload. */
  readonly bits: number;
  /** Of UDP; 0 for TCP. */
  readonly packets: number;
}

interface Report {
  readonly end: {
    readonly sum?: { readonly packets: number; readonly lost_packets: number };
    readonly sum_received: { readonly bits_per_second: number; readonly seconds: number };
  };
}

const inside = (netns: string | undefined): string[] =>
  netns === undefined ? [] : ["ip", "netns", "exec", netns];

/** Measures with iperf3. The server ends with the measurement. */
export async function measure(asked: Measurement): Promise<Arrived> {
  const { server, client, address, back = false, seconds, udp } = asked;
  const [program, ...argv] = [
    ...inside(server),
    "iperf3",
    "-s",
    "-1",
    "--forceflush",
    "-B",
    address,
  ];
  const listening = spawn(program, argv, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => listening.once("exit", resolve));
  try {
    await new Promise((resolve, reject) => {
      listening.stdout.once("data", resolve);
      listening.once("exit", () => reject(new Error("iperf3 does not listen")));
    });
    const { stdout } = await run(
      [
        ...inside(client),
        "iperf3",
        "-J",
        "-c",
        address,
        "-t",
        `${seconds}`,
        ...(back ? ["-R"] : []),
        ...(udp === undefined ? [] : ["-u", "-b", `${udp.bitsPerSecond}`]),
        ...(udp?.bytes === undefined ? [] : ["-l", `${udp.bytes}`]),
      ] as [string, ...string[]],
      { timeoutMs: (seconds + 30) * 1000 },
    );
    const { sum, sum_received: received } = (JSON.parse(stdout) as Report).end;
    const packets = udp === undefined || sum === undefined ? 0 : sum.packets - sum.lost_packets;
    return { bits: received.bits_per_second, packets: packets / received.seconds };
  } finally {
    listening.kill();
    await ended;
  }
}
