/*
 * Output of processes on its way to the host. A little is copied. Of a process that writes much,
 * the pages of its pipe are moved (splice(2)): docs/decisions/0137.
 */
#define _GNU_SOURCE
#include "forward.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Bytes in one call of forward from which on the process writes faster than it is read. */
#define MUCH 16384
/* The largest pipe that may be had (pipe-max-size of Linux); its pages come as they are filled. */
#define LARGE_PIPE (1 << 20)

static int enlarge(int fd) {
  int size = fcntl(fd, F_GETPIPE_SZ);
  return size >= LARGE_PIPE || (size > 0 && fcntl(fd, F_SETPIPE_SZ, LARGE_PIPE) > 0);
}

struct passage {
  int from, to;
  struct bytes frame;
  uint32_t header;
  /* Bytes of the last frame that `to` has taken. */
  uint32_t taken;
};

static void set_length(const struct passage *is, uint32_t length) {
  for (int i = 0; i < 4; i++) is->frame.data[is->header - 1 - i] = (uint8_t)(length >> 8 * i);
}

/* One frame by way of `frame`. Answers its data's length, 0 at the end, or -1. */
static ssize_t copy_frame(struct passage *is) {
  ssize_t count = read(is->from, is->frame.data + is->header, is->frame.length - is->header);
  if (count <= 0) return count;
  uint32_t length = is->header + (uint32_t)count;
  set_length(is, length);
  ssize_t written = write(is->to, is->frame.data, length);
  is->taken = written > 0 ? (uint32_t)written : 0;
  return count;
}

/*
 * Pipes of the agent alone, empty between two calls. A frame's data is taken out of the process's
 * pipe first: only then its length is known, since whoever has the pipe may read of it, too. A
 * frame is complete before any of it is on its way: who is killed leaves no half frame.
 */
static int data[2] = {-1, -1}, whole[2] = {-1, -1};

static void close_pipes(void) {
  int *const all[] = {&data[0], &data[1], &whole[0], &whole[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (*all[i] >= 0) close(*all[i]);
    *all[i] = -1;
  }
}

static int open_pipes(void) {
  if (whole[0] >= 0) return 1;
  int opened = pipe2(data, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(whole, O_CLOEXEC | O_NONBLOCK) == 0;
  /* The header takes a page more than the data. */
  if (opened && fcntl(whole[1], F_SETPIPE_SZ, 2 * fcntl(data[1], F_GETPIPE_SZ)) > 0) return 1;
  close_pipes();
  return 0;
}

/* All of what a pipe holds; the pipe is one of the agent's own. */
static int take_back(int pipe, uint8_t *into, uint32_t length) {
  int there = 0;
  if (ioctl(pipe, FIONREAD, &there) < 0 || there != (int)length) return 0;
  for (uint32_t at = 0; at < length;) {
    ssize_t count = read(pipe, into + at, length - at);
    if (count <= 0) return 0;
    at += (uint32_t)count;
  }
  return 1;
}

/* As copy_frame, without a copy while `to` takes pages. */
static ssize_t move_frame(struct passage *is) {
  uint8_t *frame = is->frame.data;
  ssize_t count = splice(is->from, NULL, data[1], NULL, is->frame.length - is->header, SPLICE_F_NONBLOCK);
  if (count <= 0) return count;
  uint32_t length = is->header + (uint32_t)count;
  set_length(is, length);
  is->taken = 0;
  if (write(whole[1], frame, is->header) != (ssize_t)is->header) {
    /* No memory for a page. */
    if (take_back(data[0], frame + is->header, (uint32_t)count)) return count;
  } else if (splice(data[0], NULL, whole[1], NULL, (size_t)count, SPLICE_F_NONBLOCK) == count) {
    ssize_t taken = splice(whole[0], NULL, is->to, NULL, length, SPLICE_F_NONBLOCK);
    is->taken = taken > 0 ? (uint32_t)taken : 0;
    if (is->taken == length || take_back(whole[0], frame + is->taken, length - is->taken)) return count;
  }
  /* Output is lost: a virtio port drops what it has no memory for. The process must not go on. */
  close_pipes();
  errno = EIO;
  return -1;
}

double sys_forward(struct call *call) {
  struct passage passage = {arg_int(call, 0), arg_int(call, 1), arg_bytes(call, 2), (uint32_t)arg_int(call, 3), 0};
  struct bytes out = arg_bytes(call, 5);
  uint32_t header = passage.header, moved = 0;
  if (header < 4 || passage.frame.length <= header || out.length < 8) return -EINVAL;
  const int moves = arg_int(call, 6);
  int much = 0;
  for (int left = arg_int(call, 4); left > 0; left--) {
    ssize_t count = much && open_pipes() ? move_frame(&passage) : copy_frame(&passage);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return -(double)errno;
    if (count < 0) return moved >= MUCH && enlarge(passage.from) ? 4 : 0;
    if (count == 0) return 2;
    moved += (uint32_t)count;
    uint32_t length = header + (uint32_t)count;
    if (passage.taken < length) {
      int32_t rest[2] = {(int32_t)passage.taken, (int32_t)length};
      memcpy(out.data, rest, sizeof rest);
      return 3;
    }
    much = moves && moved >= MUCH;
  }
  return 1;
}
