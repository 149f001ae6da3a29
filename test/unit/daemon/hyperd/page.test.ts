import { readFileSync } from "node:fs";
import type { DescMessage } from "@bufbuild/protobuf";
import test from "ava";
import {
  PublicAPI,
  UserContainerSchema,
  UserFileReferenceSchema,
  UserFileSchema,
  UserInterfaceSchema,
  UserPodSchema,
  UserServiceSchema,
  UserVolumeReferenceSchema,
  UserVolumeSchema,
} from "../../../../daemon/hyperd/gen/hyperd_pb.ts";
import { publicRoleFor } from "../../../../daemon/hyperd/grpc/roles.ts";
import { hyperdRoutes } from "../../../../daemon/hyperd/serve-hyperd.ts";

// docs/reference/hyperd.md and hyperd-grpc.md say what becomes of each call and field. Which calls
// hyperd has is from the facts about it: the lists below are not made of podnet's own tables.

const page = readFileSync("docs/reference/hyperd.md", "utf8");
const grpcPage = readFileSync("docs/reference/hyperd-grpc.md", "utf8");
/** The cells of rows about something in code. */
const rowsOf = (text: string): string[][] =>
  text
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => line.split("|").map((cell) => cell.trim()));
const rows = rowsOf(page);

const none = {} as never;
const { routes, streams } = hyperdRoutes(none, none, none, none, none);
const all = [...routes, ...streams];

/** hyperd's calls, as the facts have them, and those that its client of 1.1 sends. */
const hyperds = [
  "GET /_ping",
  "GET /info",
  "GET /version",
  "GET /list",
  "GET /pod/info",
  "GET /pod/stats",
  "GET /pod/{id}/portmappings",
  "GET /service/list",
  "GET /container/info",
  "GET /container/logs",
  "GET /exitcode",
  "GET /images/get",
  "GET /images/save",
  "POST /pod/create",
  "POST /pod/start",
  "POST /pod/stop",
  "POST /pod/kill",
  "POST /pod/pause",
  "POST /pod/unpause",
  "POST /pod/labels",
  "POST /service/add",
  "POST /service/update",
  "POST /container/create",
  "POST /container/start",
  "POST /container/rename",
  "POST /container/commit",
  "POST /container/stop",
  "POST /container/remove",
  "POST /container/kill",
  "POST /exec/create",
  "POST /exec/start",
  "POST /attach",
  "POST /execvm",
  "POST /tty/resize",
  "POST /image/build",
  "POST /image/create",
  "POST /image/load",
  "POST /image/push",
  "POST /auth",
  "POST /vm/create",
  "PUT /pod/{id}/portmappings/{action}",
  "DELETE /pod",
  "DELETE /service",
  "DELETE /image",
  "DELETE /vm",
];
const hyperdsMethods = [
  ..."List Create Info Remove Start Stop Signal Pause Unpause Stats"
    .split(" ")
    .map((each) => `Pod${each}`),
  ..."SetPodLabels ExecVM Attach Wait TTYResize VMList Ping Info Version".split(" "),
  ..."List Info Logs Create Start Rename Signal Stop Remove"
    .split(" ")
    .map((each) => `Container${each}`),
  ..."Create Start Signal".split(" ").map((each) => `Exec${each}`),
  ..."List Add Delete Update".split(" ").map((each) => `Service${each}`),
  ..."List Add Del".split(" ").map((each) => `PortMapping${each}`),
  ..."List Pull Push Remove".split(" ").map((each) => `Image${each}`),
];

test("every call of hyperd's is answered or refused, and has a row with its parameters and role", (t) => {
  const named = new Map(all.map((each) => [`${each.method} ${each.path}`, each]));
  t.is(named.size, all.length, "each once");
  for (const call of hyperds) t.true(named.has(call), call);
  const shown = new Map<string, string>();
  for (const [, cell = "", role = ""] of rows) {
    const [, call] = /^`((?:GET|POST|PUT|DELETE) [^`]+)`$/.exec(cell) ?? [];
    if (call === undefined) continue;
    t.false(shown.has(call), `${call} has two rows`);
    shown.set(call, role);
  }
  const wanted = new Map(
    all.map(({ method, path, parameters, role }) => {
      const list = parameters === "refused" ? [] : parameters;
      const query = list.length === 0 ? "" : `?${list.map((each) => `${each}=`).join("&")}`;
      return [`${method} ${path}${query}`, parameters === "refused" ? "refused" : role];
    }),
  );
  t.deepEqual(Object.fromEntries(shown), Object.fromEntries(wanted));
});

test("every method of hyperd's gRPC is there, and has a row with its role", (t) => {
  const methods = PublicAPI.methods.map(({ name }) => name);
  t.deepEqual(methods.toSorted(), hyperdsMethods.toSorted());
  const shown = rowsOf(grpcPage).map(([, name = "", role = ""]) => [
    name.replaceAll("`", ""),
    role,
  ]);
  const wanted = PublicAPI.methods.map((method) => [
    method.name,
    ["ImagePush"].includes(method.name) ? "refused" : publicRoleFor(method),
  ]);
  t.is(shown.length, new Map(shown as [string, string][]).size, "each once");
  t.deepEqual(Object.fromEntries(shown), Object.fromEntries(wanted));
});

test("every field of a pod, and of what is in it, has a row", (t) => {
  const first = rows.map(([, cell = ""]) => cell).join(" ");
  const has = (name: string): boolean => first.includes(`\`${name}\``);
  const schemas: readonly (readonly [DescMessage, string])[] = [
    [UserPodSchema, ""],
    [UserContainerSchema, ""],
    [UserServiceSchema, ""],
    [UserVolumeSchema, "volumes."],
    [UserVolumeReferenceSchema, "volumes."],
    [UserFileSchema, "files."],
    [UserFileReferenceSchema, "files."],
    [UserInterfaceSchema, "interfaces."],
  ];
  for (const [schema, before] of schemas)
    for (const { name } of schema.fields)
      t.true(has(`${before}${name}`), `${schema.name}.${name}: \`${before}${name}\``);
});
