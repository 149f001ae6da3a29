/*
 * STEPS: what the host has decided and encoded (guest-init/protocol/steps.ts), done without the
 * engine. A guest that wakes up has none of its code translated, and the engine's is the most.
 */
#define _GNU_SOURCE
#include "steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { entropy, clock_step, hostname, resolver, write_file, read_file, netlink, packet, twin, kinds };
enum { kind_bits = 4, frame_head = 8, command_ack = 9, command_steps = 106, sockaddr_ll_size = 20 };
/* Of a list of netlink (netlink_dump, Linux 6.1); and the largest file: it fits a frame. */
enum { datagram_max = 32768, file_max = 1024 * 1024 - 4096, epoch_max = 255, id_length = 32 };
/* RNDADDENTROPY and RNDRESEEDCRNG: include/uapi/linux/random.h (Linux 6.1). */
enum { add_entropy = 0x40085203, reseed = 0x5207, entropy_max = 512 };
/* How long a host may seem to be gone that is not (agent/port.ts), milliseconds. */
enum { doubt_ms = 100 };

static int netlink_fd = -1;
static int packet_fd = -1;
static char epoch[epoch_max + 1];
static double heard_at = -1e9;

static uint32_t word_at(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void put_word(uint8_t *bytes, uint32_t value) {
  for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* --- results ---------------------------------------------------------------------------------- */

/* Of the steps that were done last: a frame's head, then its payload. */
static struct {
  uint8_t *data;
  size_t length, room;
} out;

static int make_room(size_t more) {
  if (out.room - out.length >= more) return 0;
  size_t room = 2 * out.room > out.length + more ? 2 * out.room : out.length + more;
  uint8_t *data = realloc(out.data, room);
  if (!data) return -ENOMEM;
  out.data = data;
  out.room = room;
  return 0;
}

static int add_bytes(const void *bytes, size_t length) {
  if (make_room(length) < 0) return -ENOMEM;
  if (length > 0) memcpy(out.data + out.length, bytes, length);
  out.length += length;
  return 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static int write_all(int fd, const void *bytes, size_t length) {
  for (const uint8_t *at = bytes; length > 0;) {
    ssize_t count = write(fd, at, length);
    if (count <= 0) return count < 0 ? -errno : -EAGAIN;
    at += count;
    length -= (size_t)count;
  }
  return 0;
}

/* The directories above a file are made when one is missing. */
static int create(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
  if (fd >= 0 || errno != ENOENT) return fd;
  char part[64];
  for (size_t i = 1; path[i] && i < sizeof part; i++) {
    if (path[i] != '/') continue;
    memcpy(part, path, i);
    part[i] = 0;
    mkdir(part, 0755);
  }
  return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
}

static int fill_and_close(int fd, const void *bytes, size_t length) {
  if (fd < 0) return -errno;
  int result = write_all(fd, bytes, length);
  close(fd);
  return result;
}

/* As replaceFile in agent/files.ts: readers see the old content or the new one. */
static int replace(const char *path, const void *bytes, size_t length) {
  char next[64];
  snprintf(next, sizeof next, "%s.podnet-new", path);
  int result = fill_and_close(create(next), bytes, length);
  if (result == 0 && rename(next, path) < 0) result = -errno;
  if (result == 0) return 0;
  unlink(next);
  /* A file that is mounted upon can only be written in place. */
  if (result != -EBUSY && result != -EXDEV) return result;
  return fill_and_close(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC), bytes, length);
}

/* As forContainers in agent/machine.ts. */
static int replace_for_containers(const char *path, const void *bytes, size_t length) {
  return getpid() == 1 ? replace(path, bytes, length) : 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

static int do_entropy(const uint8_t *body, size_t length) {
  /* struct rand_pool_info: bits counted, bytes, the bytes. */
  struct {
    int32_t bits, size;
    uint8_t bytes[entropy_max];
  } info = {(int32_t)(8 * length), (int32_t)length, {0}};
  memcpy(info.bytes, body, length);
  int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  int result = ioctl(fd, add_entropy, &info) < 0 || ioctl(fd, reseed, 0) < 0 ? -errno : 0;
  close(fd);
  return result;
}

static int do_clock(const uint8_t *body, size_t length) {
  if (length == 8) {
    uint64_t ms = (uint64_t)word_at(body) << 32 | word_at(body + 4);
    struct timespec wanted = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    if (clock_settime(CLOCK_REALTIME, &wanted) < 0) return -errno;
  }
  char text[32];
  int digits = snprintf(text, sizeof text, "%lld", (long long)milliseconds(CLOCK_REALTIME));
  return add_bytes(text, (size_t)digits);
}

static int do_hostname(const char *name, size_t length) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (length == 0 || length > 64 || strspn(name, letters) != length) return -EINVAL;
  if (sethostname(name, length) < 0) return -errno;
  char line[72];
  int size = snprintf(line, sizeof line, "%s\n", name);
  return replace_for_containers("/tmp/hyper/hostname", line, (size_t)size);
}

static int do_resolver(const uint8_t *text, size_t length) {
  int result = replace_for_containers("/tmp/hyper/resolv.conf", text, length);
  return result < 0 ? result : replace("/etc/resolv.conf", text, length);
}

static int do_write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return -errno;
  int result = write(fd, text, strlen(text)) < 0 ? -errno : 0;
  close(fd);
  return result;
}

static int do_read_file(const char *path) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return errno == ENOENT ? 0 : -errno;
  const size_t begin = out.length;
  int result = 0;
  ssize_t count = 1;
  while (result == 0 && count > 0) {
    if ((result = make_room(4096)) < 0) break;
    count = read(fd, out.data + out.length, 4096);
    if (count > 0) out.length += (size_t)count;
    if (count < 0 && errno != EAGAIN) result = -errno;
    if (out.length - begin > file_max) result = -EFBIG;
  }
  close(fd);
  return result;
}

