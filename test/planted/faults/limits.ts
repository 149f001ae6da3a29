import type { Fault } from "../fault.ts";

const limits = "test/unit/daemon/api/limits.test.ts";
const callers = "test/unit/daemon/listeners/callers.test.ts";
const fairness = "test/unit/daemon/api/fairness.test.ts";
const sessions = "test/unit/daemon/api/sessions.test.ts";
const handshakes = "test/unit/daemon/api/handshakes.test.ts";
const validate = {
  file: "test/unit/api/validate/validate.test.ts",
  title: "every bad spec is refused with its code and the field at fault",
};

/** How much, how large and how fast a caller may ask. */
export const limitsFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "a request's body may have any length",
    file: "api/request-limits.ts",
    find: "bytes: 256 << 10,",
    put: "bytes: 1 << 30,",
    noticedBy: {
      file: limits,
      title: "a body too large is refused before it has arrived, in any protocol",
    },
  },
  {
    kind: "bound",
    name: "a request may have any number of values",
    file: "api/validate/checked-body.ts",
    find: "if (count > limits.values)",
    put: "if (count < 0)",
    noticedBy: {
      file: fairness,
      title:
        "labels without number are refused before a message is built of them (application/proto)",
    },
  },
  {
    kind: "bound",
    name: "messages are worked at as they come, whoever sent them",
    file: "api/validate/checked-body.ts",
    find: "await turn();",
    put: "void turn;",
    noticedBy: {
      file: fairness,
      title: "another caller waits for one request of a caller that asks much, not for all of them",
    },
  },
  {
    kind: "bound",
    name: "any number of machines start at a time",
    file: "core/slots.ts",
    find: "if (this.#busy < this.#most) return",
    put: "if (this.#most > 0) return",
    noticedBy: {
      file: "test/unit/daemon/pods/lifecycle.test.ts",
      title: "so many machines start at a time as may, and others wait: 1",
    },
  },
  {
    kind: "bound",
    name: "a caller that starts many machines does not wait for itself",
    file: "core/slots.ts",
    find: "this.#heldBy(each.owner) < this.#heldBy(next.owner)",
    put: "this.#heldBy(each.owner) < 0",
    noticedBy: {
      file: "test/unit/core/slots.test.ts",
      title: "who asks for much waits for itself, and another begins with the next slot",
    },
  },
  {
    kind: "bound",
    name: "the time that a message takes is not charged to its caller",
    file: "linux/loop-turns.ts",
    find: "    user.used += tookMs;\n",
    put: "",
    noticedBy: {
      file: "test/unit/linux/loop-turns.test.ts",
      title: "whoever has used least has the next turn, and nothing is saved up",
    },
  },
  {
    kind: "bound",
    name: "a request may have any number of headers",
    file: "daemon/api/api-server.ts",
    find: "maxHeaderListPairs: 64,",
    put: "",
    noticedBy: { file: limits, title: "headers too large or too many are refused" },
  },
  {
    kind: "bound",
    name: "a request's headers may have any length",
    file: "daemon/api/http/request-headers.ts",
    find: "> headerBytes;",
    put: "> 1 << 24;",
    noticedBy: { file: limits, title: "headers too large or too many are refused" },
  },
  {
    kind: "bound",
    name: "a caller may ask as fast as it likes",
    file: "core/token-bucket.ts",
    find: "if (this.tokens < 1) return false;",
    put: "if (this.tokens < -1e9) return false;",
    noticedBy: {
      file: limits,
      title: "rate: a burst of twice the rate, then LIMIT_REACHED with the time to wait",
    },
  },
  {
    kind: "bound",
    name: "a caller is forgotten into fresh tokens",
    file: "daemon/listeners/callers.ts",
    find: "if (idle && newConnections.full && newRequests.full) this.#accounts.delete(key);",
    put: "if (idle) this.#accounts.delete(key);\n      void [newConnections, newRequests];",
    noticedBy: {
      file: callers,
      title: "a caller cannot be forgotten into fresh tokens by others who call",
    },
  },
  {
    kind: "bound",
    name: "a caller may have any number of requests under way",
    file: "daemon/listeners/callers.ts",
    find: "if (this.#account.requests >= requestsPerCaller)",
    put: "if (this.#account.requests < 0)",
    noticedBy: {
      file: limits,
      title: "requests under way: so many of one caller over all of its connections",
    },
  },
  {
    kind: "bound",
    name: "a caller may have any number of creates under way",
    file: "daemon/listeners/callers.ts",
    find: "if (this.#account.creates >= createsPerCaller)",
    put: "if (this.#account.creates < 0)",
    noticedBy: { file: callers, title: "creates: so many of one caller, given back once" },
  },
  {
    kind: "bound",
    name: "a caller may have any number of connections",
    file: "daemon/listeners/callers.ts",
    find: "if (this.#account.connections >= connectionsPerCaller)",
    put: "if (this.#account.connections < 0)",
    noticedBy: { file: callers, title: "what one caller uses up is not taken from another" },
  },
  {
    kind: "release",
    name: "a caller's place is given back twice",
    file: "daemon/listeners/callers.ts",
    find: "if (held) account[what]--;",
    put: "account[what]--;",
    noticedBy: { file: callers, title: "creates: so many of one caller, given back once" },
  },
  {
    kind: "release",
    name: "a connection that has closed is counted on",
    file: "daemon/listeners/connections.ts",
    find: "place[Symbol.dispose]();\n        this.#open.delete(socket);",
    put: "this.#open.delete(socket);",
    noticedBy: {
      file: limits,
      title: "connections: so many of one caller, and one that closes makes room",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a caller that does not read is waited for",
    file: "daemon/api/http/unread.ts",
    find: "        arm();\n        yield chunk;",
    put: "        yield chunk;",
    noticedBy: {
      file: limits,
      title: "a stream that is not read is cut, and what makes it stops (HTTP/2)",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a request may take for ever to arrive",
    file: "daemon/api/http/arriving.ts",
    find: "const timer = setTimeout(() => over.reject(late()), ms).unref();",
    put: "const timer = setTimeout(() => over.reject(late()), 100 * ms).unref();",
    noticedBy: {
      file: limits,
      title: "slow requests: silence, dripped headers and a body that does not come are cut",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a session that asks for nothing is kept",
    file: "daemon/listeners/session-end.ts",
    find: "session.close();\n      }),\n      ms,",
    put: "session.close();\n      }),\n      1e6 * ms,",
    noticedBy: {
      file: limits,
      title: "a session that asks for nothing is closed; one with a stream open is not",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "bound",
    name: "a caller may open connections as fast as it likes",
    file: "daemon/listeners/callers.ts",
    find: 'spend(this.#account.newConnections, "connections_per_s", "new connections");',
    put: "",
    noticedBy: {
      file: callers,
      title:
        "new connections: a burst of twice the rate, then so many a second, and another has its own",
    },
  },
  {
    kind: "release",
    name: "what looks after a session that has closed goes on",
    file: "daemon/listeners/session-end.ts",
    find: "    clearTimeout(idleTimer);\n    clearInterval(look);",
    put: "",
    noticedBy: {
      file: sessions,
      title: "HTTP/2 connections that have closed leave nothing in the heap",
    },
  },
  {
    kind: "release",
    name: "a session that has ended keeps its connection until the client lets go",
    file: "daemon/listeners/session-end.ts",
    find: "if (over) socket.destroy();",
    put: "",
    noticedBy: {
      file: sessions,
      title: "a session that has ended leaves no connection, whoever ended it",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "a TLS handshake may take for ever",
    file: "daemon/listeners/handshakes.ts",
    find: "      limits.ms,\n    ).unref();",
    put: "      1000 * limits.ms,\n    ).unref();",
    noticedBy: {
      file: handshakes,
      title:
        "handshakes that are never finished keep out no caller with a certificate, and leave no socket",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "one source address may have all unfinished handshakes",
    file: "daemon/listeners/handshakes.ts",
    find: "source.unfinished.size >= Math.ceil(handshakes / 4)",
    put: "source.unfinished.size >= 4 * handshakes",
    noticedBy: {
      file: handshakes,
      title: "addresses of one IPv6 network are one source; what is finished takes no place",
    },
  },
  {
    kind: "bound",
    name: "unfinished handshakes of many sources have no bound",
    file: "daemon/listeners/handshakes.ts",
    find: "this.#unfinished.size >= handshakes",
    put: "this.#unfinished.size < 0",
    noticedBy: {
      file: handshakes,
      title: "a full pool of handshakes ends the oldest of the source that has the most",
    },
  },
  {
    kind: "bound",
    name: "one source address may begin handshakes as fast as it likes",
    file: "daemon/listeners/handshakes.ts",
    find: "source.bucket.take() ? undefined",
    put: "source.bucket.tokens < 1e9 ? undefined",
    noticedBy: {
      file: handshakes,
      title: "one source address connects only so often; another is served meanwhile",
    },
  },
  {
    kind: "bound",
    name: "a flood is a flood of lines in the log",
    file: "daemon/events/tally.ts",
    find: "if (this.#timer !== undefined) return;",
    put: "",
    noticedBy: { file: callers, title: "a flood is counted whole and logged in one line" },
  },
  {
    kind: "bound",
    name: "files of a pod may have any length together",
    file: "api/validate/files.ts",
    find: "if (bytes > limits.allBytes)",
    put: "if (bytes < 0)",
    noticedBy: validate,
  },
  {
    kind: "bound",
    name: "labels are not bounded",
    file: "api/validate/validate.ts",
    find: "checkCount(Object.keys(labels), limits.labels, of);",
    put: "",
    noticedBy: validate,
  },
  {
    kind: "bound",
    name: "a pod may have any number of processors",
    file: "api/validate/validate.ts",
    find: "if (vcpu < 1 || vcpu > limits.vcpu) {",
    put: "if (vcpu < 0) {",
    noticedBy: validate,
  },
  {
    kind: "bound",
    name: "a label's value may have any length",
    file: "api/validate/validate.ts",
    find: "if (value.length > limits.labelValue || ",
    put: "if (",
    noticedBy: validate,
  },
];
