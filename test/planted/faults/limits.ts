import type { Fault } from "../fault.ts";

const limits = "test/unit/daemon-api-limits.test.ts";
const callers = "test/unit/daemon-callers.test.ts";
const validate = {
  file: "test/unit/api-validate.test.ts",
  title: "every bad spec is refused with its code and the field at fault",
};

/** How much, how large and how fast a caller may ask. */
export const limitsFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "a request's body may have any length",
    file: "api/service.ts",
    find: "export const maxRequestBytes = 1 << 20;",
    put: "export const maxRequestBytes = 1 << 30;",
    noticedBy: {
      file: limits,
      title: "a body too large is refused before it has arrived, in any protocol",
    },
  },
  {
    kind: "bound",
    name: "a request may have any number of headers",
    file: "daemon/server/api-server.ts",
    find: "maxHeaderListPairs: 64,",
    put: "",
    noticedBy: { file: limits, title: "headers too large or too many are refused" },
  },
  {
    kind: "bound",
    name: "a request's headers may have any length",
    file: "daemon/server/api-server.ts",
    find: "maxHeaderSize: headerBytes,",
    put: "maxHeaderSize: 1 << 24,",
    noticedBy: { file: limits, title: "headers too large or too many are refused" },
    slow: true,
  },
  {
    kind: "bound",
    name: "a caller may ask as fast as it likes",
    file: "daemon/server/callers.ts",
    find: "if (account.tokens >= 1) {",
    put: "if (account.tokens >= -1e9) {",
    noticedBy: {
      file: limits,
      title: "rate: a burst of twice the rate, then LIMIT_REACHED with the time to wait",
    },
  },
  {
    kind: "bound",
    name: "a caller is forgotten into fresh tokens",
    file: "daemon/server/callers.ts",
    find: "if (idle && tokens >= 2 * limits.requestsPerS) this.#accounts.delete(key);",
    put: "if (idle) this.#accounts.delete(key);\n      void tokens;",
    noticedBy: {
      file: callers,
      title: "a caller cannot be forgotten into fresh tokens by others who call",
    },
  },
  {
    kind: "bound",
    name: "a caller may have any number of requests under way",
    file: "daemon/server/callers.ts",
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
    file: "daemon/server/callers.ts",
    find: "if (this.#account.creates >= createsPerCaller)",
    put: "if (this.#account.creates < 0)",
    noticedBy: { file: callers, title: "creates: so many of one caller, given back once" },
  },
  {
    kind: "bound",
    name: "a caller may have any number of connections",
    file: "daemon/server/callers.ts",
    find: "return this.#account.connections >= this.#limits.connectionsPerCaller",
    put: "return this.#account.connections < 0",
    noticedBy: { file: callers, title: "what one caller uses up is not taken from another" },
  },
  {
    kind: "release",
    name: "a caller's place is given back twice",
    file: "daemon/server/callers.ts",
    find: "if (held) account[what]--;",
    put: "account[what]--;",
    noticedBy: { file: callers, title: "creates: so many of one caller, given back once" },
  },
  {
    kind: "release",
    name: "a connection that has closed is counted on",
    file: "daemon/server/api-server.ts",
    find: "place[Symbol.dispose]();\n      sockets.delete(socket);",
    put: "sockets.delete(socket);",
    noticedBy: {
      file: limits,
      title: "connections: so many of one caller, and one that closes makes room",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a caller that does not read is waited for",
    file: "daemon/server/unread.ts",
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
    file: "daemon/server/arriving.ts",
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
    file: "daemon/server/api-server.ts",
    find: "session.setTimeout(idleMs, () => {",
    put: "session.setTimeout(1e6 * idleMs, () => {",
    noticedBy: {
      file: limits,
      title: "a session that asks for nothing is closed; one with a stream open is not",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a flood is a flood of lines in the log",
    file: "daemon/tally.ts",
    find: "if (this.#timer !== undefined) return;",
    put: "",
    noticedBy: { file: callers, title: "a flood is counted whole and told in one line" },
  },
  {
    kind: "bound",
    name: "labels are not bounded",
    file: "api/validate.ts",
    find: 'checkCount(Object.keys(labels), limits.labels, "labels");',
    put: "",
    noticedBy: validate,
  },
  {
    kind: "bound",
    name: "a pod may have any number of processors",
    file: "api/validate.ts",
    find: "if (vcpu > limits.vcpu) {",
    put: "if (vcpu < 0) {",
    noticedBy: validate,
  },
  {
    kind: "bound",
    name: "a label's value may have any length",
    file: "api/validate.ts",
    find: "if (value.length > limits.labelValue || ",
    put: "if (",
    noticedBy: validate,
  },
];
