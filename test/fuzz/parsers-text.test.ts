import { fuzz } from "./engine/suite.ts";

fuzz("text", async () => {
  const [
    { addressTexts },
    { text },
    { hostFiles },
    { images },
    { ports },
    { nftables, chainText },
    { dns },
    { rules },
    { overlay },
    { podRecords },
    { cniRuntime },
    { tar },
    { imageArchives },
  ] = await Promise.all([
    import("./targets/addresses.ts"),
    import("./targets/text.ts"),
    import("./targets/host-files.ts"),
    import("./targets/images.ts"),
    import("./targets/ports.ts"),
    import("./targets/nftables.ts"),
    import("./targets/dns.ts"),
    import("./targets/rules.ts"),
    import("./targets/overlay.ts"),
    import("./targets/pod-records.ts"),
    import("./targets/cni-runtime.ts"),
    import("./targets/tar.ts"),
    import("./targets/image-archives.ts"),
  ]);
  return [
    ...addressTexts,
    ...text,
    ...hostFiles,
    images,
    ports,
    nftables,
    chainText,
    ...dns,
    ...rules,
    overlay,
    podRecords,
    ...cniRuntime,
    tar,
    imageArchives,
  ];
});
