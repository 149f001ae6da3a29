import { globSync } from "node:fs";
import path from "node:path";
import type { DescService } from "@bufbuild/protobuf";
import test from "ava";
import { roleFor } from "../../api/roles.ts";

const top = path.resolve(import.meta.dirname, "../..");

const isService = (value: unknown): value is DescService =>
  typeof value === "object" && value !== null && "kind" in value && value.kind === "service";

test("every service there is has roles in the table", async (t) => {
  const services: DescService[] = [];
  for (const file of globSync("api/gen/**/*_pb.ts", { cwd: top })) {
    const module = (await import(path.join(top, file))) as Record<string, unknown>;
    services.push(...Object.values(module).filter(isService));
  }
  t.true(services.length >= 5);
  // The compiler sees to each method of a service in the table. Of one left out of the table, all
  // methods are for administrators alone.
  for (const { typeName, methods } of services) {
    const isInTable = methods.some((method) => roleFor(method) !== "admin");
    t.true(isInTable, `Give the methods of ${typeName} roles in api/roles.ts`);
  }
});
