// Asks again and again by UDP, each time from another port and once, until a file is there; then
// says what came of it. Arguments: the file, and for each question `ADDRESS PORT ANSWER`; an empty
// answer is none.
import { createSocket } from "node:dgram";
import { existsSync } from "node:fs";

/** What came of one question. */
export interface Asked {
  readonly times: number;
  readonly otherwise: readonly string[];
}

const answer = (address: string, port: number, waitMs: number): Promise<string> =>
  new Promise((resolve) => {
    const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
    const end = (said: string): void => {
      clearTimeout(timer);
      resolve(said);
      socket.close();
    };
    const timer = setTimeout(() => end(""), waitMs);
    socket.on("message", (bytes) => end(bytes.toString().trim()));
    socket.on("error", (error) => end(error.message));
    socket.connect(port, address, () => socket.send("hello"));
  });

async function ask(until: string, address: string, port: string, wanted: string): Promise<Asked> {
  let times = 0;
  const otherwise: string[] = [];
  while (!existsSync(until) && otherwise.length < 20) {
    // For nothing one need not wait long: where there is an answer it comes at once.
    const said = await answer(address, Number(port), wanted === "" ? 100 : 2000);
    times++;
    if (said !== wanted) otherwise.push(said === "" ? "silence" : said);
  }
  return { times, otherwise };
}

if (process.argv[1] === import.meta.filename) {
  const [until = "", ...words] = process.argv.slice(2);
  const questions: Promise<Asked>[] = [];
  for (let at = 0; at < words.length; at += 3) {
    const [address = "", port = "", wanted = ""] = words.slice(at, at + 3);
    questions.push(ask(until, address, port, wanted));
  }
  console.log(JSON.stringify(await Promise.all(questions)));
}
