import { fuzz } from "./engine/suite.ts";

fuzz("text", async () => {
  const [{ addressTexts }, { text }, { hostFiles }, { images }, { ports }, { nftables }, { dns }] =
    await Promise.all([
      import("./targets/addresses.ts"),
      import("./targets/text.ts"),
      import("./targets/host-files.ts"),
      import("./targets/images.ts"),
      import("./targets/ports.ts"),
      import("./targets/nftables.ts"),
      import("./targets/dns.ts"),
    ]);
  return [...addressTexts, ...text, ...hostFiles, images, ports, nftables, ...dns];
});