/* All that the kernel sends back: it answers inside send. */
static int do_netlink(const uint8_t *requests, size_t length) {
  if (send(netlink_fd, requests, length, MSG_NOSIGNAL) < 0) return -errno;
  double count;
  do {
    if (make_room(2 * datagram_max) < 0) return -ENOMEM;
    count = receive_all(netlink_fd, (struct bytes){out.data + out.length, 2 * datagram_max});
    if (count < 0) return count == -EAGAIN ? 0 : (int)count;
    out.length += (size_t)count;
    /* The rest of a long list: a datagram more would not have had room. */
  } while (count > datagram_max);
  return 0;
}

/* Open for good once it was needed: the kernel takes 20 ms to close it (Linux 6.1). */
static int do_packet(const uint8_t *body, size_t length) {
  /* Protocol 0: it sends, and is handed nothing. */
  if (packet_fd < 0) packet_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (packet_fd < 0) return -errno;
  ssize_t sent = sendto(packet_fd, body + sockaddr_ll_size, length - sockaddr_ll_size, MSG_NOSIGNAL, (const struct sockaddr *)(const void *)body, sockaddr_ll_size);
  return sent < 0 ? -errno : 0;
}

static int do_twin(const char *name, const char *id) {
  if (getpid() != 1) return -EPERM;
  snprintf(epoch, sizeof epoch, "%s", name);
  char line[id_length + 2];
  int size = snprintf(line, sizeof line, "%s\n", id);
  return replace("/etc/machine-id", line, (size_t)size);
}

/* Bodies are copied for that: texts get a NUL behind them, addresses their alignment. */
static uint8_t *copy_of(const uint8_t *body, size_t length) {
  static uint8_t *copy;
  static size_t room;
  if (room < length + 1) {
    uint8_t *larger = realloc(copy, length + 1);
    if (!larger) return NULL;
    copy = larger;
    room = length + 1;
  }
  memcpy(copy, body, length);
  copy[length] = 0;
  return copy;
}

static int do_step(uint32_t kind, const uint8_t *body, size_t length) {
  uint8_t *copy = copy_of(body, length);
  if (!copy) return -ENOMEM;
  const char *text = (const char *)copy, *second = text + strlen(text) + 1;
  switch (kind) {
    case entropy:
      return do_entropy(copy, length);
    case clock_step:
      return do_clock(copy, length);
    case hostname:
      return do_hostname(text, length);
    case resolver:
      return do_resolver(copy, length);
    case write_file:
      return do_write_file(text, second);
    case read_file:
      return do_read_file(text);
    case netlink:
      return do_netlink(copy, length);
    case packet:
      return do_packet(copy, length);
    default:
      return do_twin(text, second);
  }
}

/* Texts in a body; where it has another number of NULs it is none. */
static int has_nuls(const uint8_t *body, size_t length, size_t wanted) {
  size_t found = 0;
  for (size_t i = 0; i < length; i++) found += body[i] == 0;
  return found == wanted;
}

static int is_sound(uint32_t kind, const uint8_t *body, size_t length) {
  switch (kind) {
    case entropy:
      return length > 0 && length <= entropy_max;
    case clock_step:
      return length == 0 || (length == 8 && body[0] == 0 && body[1] < 0x20);
    case hostname:
    case resolver:
    case read_file:
      return has_nuls(body, length, 0);
    case write_file:
      return has_nuls(body, length, 1);
    case packet:
      return length >= sockaddr_ll_size;
    case twin: {
      const size_t name = length - id_length - 1;
      return length > id_length + 1 && name <= epoch_max && body[name] == 0 && has_nuls(body, length, 1);
    }
    default:
      return kind == netlink;
  }
}

