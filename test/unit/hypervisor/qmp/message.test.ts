import test from "ava";
import * as fc from "fast-check";
import { isPodnetError } from "../../../../core/errors.ts";
import { eventData, type QmpEvent } from "../../../../hypervisor/qmp/commands.ts";
import { parseMessage } from "../../../../hypervisor/qmp/message.ts";

test("a greeting gives the version", (t) => {
  const line =
    '{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian 1:7.2+dfsg-7"}, "capabilities": ["oob"]}}';
  t.deepEqual(parseMessage(line), {
    kind: "greeting",
    version: { major: 7, minor: 2, micro: 22, package: "Debian 1:7.2+dfsg-7" },
    capabilities: ["oob"],
  });
});

test("replies keep value, class and description", (t) => {
  t.deepEqual(parseMessage('{"return": "", "id": 3}'), { kind: "return", id: 3, value: "" });
  t.deepEqual(
    parseMessage(
      '{"id": 4, "error": {"class": "DeviceNotFound", "desc": "Device \'x\' not found"}}',
    ),
    { kind: "error", id: 4, errorClass: "DeviceNotFound", description: "Device 'x' not found" },
  );
});

test("an event keeps data and time", (t) => {
  const line =
    '{"timestamp": {"seconds": 1, "microseconds": 500000}, "event": "DEVICE_DELETED", "data": {"device": "n0", "path": "/p"}}';
  const message = parseMessage(line) as QmpEvent;
  t.deepEqual(message, {
    kind: "event",
    name: "DEVICE_DELETED",
    data: { device: "n0", path: "/p" },
    timestampMs: 1500,
  });
  t.is(eventData(message, "DEVICE_DELETED")?.device, "n0");
  t.is(eventData(message, "RESET"), undefined);
});

test("an event's data of other types than QEMU's is no data", (t) => {
  const event = { name: "VSERPORT_CHANGE", timestampMs: 0, data: { id: 7, open: true } };
  t.is(eventData(event, "VSERPORT_CHANGE"), undefined);
  t.deepEqual(eventData({ ...event, data: { id: "channel0", open: true } }, "VSERPORT_CHANGE"), {
    id: "channel0",
    open: true,
  });
});

for (const line of [
  "",
  "nonsense",
  "[]",
  "null",
  "{}",
  '{"QMP": null}',
  '{"QMP": {"version": {"qemu": {}}, "capabilities": []}}',
  '{"event": "X"}',
  '{"event": "X", "timestamp": {"seconds": "1", "microseconds": 0}}',
  '{"event": "X", "data": [], "timestamp": {"seconds": 1, "microseconds": 0}}',
  '{"return": {}, "id": "1"}',
  '{"return": {}, "id": 1.5}',
  '{"error": {"class": "GenericError"}, "id": 1}',
  '{"id": 1}',
]) {
  test(`refused: ${line}`, (t) => {
    t.like(
      t.throws(() => parseMessage(line)),
      { code: "QMP_PROTOCOL" },
    );
  });
}

test("whatever JSON arrives is parsed or refused with QMP_PROTOCOL", (t) => {
  const key = fc.constantFrom(
    "QMP",
    "return",
    "error",
    "event",
    "id",
    "data",
    "timestamp",
    "class",
  );
  const message = fc.dictionary(key, fc.jsonValue({ maxDepth: 3 }));
  fc.assert(
    fc.property(message, (value) => {
      try {
        parseMessage(JSON.stringify(value));
      } catch (error) {
        return isPodnetError(error, "QMP_PROTOCOL");
      }
      return true;
    }),
    { numRuns: 2000 },
  );
  t.pass();
});
