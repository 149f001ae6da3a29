import { execFile } from "node:child_process";
import { promisify } from "node:util";

const exec = promisify(execFile);

/** Calls a method of the pod service with JSON, by curl. */
export async function curl(
  socket: string,
  method: string,
  body: string,
  ...args: string[]
): Promise<{
  status: number;
  body: {
    code?: string;
    message?: string;
    details?: { type: string; debug: Record<string, unknown> }[];
  } & Record<string, unknown>;
}> {
  const { stdout } = await exec("curl", [
    "-sS",
    "--max-time",
    "20",
    "--unix-socket",
    socket,
    "-w",
    "\n%{http_code}",
    "-H",
    "content-type: application/json",
    "--data-binary",
    body,
    ...args,
    `http://podnet/podnet.v1.PodService/${method}`,
  ]);
  const end = stdout.lastIndexOf("\n");
  return { status: Number(stdout.slice(end + 1)), body: JSON.parse(stdout.slice(0, end)) };
}
