import type { Fault } from "../fault.ts";

const access = "test/unit/daemon/api/access.test.ts";
const callers = "test/unit/daemon/listeners/callers.test.ts";
const validate = {
  file: "test/unit/api/validate/validate.test.ts",
  title: "every bad spec is refused with its code and the field at fault",
};

/** Who a caller is, what it may do, and what it is shown. */
export const callersFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a viewer may delete",
    file: "api/roles.ts",
    find: 'delete: "operator",\n  watch',
    put: 'delete: "viewer",\n  watch',
    noticedBy: { file: access, title: "each role does what it is for, and no more" },
  },
  {
    kind: "access",
    name: "roles are not asked for",
    file: "daemon/api/http/request-handler.ts",
    find: "demand(peer, caller?.role, roleOf(method), `${method.parent.name}.${method.name}`);",
    put: "void roleOf;",
    noticedBy: { file: access, title: "every method and its role: an unknown user (no role)" },
    slow: true,
    shows: "hang",
  },
  {
    kind: "release",
    name: "a refused stream ends before its request, which curl misses",
    file: "daemon/api/http/request-rest.ts",
    find: "await rest.ended();",
    put: "void rest;",
    noticedBy: {
      file: "test/unit/daemon/api/early-answers.test.ts",
      title: "an answer does not end before its request: refused for a header of a stream",
    },
  },
  {
    kind: "release",
    name: "the rest of a refused request of HTTP/1.1 is never read",
    file: "daemon/api/http/request-handler.ts",
    find: "request.iterator({ destroyOnReturn: false })",
    put: "request.iterator()",
    noticedBy: {
      file: "test/unit/daemon/api/early-answers.test.ts",
      title:
        "a request of HTTP/1.1 that is refused is read to its end, and the next one is answered",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a body that says it is too large is refused without a code of ours",
    file: "daemon/api/http/request-headers.ts",
    find: "throw tooLarge(method);",
    put: "void tooLarge;",
    noticedBy: {
      file: "test/unit/daemon/api/server.test.ts",
      title: "unknown fields and bodies too large are refused with a typed error",
    },
  },
  {
    kind: "bound",
    name: "headers of HTTP/2 may be four times as large as podnetd says",
    file: "daemon/api/http/request-headers.ts",
    find: "text.length, 0) > headerBytes;",
    put: "text.length, 0) > 4 * headerBytes;",
    noticedBy: {
      file: "test/unit/daemon/api/limits.test.ts",
      title: "headers too large or too many are refused",
    },
  },
  {
    kind: "bound",
    name: "no processor at all is the default",
    file: "api/validate/validate.ts",
    find: "if (vcpu < 1 || vcpu > limits.vcpu) {",
    put: "if (vcpu > limits.vcpu) {",
    noticedBy: {
      file: "test/unit/api/validate/validate.test.ts",
      title:
        "a zero that is written is refused where it is no amount, as JSON or by wire; left out it is the default",
    },
  },
  {
    kind: "mark",
    name: "a part of an interface that is written wrongly is a network's name",
    file: "cli/parse.ts",
    find: "throw unknown(first);",
    put: "void 0;",
    noticedBy: {
      file: "test/unit/cli/interface.test.ts",
      title: "what is not understood of an interface is said",
    },
  },
  {
    kind: "mark",
    name: "a caller's farewell counts as a breach of the protocol",
    file: "daemon/api/api-server.ts",
    find: 'if (!isFarewell(error)) refused("http2");',
    put: 'refused("http2");',
    noticedBy: {
      file: "test/unit/daemon/api/limits.test.ts",
      title:
        "an ordinary call counts nothing, however its connection ends; a breach of the protocol counts",
    },
  },
  {
    kind: "release",
    name: "an answer's end waits a second for a request that has ended",
    file: "daemon/api/http/request-rest.ts",
    find: "if (source.readableEnded || source.destroyed) return true;",
    put: "if (source.destroyed || Date.now() > 0) return source.destroyed;",
    noticedBy: {
      file: "test/unit/daemon/api/early-answers.test.ts",
      title: "an answer does not end before its request: refused by a limit",
    },
  },
  {
    kind: "bound",
    name: "a request that goes on after its answer keeps its stream",
    file: "daemon/api/http/request-rest.ts",
    find: "  stream.close(constants.NGHTTP2_NO_ERROR);\n  stream.destroy();",
    put: "  void constants;",
    noticedBy: {
      file: "test/unit/daemon/api/early-answers.test.ts",
      title: "a request that goes on is read on for a while, and then reset without an error",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "the metrics are for everybody",
    file: "daemon/api/http/request-handler.ts",
    find: 'demand(caller.peer, caller.role, "viewer", "What is served here");',
    put: "void demand;",
    noticedBy: {
      file: access,
      title: "the metrics take a viewer, and other paths answer an unknown caller nothing",
    },
  },
  {
    kind: "access",
    name: "a user's number is taken for a group's",
    file: "daemon/listeners/access.ts",
    find: 'if (entry.kind === "uid") return entry.id === peer.uid;\n  return entry.id === peer.gid',
    put: "return entry.id === peer.uid || entry.id === peer.gid",
    noticedBy: {
      file: access,
      title: "root and the daemon's own user have every role, and no other user is taken for them",
    },
  },
  {
    kind: "access",
    name: "a name in a certificate may hold others",
    file: "daemon/listeners/peer.ts",
    find: '("(?:[^"\\\\]|\\\\.)*"|[^,]*)',
    put: "([^,]*)",
    noticedBy: { file: access, title: "names in a certificate cannot pass for others" },
  },
  {
    kind: "access",
    name: "a method that is not in the table is for everybody",
    file: "api/roles.ts",
    find: '?.[method.localName] ?? "admin";',
    put: '?.[method.localName] ?? "viewer";',
    noticedBy: { file: access, title: "a method that is not in the table is for administrators" },
  },
  {
    kind: "escape",
    name: "a path may hold control characters",
    file: "api/validate/disks.ts",
    find: "path.length > longestPath || /\\p{Cc}/u.test(path)",
    put: "path.length > longestPath",
    noticedBy: validate,
  },
  {
    kind: "escape",
    name: "a kernel's command line may hold line breaks",
    file: "api/validate/validate.ts",
    find: "!/^[\\x20-\\x7e]*$/.test(cmdline)",
    put: "!/^[\\x20-\\x7e\\n]*$/.test(cmdline)",
    noticedBy: validate,
  },
  {
    kind: "escape",
    name: "a text may turn the direction of what is around it",
    file: "core/shown.ts",
    find: "\\u2028-\\u202e",
    put: "\\u2028-\\u2029",
    noticedBy: {
      file: callers,
      title: "a log's lines hold nothing that steers, however deep it lies, and have an end",
    },
  },
  {
    kind: "escape",
    name: "fields of the log are written as they came",
    file: "linux/log.ts",
    find: 'if (typeof value === "string") return shown(value);',
    put: "",
    noticedBy: {
      file: callers,
      title: "a log's lines hold nothing that steers, however deep it lies, and have an end",
    },
  },
  {
    kind: "escape",
    name: "answers carry a guest's texts as they came",
    file: "daemon/api/http/request-handler.ts",
    find: "...(options.verbatim === true ? [] : [shownAnswers]),",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/api/server.test.ts",
      title: "every text of an answer is one that may be shown, in streams too",
    },
  },
  {
    kind: "escape",
    name: "Kubernetes gets its annotations back changed",
    file: "daemon/cri/serve-cri.ts",
    find: "verbatim: true,",
    put: "verbatim: false,",
    noticedBy: {
      file: "test/unit/daemon/cri/sandboxes.test.ts",
      title: "a sandbox goes its way: run, status, list, stop, remove",
    },
  },
  {
    kind: "access",
    name: "Kubernetes ends pods that are not its own",
    file: "daemon/cri/sandboxes.ts",
    find: "if (row !== undefined && row.id === id && isSandbox(row)) return row;",
    put: "if (row !== undefined && row.id === id) return row;",
    noticedBy: {
      file: "test/unit/daemon/cri/sandboxes.test.ts",
      title: "pods that are no sandboxes are neither seen nor ended",
    },
  },
  {
    kind: "escape",
    name: "the end of a guest's console is shown as it came",
    file: "daemon/pods/guest/console-tail.ts",
    find: '.replaceAll(/[^\\n\\u0020-\\u007e]/g, "");',
    put: ";",
    noticedBy: {
      file: "test/unit/daemon/parts.test.ts",
      title: "a guest's console tail begins at its panic and holds nothing a terminal obeys",
    },
  },
  {
    kind: "access",
    name: "the API's socket is for everybody",
    file: "daemon/listeners/unix-listener.ts",
    find: "mode = 0o660",
    put: "mode = 0o666",
    noticedBy: {
      file: "test/unit/daemon/api/server.test.ts",
      title:
        "the socket is for root and its group, goes with the server, and is replaced only when dead",
    },
  },
  {
    kind: "access",
    name: "files that are made while a socket opens have the socket's mask",
    file: "daemon/listeners/unix-listener.ts",
    find: "    server.listen(path);",
    put: "    server.listen(path);\n    await listening;",
    noticedBy: {
      file: "test/unit/daemon/listeners/unix-listener.test.ts",
      title:
        "a socket that is being opened is its owner's, and leaves the process's file mask as it was",
    },
  },
  {
    kind: "mark",
    name: "a file that is no socket is replaced by the API's",
    file: "daemon/listeners/unix-listener.ts",
    find: "if (lstatSync(path).isSocket())\n      perform(",
    put: "perform(",
    noticedBy: {
      file: "test/unit/daemon/api/server.test.ts",
      title: "a file that is no socket is left alone",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "the command does not print the console that an error's hint refers to",
    file: "cli/views/report.ts",
    find: "...quotesOf(error.details, error.message)",
    put: "...quotesOf({}, error.message)",
    noticedBy: {
      file: "test/unit/cli/views/error-details.test.ts",
      title: "an error prints the console and the program's words that its hint refers to",
    },
  },
  {
    kind: "escape",
    name: "a console in an error steers the caller's terminal",
    file: "cli/views/error-details.ts",
    find: ".map(harmless) }];",
    put: ".map(String) }];",
    noticedBy: {
      file: "test/unit/cli/views/error-details.test.ts",
      title: "get prints the console that a failed pod's hint refers to",
    },
  },
  {
    kind: "access",
    name: "an operator has the host ask whatever address it names",
    file: "daemon/api/service-service.ts",
    find: 'refuseChecksOutside(services.get(name).check, asked.set, context.values, "set");',
    put: "",
    noticedBy: {
      file: "test/unit/daemon/api/others-links.test.ts",
      title:
        "checks of backends that are no pods are for administrators, by whichever call they come",
    },
  },
];
