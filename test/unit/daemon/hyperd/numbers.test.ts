import test from "ava";
import { callGrpc, decode, type Fields } from "../../../lab/hyperd-grpc.ts";
import { podOne, startHyperd, storeImage } from "./rig.ts";

// The numbers of fields, written as a client has them that was compiled from hyperd's own
// definition: nothing here comes from podnet's. They are the published ones of `types.PublicAPI`.

const container = (name: string): Fields => [
  [1, name],
  [2, "nginx:1.25"],
];

test("a container is created by hyperd's own numbers, renamed, and seen in its pod", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  const { socket } = rig;
  const created = await callGrpc(socket, "PodCreate", [
    [
      1,
      [
        [1, "pod-one"],
        [10, container("a")],
        [10, container("b")],
      ],
    ],
  ]);
  t.is(created.status, 0, created.message);
  const { status, message, fields } = await callGrpc(socket, "ContainerCreate", [
    [1, container("c")],
    [2, "pod-one"],
  ]);
  t.is(status, 0, message);
  t.regex(String(fields[0]?.[1]), /^[0-9a-f]{64}$/);
  const renamed = await callGrpc(socket, "ContainerRename", [
    [1, "c"],
    [2, "d"],
  ]);
  t.is(renamed.status, 0, renamed.message);
  const listed = await callGrpc(socket, "ContainerList", [[1, "pod-one"]]);
  const names = listed.fields.map(
    ([, each]) => decode(Buffer.from(String(each), "latin1"))[1]?.[1],
  );
  t.deepEqual(names, ["a", "b", "d"]);
});

test("volumes and their places are shown by hyperd's numbers", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  const { socket } = rig;
  const volume: Fields = [
    [1, "/data"],
    [2, "v"],
    [3, 1],
  ];
  const made = await callGrpc(socket, "PodCreate", [
    [
      1,
      [
        [1, "pod-one"],
        [10, [...container("a"), [11, volume]]],
        [
          12,
          [
            [1, "v"],
            [3, "vfs"],
          ],
        ],
      ],
    ],
  ]);
  t.is(made.status, 0, made.message);
  const of = (text: unknown): ReturnType<typeof decode> =>
    decode(Buffer.from(String(text), "latin1"));
  const only = (fields: ReturnType<typeof decode>, number: number): unknown =>
    fields.find(([each]) => each === number)?.[1];
  const info = await callGrpc(socket, "PodInfo", [[1, "pod-one"]]);
  const spec = of(only(of(only(info.fields, 1)), 6));
  t.deepEqual(of(only(spec, 1)), [
    [1, "v"],
    [3, "vfs"],
  ]);
  t.deepEqual(of(only(of(only(spec, 2)), 13)), [
    [1, "v"],
    [2, "/data"],
    [3, 1],
  ]);
  // A Ceph volume's option is refused, and is not its filesystem.
  for (const field of [4, 5] as const) {
    const option: Fields[number] = field === 4 ? [4, [[1, "admin"]]] : [5, "ext4"];
    const refused = await callGrpc(socket, "PodCreate", [
      [
        1,
        [
          [1, "pod-two"],
          [12, [[1, "v"], option]],
        ],
      ],
    ]);
    t.regex(refused.message, /mounts no disks/);
  }
});

test("a field by an unknown number is refused in any message, and changes nothing", async (t) => {
  await using rig = await startHyperd();
  const { socket } = rig;
  await rig.send("POST", "/pod/create", podOne());
  const cases: readonly (readonly [method: string, Fields, where: RegExp])[] = [
    ["Ping", [[9, 1]], /field 9 of the request/],
    [
      "PodStop",
      [
        [1, "pod-one"],
        [7, 1],
      ],
      /field 7 of the request/,
    ],
    ["ContainerList", [[3, 1]], /field 3 of the request/],
    [
      "ServiceAdd",
      [
        [1, "pod-one"],
        [
          2,
          [
            [1, "10.73.0.80"],
            [8, "x"],
          ],
        ],
      ],
      /field 8 of services/,
    ],
    [
      "PodCreate",
      [
        [
          1,
          [
            [1, "x"],
            [7, [[9, 1]]],
          ],
        ],
      ],
      /field 9 of podSpec\.resource/,
    ],
    [
      "ExecStart",
      [
        [1, "pod-one"],
        [5, 1],
      ],
      /field 5 of the request/,
    ],
  ];
  for (const [method, fields, where] of cases) {
    const { status, message } = await callGrpc(socket, method, fields);
    t.is(status, 3, method);
    t.regex(message, where);
  }
  t.deepEqual(
    rig.node.pods.list().map(({ name, state }) => `${name} ${state}`),
    ["pod-one running"],
  );
});
