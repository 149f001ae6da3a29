/* System calls for the agent, one C function each. Names and meaning: guest-init/agent/sys.ts. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"
#include "forward.h"
#include "steps.h"

#define TEXT(index) arg_text(call, index)
#define INT(index) arg_int(call, index)
#define CALL(name) static double sys_##name(struct call *call)

CALL(args) {
  struct bytes out = arg_bytes(call, 0);
  uint32_t used = 0;
  for (int i = 1; i < program_argc; i++) {
    uint32_t length = (uint32_t)strlen(program_argv[i]) + 1;
    if (used + length > out.length) return -E2BIG;
    memcpy(out.data + used, program_argv[i], length);
    used += length;
  }
  return used;
}

/* --- files ------------------------------------------------------------------------------------ */

CALL(open) { return or_errno(open(TEXT(0), INT(1) | O_CLOEXEC | O_NOCTTY, INT(2))); }
CALL(close) { return or_errno(close(INT(0))); }
CALL(read) {
  struct bytes buffer = arg_bytes(call, 1);
  return or_errno(read(INT(0), buffer.data, buffer.length));
}
/*
 * As much as there is and fits: a virtio port hands out a page a time. For descriptors that do not
 * block. What steps.c has read and left comes first.
 */
CALL(fill) {
  struct bytes buffer = arg_bytes(call, 1);
  double rest = take_rest(INT(0), buffer.data, buffer.length);
  uint32_t used = rest > 0 ? (uint32_t)rest : 0;
  ssize_t count = 0;
  while (used < buffer.length && (count = read(INT(0), buffer.data + used, buffer.length - used)) > 0) used += (uint32_t)count;
  /* Bytes read before an end or a failure count; the next call reports the end or the failure. */
  return used > 0 ? used : or_errno(count);
}
/* readAt(fd, into, at): no file is as long as a number beyond 2^53. */
CALL(readAt) {
  struct bytes buffer = arg_bytes(call, 1);
  double at = arg_number(call, 2);
  if (!(at >= 0 && at < 9007199254740992.0)) return 0;
  return or_errno(pread(INT(0), buffer.data, buffer.length, (off_t)at));
}
CALL(write) {
  struct bytes buffer = arg_bytes(call, 1);
  return or_errno(write(INT(0), buffer.data, buffer.length));
}
/*
 * Reads a small file in one call: bytes read, or the negative errno. The rest of a larger file is
 * not read.
 */
