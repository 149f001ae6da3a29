import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import test from "ava";
import { PodState } from "../../../../api/gen/podnet/v1/pod_pb.ts";
import { PodService } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../../api/service.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { serve } from "../../api/fixtures/server.ts";
import { podnet } from "../fixtures/io.ts";

const details: Record<string, Record<string, string>> = {
  panicked: { pid: "42", console: "[ 0.1] \u001b[31mKernel panic\n[ 0.2] Rebooting" },
  silent: { console: "" },
  rules: { stderr: "iptables: first\niptables: second", argv: "iptables-restore" },
  short: { stderr: "no such table" },
};
const played: Partial<ServiceImpl<typeof PodService>> = {
  get: ({ idOrName }) => ({
    pod: {
      name: idOrName,
      state: PodState.FAILED,
      failure: {
        code: "BOOT_FAILED",
        message: "It restarted",
        hint: "See",
        details: details[idOrName] ?? {},
      },
    },
  }),
  delete: ({ idOrName }) => {
    throw new PodnetError("FIREWALL_FAILED", "iptables: no such table", {
      hint: "See what iptables said in the details",
      details: details[idOrName] ?? {},
    });
  },
};
const server = await serve((router: ConnectRouter) => addService(router, PodService, played));
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test("an error prints the console and the program's words that its hint refers to", async (t) => {
  const printed = async (name: string): Promise<string> =>
    (await podnet(["delete", name], here)).err.replace(/^[^]*details\n/, "");
  t.is(
    await printed("panicked"),
    "  details, console:\n    [ 0.1] \\u001b[31mKernel panic\n    [ 0.2] Rebooting\n",
  );
  t.is(await printed("silent"), "  details, console:\n    (nothing was printed)\n");
  t.is(await printed("rules"), "  details, stderr:\n    iptables: first\n    iptables: second\n");
  // The message says it already.
  t.is(await printed("short"), "");
  t.is(await printed("other"), "");
});

test("get prints the console that a failed pod's hint refers to", async (t) => {
  const { out } = await podnet(["get", "panicked"], here);
  t.regex(out, /^Details, console +\[ 0\.1\] \\u001b\[31mKernel panic\n +\[ 0\.2\] Rebooting$/m);
  t.regex(
    (await podnet(["get", "silent"], here)).out,
    /^Details, console +\(nothing was printed\)$/m,
  );
  t.notRegex((await podnet(["get", "other"], here)).out, /Details/);
});
