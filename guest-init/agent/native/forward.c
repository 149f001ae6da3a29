/* Output of processes on its way to the host. */
#define _GNU_SOURCE
#include "forward.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Bytes in one call of forward from which on the process writes faster than it is read. */
#define MUCH 16384
/* The largest pipe that may be had (pipe-max-size of Linux); its pages come as they are filled. */
#define LARGE_PIPE (1 << 20)

static int enlarge(int fd) {
  int size = fcntl(fd, F_GETPIPE_SZ);
  return size >= LARGE_PIPE || (size > 0 && fcntl(fd, F_SETPIPE_SZ, LARGE_PIPE) > 0);
}

static double answer(struct bytes out, double result, uint32_t first, uint32_t second) {
  int32_t both[2] = {(int32_t)first, (int32_t)second};
  memcpy(out.data, both, sizeof both);
  return result;
}

/*
 * A frame leaves in one write(2), header and data: a virtio port takes it as one request with one
 * piece of memory, which QEMU writes in one call. Pages that were moved (splice(2)) would cost QEMU
 * a call each, and the host's reader as many pieces (docs/decisions/0150).
 */
double sys_forward(struct call *call) {
  const int from = arg_int(call, 0), to = arg_int(call, 1);
  struct bytes frame = arg_bytes(call, 2), out = arg_bytes(call, 5);
  const uint32_t header = (uint32_t)arg_int(call, 3);
  if (header < 4 || frame.length <= header || out.length < 8) return -EINVAL;
  uint32_t moved = 0;
  for (int left = arg_int(call, 4); left > 0; left--) {
    ssize_t count = read(from, frame.data + header, frame.length - header);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return -(double)errno;
    if (count < 0) return moved >= MUCH && enlarge(from) ? answer(out, 4, moved, 0) : 0;
    if (count == 0) return 2;
    moved += (uint32_t)count;
    const uint32_t length = header + (uint32_t)count;
    for (int i = 0; i < 4; i++) frame.data[header - 1 - i] = (uint8_t)(length >> 8 * i);
    const ssize_t written = write(to, frame.data, length);
    if (written < (ssize_t)length) return answer(out, 3, written > 0 ? (uint32_t)written : 0, length);
  }
  return 1;
}
