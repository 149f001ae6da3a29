import test from "ava";
import { casesOf } from "../../crash/matrix.ts";
import { byChance, leftBehind, pointsIn } from "../../crash/points.ts";

const ofOne = (name: string, number = 1): string[] => [
  `${name}:before#${number}`,
  `${name}:after#${number}`,
];

test("each side of each call is a point, and every action is taken at it", (t) => {
  const record = [...ofOne("commit:claim"), ...ofOne("qmp:getfd"), ...ofOne("qmp:getfd", 2)];
  t.deepEqual(pointsIn(record, record), record);
  const cases = casesOf("create", pointsIn(record));
  t.is(cases.length, 3 * record.length);
  t.is(new Set(cases.map(({ point, action }) => `${point}=${action}`)).size, cases.length);
  // But for what Linux does not do.
  t.is(casesOf("create", ofOne("ioctl:close tap")).length, 5);
});

test("a call that failed and was repeated is one point; what only one run has is none", (t) => {
  const repeated = [
    "socket:connect qmp.sock:before#1",
    "socket:connect qmp.sock:failed#1",
    "socket:connect qmp.sock:before#2",
    "socket:connect qmp.sock:after#1",
  ];
  t.deepEqual(pointsIn(repeated), ofOne("socket:connect qmp.sock"));
  const never = repeated.slice(0, 2);
  t.deepEqual(pointsIn(never), never.slice(0, 1), "a call that never comes back has begun");
  t.deepEqual(
    pointsIn([...repeated, ...ofOne("netlink:read")], repeated),
    ofOne("socket:connect qmp.sock"),
  );
});

test("only looks for drift come by chance, and in a recovery and a start they are points too", (t) => {
  for (const point of ["netlink:list links:before#1", "netlink:list addresses:after#2"]) {
    t.true(byChance("create", point));
    t.false(byChance("recover", point));
    t.false(byChance("start", point));
  }
  for (const point of ["netlink:add bridge:before#1", "command:iptables-nft-save:before#1"])
    t.false(byChance("create", point));
});

test("kills share a number where nothing changes between them outside of podnetd", (t) => {
  const points = [
    ...ofOne("commit:claim"),
    ...ofOne("netlink:list links"),
    ...ofOne("netlink:add bridge"),
    ...ofOne("spawn:qemu"),
    ...ofOne("commit:running"),
  ];
  const left = leftBehind(points);
  t.deepEqual(
    points.map((point) => left.get(point)),
    // A child goes on by itself: what it has done when the next call begins is another matter.
    [0, 1, 1, 1, 1, 2, 2, 3, 4, 5],
  );
});
