/**
 * Every foreign function podnet calls, declared once. Nothing outside `linux/` imports this file.
 *
 * Pointers are given as byte arrays whose layout the caller builds; sizes are not checked by koffi,
 * so each caller keeps array and length together. All layouts are those of 64-bit little-endian
 * Linux (x86_64, aarch64).
 */
import koffi, { type KoffiFunc } from "koffi";

// null means the symbols of this very process: the libc Node itself runs on, glibc or musl.
const libc = koffi.load(null);

type Bytes = Uint8Array;

/** `void _exit(int status)` */
export const exit = libc.func("void _exit(int)") as KoffiFunc<(status: number) => void>;

/** `int socket(int domain, int type, int protocol)` */
export const socket = libc.func("int socket(int, int, int)") as KoffiFunc<
  (domain: number, type: number, protocol: number) => number
>;

/** `int connect(int fd, const struct sockaddr *, socklen_t)` */
export const connect = libc.func("int connect(int, const void *, uint32_t)") as KoffiFunc<
  (fd: number, address: Bytes, length: number) => number
>;

/** `int bind(int fd, const struct sockaddr *, socklen_t)` */
export const bind = libc.func("int bind(int, const void *, uint32_t)") as KoffiFunc<
  (fd: number, address: Bytes, length: number) => number
>;

/** `int getsockopt(int fd, int level, int name, void *value, socklen_t *)` */
export const getsockopt = libc.func("int getsockopt(int, int, int, void *, void *)") as KoffiFunc<
  (fd: number, level: number, name: number, value: Bytes, length: Bytes) => number
>;

/** `int setsockopt(int fd, int level, int name, const void *value, socklen_t)` */
export const setsockopt = libc.func(
  "int setsockopt(int, int, int, const void *, uint32_t)",
) as KoffiFunc<(fd: number, level: number, name: number, value: Bytes, length: number) => number>;

/** `ssize_t send(int fd, const void *, size_t, int flags)` */
export const send = libc.func("long send(int, const void *, size_t, int)") as KoffiFunc<
  (fd: number, bytes: Bytes, length: number, flags: number) => number
>;

/** `ssize_t recv(int fd, void *, size_t, int flags)` */
export const recv = libc.func("long recv(int, void *, size_t, int)") as KoffiFunc<
  (fd: number, bytes: Bytes, length: number, flags: number) => number
>;

/** `ssize_t sendmsg(int fd, const struct msghdr *, int flags)` */
export const sendmsg = libc.func("long sendmsg(int, const void *, int)") as KoffiFunc<
  (fd: number, header: Bytes, flags: number) => number
>;

/** `ssize_t recvmsg(int fd, struct msghdr *, int flags)` */
export const recvmsg = libc.func("long recvmsg(int, void *, int)") as KoffiFunc<
  (fd: number, header: Bytes, flags: number) => number
>;

/** `int recvmmsg(int fd, struct mmsghdr *, unsigned int count, int flags, struct timespec *)` */
export const recvmmsg = libc.func("int recvmmsg(int, void *, uint32_t, int, void *)") as KoffiFunc<
  (fd: number, headers: Bytes, count: number, flags: number, timeout: null) => number
>;

/**
 * `int sendmmsg(int fd, struct mmsghdr *, unsigned int count, int
 * flags)`; `headers` is where the first of them is.
 */
export const sendmmsg = libc.func("int sendmmsg(int, uintptr_t, uint32_t, int)") as KoffiFunc<
  (fd: number, headers: number, count: number, flags: number) => number
>;

/** `ssize_t read(int fd, void *, size_t)`; `bytes` is where they go. */
export const read = libc.func("long read(int, uintptr_t, size_t)") as KoffiFunc<
  (fd: number, bytes: number, length: number) => number
>;

/** `ssize_t writev(int fd, const struct iovec *, int count)` */
export const writev = libc.func("long writev(int, void *, int)") as KoffiFunc<
  (fd: number, vectors: Bytes, count: number) => number
>;

/** `int poll(struct pollfd *, nfds_t, int milliseconds)`: holds up the calling thread. */
export const poll = libc.func("int poll(void *, ulong, int)") as KoffiFunc<
  (descriptors: Bytes, count: number, milliseconds: number) => number
>;

/** `int eventfd(unsigned int start, int flags)` */
export const eventfd = libc.func("int eventfd(uint32_t, int)") as KoffiFunc<
  (start: number, flags: number) => number
>;

// ioctl is variadic in C; on both machines a fixed third argument is passed just the same, and
// koffi's variadic calls cannot be made asynchronously (koffi 3.3).
/** `int ioctl(int fd, unsigned long request, void *argument)` */
export const ioctlPointer = libc.func("ioctl", "int", ["int", "ulong", "void *"]) as KoffiFunc<
  (fd: number, request: number, argument: Bytes) => number
>;