CALL(readSmall) {
  struct bytes out = arg_bytes(call, 1);
  int fd = open(TEXT(0), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return -(double)errno;
  uint32_t used = 0;
  ssize_t count = 0;
  while (used < out.length && (count = read(fd, out.data + used, out.length - used)) > 0) used += (uint32_t)count;
  double result = count < 0 && errno != EAGAIN ? -(double)errno : used;
  close(fd);
  return result;
}
/* One write into a file that is there, as those of /proc and /sys are. */
CALL(writeSmall) {
  const char *text = TEXT(1);
  int fd = open(TEXT(0), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return -(double)errno;
  double result = or_errno(write(fd, text, strlen(text)));
  close(fd);
  return result;
}
CALL(unlink) { return or_errno(unlink(TEXT(0))); }
CALL(rename) { return or_errno(rename(TEXT(0), TEXT(1))); }
/* The mode last: a new owner takes set-user-id bits away. */
CALL(setOwner) {
  if (fchown(INT(0), (uid_t)arg_number(call, 1), (gid_t)arg_number(call, 2)) < 0) return -errno;
  return or_errno(fchmod(INT(0), (mode_t)INT(3)));
}
CALL(mkdir) { return or_errno(mkdir(TEXT(0), (mode_t)INT(1))); }
CALL(symlink) { return or_errno(symlink(TEXT(0), TEXT(1))); }
CALL(readlink) {
  struct bytes out = arg_bytes(call, 1);
  return or_errno(readlink(TEXT(0), (char *)out.data, out.length));
}
CALL(mode) {
  struct stat found;
  return stat(TEXT(0), &found) < 0 ? -(double)errno : (double)found.st_mode;
}
CALL(readdir) {
  struct bytes out = arg_bytes(call, 1);
  DIR *dir = opendir(TEXT(0));
  if (!dir) return -(double)errno;
  uint32_t used = 0;
  double result = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    uint32_t length = (uint32_t)strlen(entry->d_name) + 1;
    if (used + length > out.length) {
      result = -E2BIG;
      break;
    }
    memcpy(out.data + used, entry->d_name, length);
    used += length;
  }
  closedir(dir);
  return result < 0 ? result : used;
}

/* --- the machine ------------------------------------------------------------------------------ */

CALL(mount) { return or_errno(mount(TEXT(0), TEXT(1), TEXT(2), (unsigned long)INT(3), TEXT(4))); }
/* Lets go of a mount and of all below it, at once. Links are not followed. */
CALL(unmount) { return or_errno(umount2(TEXT(0), MNT_DETACH | UMOUNT_NOFOLLOW)); }
CALL(rmdir) { return or_errno(rmdir(TEXT(0))); }
/*
 * Opens a path as a process sees it whose root is the directory `root`: no link leads outside.
 */
CALL(openIn) {
  struct {
    uint64_t flags, mode, resolve;
  } how = {(uint64_t)INT(2) | O_CLOEXEC, (uint64_t)INT(3), 0x10 /* RESOLVE_IN_ROOT */ | 0x02 /* no magic */};
  int root = open(TEXT(0), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return -errno;
  double result = or_errno(syscall(437 /* openat2 */, root, TEXT(1), &how, sizeof how));
  close(root);
  return result;
}
/* A mounted file system becomes the root of the agent, and of all it starts. */
CALL(enterRoot) {
  if (chdir(TEXT(0)) < 0 || mount(".", "/", "", MS_MOVE, "") < 0 || chroot(".") < 0) return -errno;
  return or_errno(chdir("/"));
}
CALL(finitModule) { return or_errno(syscall(SYS_finit_module, INT(0), TEXT(1), 0)); }
CALL(setHostname) { return or_errno(sethostname(TEXT(0), strlen(TEXT(0)))); }
CALL(reboot) { return or_errno(reboot(INT(0))); }
CALL(sync) {
  (void)call;
  sync();
  return 0;
}

CALL(monotonic) { return (void)call, milliseconds(CLOCK_MONOTONIC); }
CALL(clock) { return (void)call, milliseconds(CLOCK_REALTIME); }
CALL(setClock) {
  double ms = arg_number(call, 0);
  struct timespec wanted = {(time_t)(ms / 1e3), 0};
  wanted.tv_nsec = (long)((ms - (double)wanted.tv_sec * 1e3) * 1e6);
  return or_errno(clock_settime(CLOCK_REALTIME, &wanted));
}

/* --- descriptors ------------------------------------------------------------------------------ */

/*
 * Datagrams of netlink, while there are some and one of the largest has room (32 KiB, netlink_dump
 * of Linux 6.1), each padded to four bytes as the messages in it are.
 */
double receive_all(int fd, struct bytes into) {
  uint32_t used = 0;
  while (into.length - used >= 32768) {
    ssize_t count = recv(fd, into.data + used, into.length - used, MSG_TRUNC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return used > 0 ? used : -(double)errno;
    used += ((uint32_t)count + 3) & ~3u;
    if (used > into.length) return -EMSGSIZE;
  }
  return used;
}

/* Steps that have come at a port are done. How many descriptors are left with an event. */
static int without_steps(struct pollfd *fds, int count, int happened, int port) {
  for (int i = 0; i < count; i++) {
    if (fds[i].fd != port || !(fds[i].revents & POLLIN) || !serve_steps(port)) continue;
    fds[i].revents &= ~POLLIN;
    return happened - (fds[i].revents == 0);
  }
  return happened;
}

/*
 * poll(set, timeout, count, found, port): an Int32Array of pairs is an array of struct pollfd: fd,
 * then events | revents << 16. `found` gets pairs of a place in the set and its events. Answers how
 * many. `port` is a descriptor and one, of a port that waits for commands: steps that come there
 * are done here, and are no event.
 */
CALL(poll) {
  struct bytes set = arg_bytes(call, 0), found = arg_bytes(call, 3);
  struct pollfd *fds = (struct pollfd *)set.data;
  int count = INT(2), port = INT(4) - 1, timeout = INT(1), used = 0, happened;
  if (count < 0 || (size_t)count > set.length / sizeof *fds || (size_t)count > found.length / 8) return -EINVAL;
  const double until = timeout < 0 ? 0 : milliseconds(CLOCK_MONOTONIC) + timeout;
  for (;;) {
    happened = poll(fds, (nfds_t)count, timeout);
    if (happened < 0) return -(double)errno;
    if (happened == 0 || port < 0) break;
    happened = without_steps(fds, count, happened, port);
    if (happened > 0) break;
    if (timeout < 0) continue;
    const double left = until - milliseconds(CLOCK_MONOTONIC);
    timeout = left > 0 ? (int)left + 1 : 0;
  }
  for (int i = 0; used < happened && i < count; i++) {
    if (!fds[i].revents) continue;
    int32_t pair[2] = {i, (uint16_t)fds[i].revents};
    memcpy(found.data + 8 * used++, pair, sizeof pair);
  }
  return used;
}
CALL(ioctlNumber) { return or_errno(ioctl(INT(0), (unsigned)INT(1), (long)INT(2))); }
CALL(ioctlBytes) {
  struct bytes data = arg_bytes(call, 2);
  return or_errno(ioctl(INT(0), (unsigned)INT(1), data.data));
}
CALL(socket) { return or_errno(socket(INT(0), INT(1) | SOCK_CLOEXEC | SOCK_NONBLOCK, INT(2))); }
CALL(bind) {
  struct bytes address = arg_bytes(call, 1);
  return or_errno(bind(INT(0), (struct sockaddr *)address.data, address.length));
}
CALL(setOption) {
  int value = INT(3);
  return or_errno(setsockopt(INT(0), INT(1), INT(2), &value, sizeof value));
}
CALL(send) {
  struct bytes data = arg_bytes(call, 1), to = arg_bytes(call, 2);
  return or_errno(sendto(INT(0), data.data, data.length, MSG_NOSIGNAL, (struct sockaddr *)to.data, to.length));
}
CALL(receive) {
  /* MSG_TRUNC: the true length of a datagram that did not fit. */
  struct bytes data = arg_bytes(call, 1);
  return or_errno(recv(INT(0), data.data, data.length, MSG_TRUNC));
}
/*
 * Asks netlink: sends a request, and takes all it brought (below). The kernel answers inside send.
 */
CALL(exchange) {
  struct bytes request = arg_bytes(call, 1), into = arg_bytes(call, 2);
  if (send(INT(0), request.data, request.length, MSG_NOSIGNAL) < 0) return -(double)errno;
  return receive_all(INT(0), into);
}
CALL(receiveAll) { return receive_all(INT(0), arg_bytes(call, 1)); }
CALL(connectUnix) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = TEXT(0);
  if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
    int why = errno;
    close(fd);
    return -why;
  }
  return or_errno(fd);
}

CALL(log) {
  dprintf(2, "podnet-guest: %s\n", TEXT(0));
  return 0;
}
CALL(exit) { _exit(INT(0)); }

const struct native sys_functions[] = {
    {"args", sys_args},
    {"open", sys_open},
    {"close", sys_close},
    {"read", sys_read},
    {"fill", sys_fill},
    {"readAt", sys_readAt},
    {"write", sys_write},
    {"forward", sys_forward},
    {"readSmall", sys_readSmall},
    {"writeSmall", sys_writeSmall},
    {"unlink", sys_unlink},
    {"rename", sys_rename},
    {"setOwner", sys_setOwner},
    {"mkdir", sys_mkdir},
    {"symlink", sys_symlink},
    {"readlink", sys_readlink},
    {"mode", sys_mode},
    {"readdir", sys_readdir},
    {"mount", sys_mount},
    {"unmount", sys_unmount},
    {"rmdir", sys_rmdir},
    {"openIn", sys_openIn},
    {"enterRoot", sys_enterRoot},
    {"finitModule", sys_finitModule},
    {"setHostname", sys_setHostname},
    {"reboot", sys_reboot},
    {"sync", sys_sync},
    {"monotonic", sys_monotonic},
    {"clock", sys_clock},
    {"setClock", sys_setClock},
    {"poll", sys_poll},
    {"steps", sys_steps},
    {"results", sys_results},
    {"useNetlink", sys_useNetlink},
    {"epoch", sys_epoch},
    {"heard", sys_heard},
    {"ioctlNumber", sys_ioctlNumber},
    {"ioctlBytes", sys_ioctlBytes},
    {"socket", sys_socket},
    {"bind", sys_bind},
    {"setOption", sys_setOption},
    {"send", sys_send},
    {"receive", sys_receive},
    {"exchange", sys_exchange},
    {"receiveAll", sys_receiveAll},
    {"connectUnix", sys_connectUnix},
    {"log", sys_log},
    {"exit", sys_exit},
    {NULL, NULL},
};
