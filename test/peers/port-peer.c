/*
 * Who serves a port and who asks one, in guests and on machines of the lab. One static program,
 * since guests have no other that reports who asked it, and none that speaks SCTP.
 *
 * serve PROTOCOL PORT NAME   answers with NAME and the address it was asked from; prints "ready"
 *                            and goes on in the background
 * echo PORT                  sends back all that a connection brings
 * ask PROTOCOL ADDRESS PORT  prints the answer, or why there is none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { timeout_ms = 1500 };

static void fail(const char *what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static int open_socket(int family, const char *protocol) {
  int type = strcmp(protocol, "udp") == 0 ? SOCK_DGRAM : SOCK_STREAM;
  int number = strcmp(protocol, "sctp") == 0 ? IPPROTO_SCTP : 0;
  int fd = socket(family, type, number);
  if (fd < 0) fail("socket");
  return fd;
}

static void answer_to(char *text, size_t size, const char *name, const struct sockaddr_in6 *from) {
  char address[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &from->sin6_addr, address, sizeof address);
  const char *plain = strncmp(address, "::ffff:", 7) == 0 ? address + 7 : address;
  snprintf(text, size, "%s %s\n", name, plain);
}

static int bound(const char *protocol, const char *port) {
  int fd = open_socket(AF_INET6, protocol);
  int no = 0, yes = 1;
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(port))};
  if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0) fail("bind");
  if (strcmp(protocol, "udp") != 0 && listen(fd, 64) < 0) fail("listen");
  return fd;
}

static void go_on_alone(void) {
  printf("ready\n");
  fflush(stdout);
  if (fork() != 0) exit(0);
  setsid();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  for (int fd = 0; fd < 3; fd++) close(fd);
}

static void serve(const char *protocol, const char *port, const char *name) {
  int fd = bound(protocol, port);
  go_on_alone();
  for (;;) {
    struct sockaddr_in6 from;
    socklen_t size = sizeof from;
    char text[256];
    if (strcmp(protocol, "udp") == 0) {
      if (recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &size) < 0) continue;
      answer_to(text, sizeof text, name, &from);
      sendto(fd, text, strlen(text), 0, (struct sockaddr *)&from, size);
      continue;
    }
    int peer = accept(fd, (struct sockaddr *)&from, &size);
    if (peer < 0) continue;
    answer_to(text, sizeof text, name, &from);
    send(peer, text, strlen(text), 0);
    close(peer);
  }
}

static void echo(const char *port) {
  int fd = bound("tcp", port);
  go_on_alone();
  for (;;) {
    int peer = accept(fd, NULL, NULL);
    if (peer < 0 || fork() != 0) {
      if (peer >= 0) close(peer);
      continue;
    }
    char bytes[4096];
    for (ssize_t got; (got = recv(peer, bytes, sizeof bytes, 0)) > 0;)
      if (send(peer, bytes, got, 0) != got) break;
    exit(0);
  }
}

static void wait_for(int fd, short events, const char *what) {
  struct pollfd one = {.fd = fd, .events = events};
  int ready = poll(&one, 1, timeout_ms);
  if (ready == 0) errno = ETIMEDOUT;
  if (ready <= 0) fail(what);
}

static void ask(const char *protocol, const char *address, const char *port) {
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(port))};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
  int is_six = inet_pton(AF_INET6, address, &six.sin6_addr) == 1;
  if (!is_six && inet_pton(AF_INET, address, &four.sin_addr) != 1) fail("address");
  int fd = open_socket(is_six ? AF_INET6 : AF_INET, protocol);
  struct sockaddr *to = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
  struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd, to, is_six ? sizeof six : sizeof four) < 0) {
    if (errno == EINPROGRESS) errno = ETIMEDOUT;
    fail("connect");
  }
  if (strcmp(protocol, "udp") == 0 && send(fd, "?", 1, 0) < 0) fail("send");
  wait_for(fd, POLLIN, "answer");
  char text[256];
  ssize_t got = recv(fd, text, sizeof text - 1, 0);
  if (got < 0) fail("answer");
  text[got] = 0;
  printf("%s", got == 0 ? "closed\n" : text);
  exit(got == 0);
}

int main(int count, char **words) {
  if (count == 5 && strcmp(words[1], "serve") == 0) serve(words[2], words[3], words[4]);
  if (count == 3 && strcmp(words[1], "echo") == 0) echo(words[2]);
  if (count == 5 && strcmp(words[1], "ask") == 0) ask(words[2], words[3], words[4]);
  return 2;
}