/** `int ioctl(int fd, unsigned long request, unsigned long argument)` */
export const ioctlNumber = libc.func("ioctl", "int", ["int", "ulong", "ulong"]) as KoffiFunc<
  (fd: number, request: number, argument: number) => number
>;

/** `int fcntl(int fd, int command, long argument)` */
export const fcntl = libc.func("int fcntl(int, int, long)") as KoffiFunc<
  (fd: number, command: number, argument: number) => number
>;

/** `int fcntl(int fd, int command, struct flock *)` */
export const fcntlPointer = libc.func("fcntl", "int", ["int", "int", "void *"]) as KoffiFunc<
  (fd: number, command: number, argument: Bytes) => number
>;

/** `int flock(int fd, int operation)` */
export const flock = libc.func("int flock(int, int)") as KoffiFunc<
  (fd: number, operation: number) => number
>;

/** `int memfd_create(const char *name, unsigned int flags)` */
export const memfdCreate = libc.func("int memfd_create(const char *, uint32_t)") as KoffiFunc<
  (name: string, flags: number) => number
>;

/**
 * `int mount(const char *source, const char *target, const char *type, unsigned long flags, const
 * void *data)`
 */
export const mount = libc.func(
  "int mount(const char *, const char *, const char *, ulong, const void *)",
) as KoffiFunc<(source: string, target: string, type: null, flags: number, data: null) => number>;

/** `int umount2(const char *target, int flags)` */
export const umount2 = libc.func("int umount2(const char *, int)") as KoffiFunc<
  (target: string, flags: number) => number
>;

/** `int setns(int fd, int type)`: moves the calling thread only. */
export const setns = libc.func("int setns(int, int)") as KoffiFunc<
  (fd: number, type: number) => number
>;

/** `int unshare(int flags)`: concerns the calling thread only. */
export const unshare = libc.func("int unshare(int)") as KoffiFunc<(flags: number) => number>;

/** `int pipe2(int ends[2], int flags)` */
export const pipe2 = libc.func("int pipe2(void *, int)") as KoffiFunc<
  (ends: Int32Array, flags: number) => number
>;

/** `pid_t waitpid(pid_t, int *status, int options)` */
export const waitpid = libc.func("int waitpid(int, void *, int)") as KoffiFunc<
  (pid: number, status: Int32Array, options: number) => number
>;

/**
 * `int posix_spawnp(pid_t *, const char *file, const posix_spawn_file_actions_t *, const
 * posix_spawnattr_t *, char *const argv[], char *const envp[])`: answers with an error number.
 */
export const posixSpawn = libc.func(
  "int posix_spawnp(void *, const char *, const void *, const void *, const char **, const char **)",
) as KoffiFunc<
  (
    pid: Int32Array,
    program: string,
    actions: Bytes,
    attributes: Bytes,
    argv: readonly (string | null)[],
    environment: readonly (string | null)[],
  ) => number
>;

const onActions = (name: string): KoffiFunc<(actions: Bytes) => number> =>
  libc.func(`int posix_spawn_file_actions_${name}(void *)`) as KoffiFunc<
    (actions: Bytes) => number
  >;

/** What a child does before it executes its program: `posix_spawn_file_actions_…`. */
export const spawnActions = {
  init: onActions("init"),
  destroy: onActions("destroy"),
  duplicate: libc.func("int posix_spawn_file_actions_adddup2(void *, int, int)") as KoffiFunc<
    (actions: Bytes, from: number, to: number) => number
  >,
  changeDirectory: libc.func(
    "int posix_spawn_file_actions_addchdir_np(void *, const char *)",
  ) as KoffiFunc<(actions: Bytes, path: string) => number>,
};

const onAttributes = (name: string): KoffiFunc<(attributes: Bytes) => number> =>
  libc.func(`int posix_spawnattr_${name}(void *)`) as KoffiFunc<(attributes: Bytes) => number>;

/** Attributes of a child: `posix_spawnattr_…`. */
export const spawnAttributes = {
  init: onAttributes("init"),
  destroy: onAttributes("destroy"),
  setFlags: libc.func("int posix_spawnattr_setflags(void *, short)") as KoffiFunc<
    (attributes: Bytes, flags: number) => number
  >,
  setSignalMask: libc.func("int posix_spawnattr_setsigmask(void *, const void *)") as KoffiFunc<
    (attributes: Bytes, signals: Bytes) => number
  >,
  setDefaultSignals: libc.func(
    "int posix_spawnattr_setsigdefault(void *, const void *)",
  ) as KoffiFunc<(attributes: Bytes, signals: Bytes) => number>,
};

/** Error number of the last synchronous call. Asynchronous calls do not set it (koffi 3.3). */
export const lastErrno = (): number => koffi.errno();

/**
 * Where an array's bytes are, for structures that hold pointers. The array must outlive the call.
 */
export const addressOf = (bytes: Bytes): bigint => koffi.address(bytes);
