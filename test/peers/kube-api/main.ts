import { readFileSync } from "node:fs";
import { type Account, KubeApiServer } from "./server.ts";

/** What the program is started with. */
export interface ProgramOptions {
  readonly address: string;
  readonly port: number;
  /** Files in PEM. */
  readonly key: string;
  readonly cert: string;
  /** A file with the accounts by their tokens, read for each request. */
  readonly accounts: string;
}

/** The stand-in for an API server as a program: `main.ts OPTIONS`, in JSON. */
const options = JSON.parse(process.argv[2] ?? "{}") as ProgramOptions;
await KubeApiServer.open({
  address: options.address,
  port: options.port,
  tls: { key: readFileSync(options.key, "utf8"), cert: readFileSync(options.cert, "utf8") },
  bookmarkMs: 1000,
  chunk: (left) => Math.min(left, 900),
  accounts: () =>
    new Map(
      Object.entries(JSON.parse(readFileSync(options.accounts, "utf8")) as Record<string, Account>),
    ),
});
process.stdout.write("ready\n");
