import type { VmPlan } from "../driver.ts";

/** The place on pcie.0 that neither disks nor the ports of NICs have: its functions are shares. */
const place = 0x1d;

/** The name of a share in the plan, by which its guest finds it. */
export const shareTag = (index: number): string => `share${index}`;

/** The socket between QEMU and the program that serves a share, in the run directory. */
export const shareSocket = (index: number): string => `${shareTag(index)}.sock`;

/** The guest's memory as an object that the programs that serve shares read and write as well. */
export const sharedMemoryWords = ({ memoryMib }: Pick<VmPlan, "memoryMib">): string =>
  `memory-backend-memfd,id=ram0,size=${memoryMib}M,share=on`;

/** QEMU's words for the shares, whose sockets listen already. Pure. */
export const shareWords = ({ shares = [] }: Pick<VmPlan, "shares">): string[] =>
  shares.flatMap(({ tag }, index) => {
    const more = index === 0 ? ",multifunction=on" : "";
    return [
      "-chardev",
      `socket,id=${tag},path=${shareSocket(index)}`,
      "-device",
      `vhost-user-fs-pci,id=fs-${tag},chardev=${tag},tag=${tag},bus=pcie.0,addr=0x${place.toString(16)}.${index}${more}`,
    ];
  });
