import type { ServerResponse } from "node:http";
import { create, toBinary } from "@bufbuild/protobuf";
import test from "ava";
import { ExecResponseSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  headOfBytes,
  isBinaryStream,
  OwnMessages,
} from "../../../../daemon/api/http/own-messages.ts";

/** Of an answer: what Node holds of it, and whether it is closed. */
function answer(): { held: number; destroyed: boolean; closed: boolean; response: ServerResponse } {
  const stream = { held: 0, destroyed: false, closed: false, writableLength: 0 };
  Object.defineProperty(stream, "writableLength", { get: () => stream.held });
  return Object.assign(stream, { response: { stream } as unknown as ServerResponse });
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();
const bytes = (of: string): Uint8Array => Buffer.from(of);

test("what a method encodes itself is as the codec would have it", (t) => {
  for (const kind of ["stdout", "stderr"] as const)
    for (const length of [1, 127, 128, 16_383, 16_384, 131_072, 3_000_000]) {
      const value = new Uint8Array(length).fill(7);
      const message = toBinary(
        ExecResponseSchema,
        create(ExecResponseSchema, { output: { case: kind, value } }),
      );
      const envelope = Buffer.alloc(5);
      envelope.writeUInt32BE(message.length, 1);
      const head = headOfBytes(ExecResponseSchema.field[kind].number, length);
      t.true(Buffer.concat([head, value]).equals(Buffer.concat([envelope, message])), `${length}`);
    }
});

test("only streams of protobuf have such messages", (t) => {
  for (const type of ["application/connect+proto", "application/grpc", "application/grpc+proto"])
    t.true(isBinaryStream(type), type);
  for (const type of ["application/grpc-web+proto", "application/grpc-web; charset=utf-8"])
    t.true(isBinaryStream(type), type);
  for (const type of ["", "application/connect+json", "application/grpc+json", "application/proto"])
    t.false(isBinaryStream(type), type);
  t.false(isBinaryStream("application/grpc-web-text"));
});

test("messages come in their places, and memory is given back once Node holds none of it", async (t) => {
  const stream = answer();
  const own = new OwnMessages(stream.response);
  const written: string[] = [];
  async function* method(): AsyncGenerator<Uint8Array> {
    yield bytes("begins");
    await own.send(bytes("one"), () => written.push("one"));
    await own.send(bytes("three"), () => written.push("three"));
    yield bytes("then");
    await own.send(bytes("last"), () => written.push("last"));
  }
  const body = own.among(method());
  const next = async (held: number): Promise<string> => {
    stream.held = held;
    const result = await body.next();
    return result.done === true ? "" : text(result.value);
  };
  t.is(await next(0), "begins");
  t.is(await next(6), "one");
  t.is(await next(9), "three");
  t.deepEqual(written, []);
  // All of the first and a byte of the second are with the kernel.
  t.is(await next(4), "then");
  t.deepEqual(written, ["one"]);
  t.is(await next(5), "last");
  t.deepEqual(written, ["one"]);
  t.is(await next(4), "");
  t.deepEqual(written, ["one", "three"]);
});

for (const how of ["destroyed", "closed"] as const)
  test(`of an answer that is ${how} nothing is given back: Node may still be writing it`, async (t) => {
    const stream = answer();
    const own = new OwnMessages(stream.response);
    async function* method(): AsyncGenerator<Uint8Array> {
      yield bytes("begins");
      await own.send(bytes("one"), () => t.fail("its memory is in use"));
      await own.send(bytes("two"), () => t.fail("its memory is in use"));
    }
    const body = own.among(method());
    await body.next();
    stream.held = 3;
    await body.next();
    stream[how] = true;
    stream.held = 0;
    await body.next();
    await body.next();
    t.pass();
  });

test("a method whose caller goes away is notified, while it sends and afterwards", async (t) => {
  const own = new OwnMessages(answer().response);
  const over = Promise.withResolvers<unknown>();
  async function* method(): AsyncGenerator<Uint8Array> {
    try {
      yield bytes("begins");
      await own.send(bytes("one"), () => {});
      await own.send(bytes("two"), () => {});
    } catch (thrown) {
      over.resolve(thrown);
      throw thrown;
    }
  }
  const body = own.among(method());
  await body.next();
  await body.next();
  await body.return();
  t.like(await over.promise, { code: "CANCELLED" });
  await t.throwsAsync(
    own.send(bytes("three"), () => {}),
    { code: "CANCELLED" },
  );
});

test("a method's failure comes behind its messages", async (t) => {
  const own = new OwnMessages(answer().response);
  async function* method(): AsyncGenerator<Uint8Array> {
    yield bytes("begins");
    await own.send(bytes("one"), () => {});
    throw new Error("the guest is gone");
  }
  const body = own.among(method());
  t.is(text((await body.next()).value as Uint8Array), "begins");
  t.is(text((await body.next()).value as Uint8Array), "one");
  await t.throwsAsync(body.next(), { message: "the guest is gone" });
});