/* Whether a payload is steps, each whole and of a known kind: before any is done. */
static int are_sound(const uint8_t *payload, size_t length) {
  for (size_t at = 0; at < length;) {
    if (length - at < 4) return 0;
    const uint32_t head = word_at(payload + at), size = head >> kind_bits;
    at += 4;
    if (size > length - at || !is_sound(head & ((1 << kind_bits) - 1), payload + at, size)) return 0;
    at += size;
  }
  return 1;
}

/*
 * Does steps until one fails. `out` has an ACK afterwards, with the error number of that one and
 * the results of those before it.
 */
static int carry_out(const uint8_t *payload, size_t length) {
  out.length = 0;
  if (make_room(frame_head + 4) < 0) return -ENOMEM;
  out.length = frame_head + 4;
  int failed = 0;
  for (size_t at = 0; at < length && failed == 0;) {
    const uint32_t head = word_at(payload + at), size = head >> kind_bits;
    const size_t begin = out.length;
    failed = add_bytes("\0\0\0\0", 4);
    if (failed == 0) failed = do_step(head & ((1 << kind_bits) - 1), payload + at + 4, size);
    if (failed < 0) out.length = begin;
    else put_word(out.data + begin, (uint32_t)(out.length - begin - 4));
    at += 4 + size;
  }
  put_word(out.data, command_ack);
  put_word(out.data + 4, (uint32_t)out.length);
  put_word(out.data + frame_head, (uint32_t)-failed);
  return 0;
}

/* --- a port ----------------------------------------------------------------------------------- */

/* What has come from a port: no more than the engine takes of it at once (agent/control.ts). */
static struct {
  int fd;
  uint32_t at, used;
  uint8_t bytes[16384];
} come = {.fd = -1};

double take_rest(int fd, uint8_t *into, uint32_t length) {
  if (fd != come.fd || come.at == come.used) return -1;
  uint32_t count = come.used - come.at < length ? come.used - come.at : length;
  memcpy(into, come.bytes + come.at, count);
  come.at += count;
  return count;
}

/* A host that seems to be gone may have come back a moment ago. What it is not sent is void. */
static void answer(int fd) {
  for (size_t at = 0; at < out.length;) {
    ssize_t count = write(fd, out.data + at, out.length - at);
    if (count > 0) {
      at += (size_t)count;
      continue;
    }
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    struct pollfd room = {fd, POLLOUT, 0};
    poll(&room, 1, 2);
    if (!(room.revents & (POLLHUP | POLLERR))) continue;
    if (milliseconds(CLOCK_MONOTONIC) - heard_at > doubt_ms) return;
    usleep(1000);
  }
}

int serve_steps(int fd) {
  come.fd = fd;
  come.at = come.used = 0;
  ssize_t count;
  while (come.used < sizeof come.bytes && (count = read(fd, come.bytes + come.used, sizeof come.bytes - come.used)) > 0) come.used += (uint32_t)count;
  if (come.used == 0) return 0;
  heard_at = milliseconds(CLOCK_MONOTONIC);
  while (come.used - come.at >= frame_head) {
    const uint8_t *frame = come.bytes + come.at;
    const uint32_t length = word_at(frame + 4);
    if (word_at(frame) != command_steps || length < frame_head || length > come.used - come.at) break;
    if (!are_sound(frame + frame_head, length - frame_head)) break;
    if (carry_out(frame + frame_head, length - frame_head) < 0) break;
    answer(fd);
    come.at += length;
  }
  return come.at == come.used;
}

/* --- for the engine --------------------------------------------------------------------------- */

/* steps(payload): the length of their results. */
double sys_steps(struct call *call) {
  struct bytes payload = arg_bytes(call, 0);
  if (!are_sound(payload.data, payload.length)) return -EBADMSG;
  int failed = carry_out(payload.data, payload.length);
  return failed < 0 ? failed : (double)(out.length - frame_head);
}

/* results(into): those of the last steps. */
double sys_results(struct call *call) {
  struct bytes into = arg_bytes(call, 0);
  if (into.length > out.length - frame_head) return -EINVAL;
  memcpy(into.data, out.data + frame_head, into.length);
  return into.length;
}

/* useNetlink(fd): the socket of rtnetlink that steps use. */
double sys_useNetlink(struct call *call) {
  netlink_fd = arg_int(call, 0);
  return 0;
}

/* epoch(into): the name of a clone; nothing unless it has one. */
double sys_epoch(struct call *call) {
  struct bytes into = arg_bytes(call, 0);
  uint32_t length = (uint32_t)strlen(epoch);
  if (length > into.length) return -E2BIG;
  memcpy(into.data, epoch, length);
  return length;
}

/* heard(): when steps came last, on the clock of monotonic(). */
double sys_heard(struct call *call) { return (void)call, heard_at; }
