import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";

const top = path.resolve(import.meta.dirname, "../..");

/**
 * What runs in podnetd and in the relay. The agent, the command line and the sources of `podnet
 * verify` are programs of their own.
 */
const moduleFolders =
  "{core,linux,network,hypervisor,etcd,kubernetes,overlay,daemon,relay,guest-init/channel}/**/*.ts" as const;
const others = /^daemon\/verify\/(?:host|rules|sockets|vm)-source/;

/**
 * Where something from outside is handed to podnetd: an event of Node's, a server's request, a
 * descriptor that is ready; and timers.
 */
const doors =
  /(?<![.\w])set(?:Timeout|Interval|Immediate)\(|\.(?:on|once)\(\s*"(\w+)",\s*|\bcreate(?:Secure)?Server\((?=[\s{(\w])|\bcreateHttp[12]\(|\bpollFd\(|\blistenUnix\(/g;

/** A handler that does nothing, or no more than end what it belongs to, or resolve a promise. */
const harmless =
  /^(?:\(\) => (?:\{\}|void 0|[\w.]+\.(?:destroy|close)\(\)|refused\("\w+"\)|clearTimeout\(\w+\)|resolve\(\)|\w+\.(?:resolve|reject)\([\w.#(), ]*\))|reject|resolve|limit\.resolve|done|started)[,)]/;

/** Handlers outside of a guard: how many of them, and why they may. */
const outside: Readonly<Record<string, readonly [count: number, why: string]>> = {
  "daemon/containers/cni/serve-cni.ts: clientError": [1, "counts and ends"],
  "daemon/containers/cni/serve-cni.ts: close": [2, "a set and a timer; an abort"],
  "daemon/containers/cni/serve-cni.ts: setTimeout": [1, "ends sockets"],
  "daemon/containers/cni/watch-pending.ts: error": [1, "ends the watch"],
  "daemon/containers/cni/watch-pending.ts: setTimeout": [1, "`lookNow`, which is guarded"],
  "daemon/main/command.ts: SIGHUP": [1, "a line in the log"],
  "daemon/main/command.ts: SIGINT": [1, "ends podnetd"],
  "daemon/main/command.ts: SIGTERM": [1, "ends podnetd"],
  "daemon/main/command.ts: uncaughtException": [1, "what no guard has met"],
  "daemon/main/command.ts: setInterval": [
    2,
    "a line to the service manager, which logs what fails",
  ],
  "daemon/dns/ask-upstream.ts: close": [1, "resolves"],
  "daemon/dns/ask-upstream.ts: error": [2, "resolves"],
  "daemon/dns/listen.ts: close": [1, "gives a place back"],
  "daemon/dns/listen.ts: listening": [1, "resolves"],
  "linux/processes/fed-command.ts: data": [1, "keeps the text"],
  "daemon/images/run-worker.ts: setInterval": [1, "`guard` within"],
  "hypervisor/process/worker-program.ts: close": [1, "resolves"],
  "hypervisor/process/worker-program.ts: data": [1, "keeps the text"],
  "linux/loop-turns.ts: setImmediate": [3, "counts and times; `guard` around the work"],
  "daemon/store/lock.ts: createServer": [1, "ends whoever comes"],
  "daemon/published/tcp-port.ts: error": [2, "counts"],
  "daemon/published/udp-port.ts: error": [2, "counts and ends"],
  "daemon/api/api-server.ts: createHttp1": [1, "`handler`, which is guarded"],
  "daemon/api/api-server.ts: createHttp2": [1, "`handler`, which is guarded"],
  "daemon/listeners/connections.ts: close": [1, "gives a place back"],
  "daemon/listeners/connections.ts: session": [1, "within `sniff`, which is guarded"],
  "daemon/listeners/handshakes.ts: close": [1, "counts"],
  "daemon/api/http/request-rest.ts: close": [1, "resolves"],
  "daemon/api/http/request-rest.ts: data": [1, "counts"],
  "daemon/api/http/request-rest.ts: end": [1, "resolves"],
  "daemon/api/http/upgrade.ts: close": [2, "gives a place back, and an abort; a timer"],
  "daemon/cri/streaming/channel.ts: close": [1, "resolves"],
  "daemon/cri/streaming/channel.ts: drain": [1, "resolves"],
  "daemon/cri/streaming/connect-port.ts: close": [1, "removes a listener"],
  "daemon/cri/streaming/connect-port.ts: connect": [1, "resolves"],
  "daemon/cri/streaming/connect-port.ts: error": [1, "rejects"],
  "daemon/cri/streaming/streaming-server.ts: close": [1, "counts"],
  "daemon/cri/streaming/streaming-server.ts: error": [1, "rejects"],
  "daemon/hyperd/write-all.ts: close": [1, "resolves"],
  "daemon/hyperd/write-all.ts: drain": [1, "resolves"],
  "daemon/listeners/session-end.ts: close": [2, "counts, and timers"],
  "daemon/listeners/session-end.ts: stream": [1, "counts"],
  "daemon/listeners/slow-headers.ts: close": [1, "timers"],
  "daemon/listeners/slow-headers.ts: stream": [1, "counts"],
  "daemon/listeners/sniff.ts: readable": [1, "`onReadable`, which is guarded"],
  "daemon/listeners/tls-listener.ts: createSecureServer": [1, "`onRequest`, which is guarded"],
  "daemon/listeners/tls-listener.ts: session": [1, "a variable"],
  "daemon/listeners/turn-away.ts: close": [1, "counts"],
  "daemon/listeners/unix-listener.ts: createServer": [1, "`onConnection`, which is guarded"],
  "daemon/listeners/unix-listener.ts: listenUnix": [1, "its own head"],
  "hypervisor/nics/leaving.ts: setTimeout": [1, "resolves"],
  "hypervisor/process/network-program.ts: exit": [1, "resolves"],
  "hypervisor/process/process.ts: error": [1, "resolves"],
  "hypervisor/console/typing.ts: close": [1, "resolves"],
  "linux/processes/spawn.ts: SIGCHLD": [1, "asks the kernel, and resolves"],
  "linux/processes/command-end.ts: setTimeout": [1, "ends pipes"],
  "linux/ffi/poll.ts: pollFd": [1, "its own head"],
  "linux/nftrace/stream.ts: pollFd": [1, "resolves"],
  "linux/packets/packet-stream.ts: pollFd": [1, "resolves"],
  "linux/sockets/paced-socket.ts: data": [1, "`take`, which is guarded"],
  "linux/sockets/unix-socket.ts: pollFd": [1, "resolves"],
  "relay/connection.ts: data": [1, "`#onData`, which is guarded"],
  "relay/connection.ts: end": [1, "`#onEnd`, which is guarded"],
  "relay/upgrade.ts: data": [1, "`answered`, which is guarded"],
  "relay/upgrade.ts: end": [2, "ends the other"],
  "network/overlay/udp/tunnel.ts: error": [1, "notes why"],
  "network/overlay/udp/tunnel.ts: exit": [1, "ends threads with the process"],
  "network/overlay/udp/tunnel.ts: message": [1, "resolves"],
};

/** What stands between the parenthesis at `from` and the one that closes it. */
function argumentsAt(source: string, from: number): string {
  let depth = 0;
  for (let i = from; i < source.length; i++) {
    if (source[i] === "(") depth++;
    else if (source[i] === ")" && --depth === 0) return source.slice(from + 1, i);
  }
  return source.slice(from + 1);
}

/** Handlers of a file that stand in no guard, as `file: event`. */
function unguarded(file: string, source: string): string[] {
  const code = source.replaceAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "");
  return [...code.matchAll(doors)].flatMap((found) => {
    const [door, event] = found;
    const handler = argumentsAt(code, found.index + door.indexOf("("));
    const rest = event === undefined ? handler : handler.slice(handler.indexOf(",") + 1).trim();
    if (/\bguarded\(/.test(rest) || harmless.test(`${rest})`)) return [];
    return [`${file}: ${event ?? door.replace(/\W*$/, "")}`];
  });
}

const counted = (calls: readonly string[]): Record<string, number> =>
  Object.fromEntries(Array.from(Map.groupBy(calls, String), ([call, all]) => [call, all.length]));

test("what handles something from outside stands in a guard", (t) => {
  const files = globSync(moduleFolders, { cwd: top })
    .filter((file) => !others.test(file))
    .sort();
  const found = files.flatMap((file) =>
    unguarded(file, readFileSync(path.join(top, file), "utf8")),
  );
  const allowed = Object.entries(outside).map(([call, [count]]) => [call, count] as const);
  t.deepEqual(counted(found), Object.fromEntries(allowed));
});

test("the rule sees a handler that stands in none", (t) => {
  const seen = (source: string): string[] => unguarded("x.ts", source);
  t.deepEqual(seen('socket.on("data", (bytes) => take(bytes));'), ["x.ts: data"]);
  t.deepEqual(seen('socket.on("data", guarded("dns", take));'), []);
  t.deepEqual(seen('socket.on("error", () => {});'), []);
  t.deepEqual(seen("const server = createServer({}, (socket) => take(socket));"), [
    "x.ts: createServer",
  ]);
  t.deepEqual(seen('pollFd(fd, "readable", () => this.#read());'), ["x.ts: pollFd"]);
  t.deepEqual(seen("setTimeout(() => this.#look(), 5).unref();"), ["x.ts: setTimeout"]);
  t.deepEqual(seen("setInterval(look, 5);"), ["x.ts: setInterval"]);
  t.deepEqual(seen('setImmediate(guarded("guest", () => this.#end()));'), []);
  t.deepEqual(seen("const timer = setTimeout(resolve, ms);"), []);
  t.deepEqual(seen("socket.setTimeout(idleMs, () => socket.destroy());"), []);
});
