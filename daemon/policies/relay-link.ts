import type { Socket } from "node:net";
import { PodnetError } from "../../core/errors.ts";
import { guarded } from "../../core/guard.ts";
import type { FromRelay, RelayVerdict, ToRelay } from "../../relay/messages.ts";
import { parseFromRelay } from "./relay-report.ts";

/** Longest line of the relay's. */
const longestLine = 16 << 10;
/** Milliseconds in which it says that a message holds. */
const answerMs = 3000;
/** Bytes that wait for it, beyond which it counts as hung. */
const mostWaiting = 64 << 20;

/** The connection to the relay's control socket. What comes from it is not trusted. */
export class RelayLink implements Disposable {
  readonly #socket: Socket;
  readonly #report: (verdict: RelayVerdict) => void;
  readonly #waiting = new Map<number, PromiseWithResolvers<void>>();
  #seq = 0;
  #rest = "";

  /** `lost` is called once it is over, whoever ended it. */
  constructor(socket: Socket, report: (verdict: RelayVerdict) => void, lost: () => void) {
    this.#socket = socket;
    this.#report = report;
    socket.setEncoding("utf8");
    socket.on("error", () => {});
    socket.on(
      "data",
      guarded(
        "relay",
        (text: string) => this.#read(text),
        () => this.#end(),
      ),
    );
    socket.once(
      "close",
      guarded("relay", () => {
        for (const { reject } of this.#waiting.values()) reject(gone());
        this.#waiting.clear();
        lost();
      }),
    );
  }

  /**
   * Sends messages; resolves once they hold. Throws `DEADLINE_EXCEEDED` when the relay does not say
   * so in time, and `CANCELLED` when it has gone.
   */
  async send(messages: Iterable<ToRelay>): Promise<void> {
    const seq = ++this.#seq;
    const all = [...messages];
    const last = all.pop();
    if (last === undefined) return;
    if (this.#socket.destroyed || this.#socket.writableLength > mostWaiting) throw gone();
    const done = Promise.withResolvers<void>();
    this.#waiting.set(seq, done);
    const late = setTimeout(
      guarded("relay", () => done.reject(hung())),
      answerMs,
    );
    const lines = [...all, { ...last, seq }].map((message) => `${JSON.stringify(message)}\n`);
    this.#socket.write(lines.join(""));
    try {
      await done.promise;
    } finally {
      clearTimeout(late);
      this.#waiting.delete(seq);
    }
  }

  [Symbol.dispose](): void {
    this.#end();
  }

  #end(): void {
    this.#socket.destroy();
  }

  #read(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > longestLine) this.#end();
    for (const line of lines) this.#hear(parseFromRelay(line));
  }

  #hear(message: FromRelay | undefined): void {
    if (message === undefined) this.#end();
    else if (message.type === "verdict") this.#report(message.verdict);
    else this.#waiting.get(message.seq)?.resolve();
  }
}

const gone = (): PodnetError =>
  new PodnetError("CANCELLED", "The relay has gone", {
    hint: "Connections whose name decides are closed until it is there again",
  });

const hung = (): PodnetError =>
  new PodnetError("DEADLINE_EXCEEDED", `The relay has not answered within ${answerMs} ms`, {
    hint: "podnetd replaces it",
  });
