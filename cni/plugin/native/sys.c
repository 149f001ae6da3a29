/* System calls of podnet-cni, one C function each. Names and meaning: cni/plugin/sys.ts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"

#define TEXT(index) arg_text(call, index)
#define INT(index) arg_int(call, index)
#define CALL(name) static double sys_##name(struct call *call)

/* --- what the runtime hands over -------------------------------------------------------------- */

CALL(environment) {
  const char *prefix = TEXT(0);
  size_t prefix_length = strlen(prefix);
  struct bytes out = arg_bytes(call, 1);
  uint32_t used = 0;
  for (char **entry = environ; entry && *entry; entry++) {
    if (strncmp(*entry, prefix, prefix_length)) continue;
    size_t length = strlen(*entry) + 1;
    if (length > out.length - used) return -E2BIG;
    memcpy(out.data + used, *entry, length);
    used += (uint32_t)length;
  }
  return used;
}

/* Reads until the end or until the buffer is full. */
CALL(readAll) {
  struct bytes into = arg_bytes(call, 1);
  uint32_t used = 0;
  while (used < into.length) {
    ssize_t count = read(INT(0), into.data + used, into.length - used);
    if (count == 0) break;
    if (count > 0) used += (uint32_t)count;
    else if (errno == EAGAIN) poll(&(struct pollfd){.fd = INT(0), .events = POLLIN}, 1, -1);
    else if (errno != EINTR) return -(double)errno;
  }
  return used;
}

CALL(writeAll) {
  struct bytes bytes = arg_bytes(call, 1);
  uint32_t done = 0;
  while (done < bytes.length) {
    ssize_t count = write(INT(0), bytes.data + done, bytes.length - done);
    if (count >= 0) done += (uint32_t)count;
    else if (errno == EAGAIN) poll(&(struct pollfd){.fd = INT(0), .events = POLLOUT}, 1, -1);
    else if (errno != EINTR) return -(double)errno;
  }
  return done;
}

/* --- the way to podnetd ----------------------------------------------------------------------- */

/*
 * Makes a socket that does not block. A full queue is retried: no event reports when it has room.
 */
CALL(connect) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = TEXT(0);
  if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -(double)errno;
  for (int left = INT(1);; left -= 10) {
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    int why = errno;
    if (why == EINTR) continue;
    if (why != EAGAIN || left <= 0) {
      close(fd);
      return why == EAGAIN ? -ETIMEDOUT : -why;
    }
    poll(NULL, 0, 10);
  }
}

/* Waits for events at a descriptor: 1, or 0 when the time is over. */
static int wait_for(int fd, short events, int ms) {
  struct pollfd one = {.fd = fd, .events = events};
  int count = poll(&one, 1, ms);
  return count < 0 && errno == EINTR ? 1 : count;
}

CALL(send) {
  struct bytes bytes = arg_bytes(call, 1);
  if (!wait_for(INT(0), POLLOUT, INT(2))) return -ETIMEDOUT;
  ssize_t count = send(INT(0), bytes.data, bytes.length, MSG_NOSIGNAL);
  return count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : or_errno(count);
}

/* Bytes received; 0 at the end; -EAGAIN when there are none. */
CALL(receive) {
  struct bytes into = arg_bytes(call, 1);
  if (!wait_for(INT(0), POLLIN, INT(2))) return -ETIMEDOUT;
  ssize_t count = recv(INT(0), into.data, into.length, 0);
  return count < 0 && errno == EINTR ? -EAGAIN : or_errno(count);
}

/* --- files ------------------------------------------------------------------------------------ */

CALL(open) { return or_errno(open(TEXT(0), INT(1) | O_CLOEXEC | O_NOCTTY, INT(2))); }
CALL(close) { return or_errno(close(INT(0))); }
CALL(sync) { return or_errno(fsync(INT(0))); }
CALL(rename) { return or_errno(rename(TEXT(0), TEXT(1))); }
CALL(unlink) { return or_errno(unlink(TEXT(0))); }
CALL(mkdir) { return or_errno(mkdir(TEXT(0), (mode_t)INT(1))); }
CALL(umask) { return umask(INT(0)); }

/* --- the rest --------------------------------------------------------------------------------- */

CALL(monotonic) { return (void)call, milliseconds(CLOCK_MONOTONIC); }
CALL(clock) { return (void)call, milliseconds(CLOCK_REALTIME); }
CALL(pid) { return (void)call, getpid(); }
CALL(exit) { _exit(INT(0)); }

/*
 * Base64 of the first into the second, with its padding: the engine takes a hundred times as long.
 */
CALL(base64) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  struct bytes from = arg_bytes(call, 0), into = arg_bytes(call, 1);
  if (into.length < (from.length + 2) / 3 * 4) return -E2BIG;
  uint8_t *out = into.data;
  for (uint32_t i = 0; i < from.length; i += 3) {
    uint32_t rest = from.length - i;
    uint32_t bits = (uint32_t)from.data[i] << 16 | (rest > 1 ? (uint32_t)from.data[i + 1] << 8 : 0) | (rest > 2 ? from.data[i + 2] : 0);
    *out++ = digits[bits >> 18], *out++ = digits[bits >> 12 & 63];
    *out++ = rest > 1 ? digits[bits >> 6 & 63] : '=', *out++ = rest > 2 ? digits[bits & 63] : '=';
  }
  return (double)(out - into.data);
}

const struct native sys_functions[] = {
    {"environment", sys_environment},
    {"readAll", sys_readAll},
    {"writeAll", sys_writeAll},
    {"connect", sys_connect},
    {"send", sys_send},
    {"receive", sys_receive},
    {"open", sys_open},
    {"close", sys_close},
    {"sync", sys_sync},
    {"rename", sys_rename},
    {"unlink", sys_unlink},
    {"mkdir", sys_mkdir},
    {"umask", sys_umask},
    {"monotonic", sys_monotonic},
    {"clock", sys_clock},
    {"pid", sys_pid},
    {"exit", sys_exit},
    {"base64", sys_base64},
    {NULL, NULL},
};
/* It starts no processes. */
const struct native process_functions[] = {{NULL, NULL}};
