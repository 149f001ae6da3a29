import { globSync } from "node:fs";
import path from "node:path";
import type { DescService } from "@bufbuild/protobuf";
import test from "ava";
import { hasRole } from "../../api/roles.ts";

const top = path.resolve(import.meta.dirname, "../..");

const isService = (value: unknown): value is DescService =>
  typeof value === "object" && value !== null && "kind" in value && value.kind === "service";

test("every method of every service there is has a role in the table", async (t) => {
  const services: DescService[] = [];
  for (const file of globSync("api/gen/**/*_pb.ts", { cwd: top })) {
    const module = (await import(path.join(top, file))) as Record<string, unknown>;
    services.push(...Object.values(module).filter(isService));
  }
  t.true(services.length >= 5);
  for (const method of services.flatMap((service) => service.methods)) {
    t.true(hasRole(method), `Give ${method.parent.typeName}.${method.name} a role in api/roles.ts`);
  }
});
