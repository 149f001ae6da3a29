/*
 * What a broken-out QEMU could try: each word is an attempt, `name=argument`; a line says how it
 * went, `name=argument: ok` or the error. Built by test/peers/jail-probe.ts; run inside a jail and,
 * to see that it can succeed, outside.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int closed(int fd) {
    if (fd < 0) return -1;
    close(fd);
    return 0;
}

static int read_file(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    int got = fd < 0 ? -1 : (int)read(fd, &byte, 1);
    closed(fd);
    return got;
}

/*
 * Everything below a directory that can be seen, a path a line; what is in /proc/PID and /usr/lib
 * is left out.
 */
static int list(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return -1;
    for (struct dirent *each; (each = readdir(dir));) {
        char below[4096];
        struct stat is;
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", strcmp(path, "/") ? path : "", each->d_name);
        if (lstat(below, &is) < 0) continue;
        printf("seen %s\n", below);
        int deep = !strncmp(below, "/usr/lib", 8) || !strncmp(below, "/usr/share/", 11) || !strncmp(below, "/proc/", 6);
        if (S_ISDIR(is.st_mode) && !deep) list(below);
    }
    closedir(dir);
    return 0;
}

static int connect_unix(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (*path == '@') to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int result = connect(fd, (struct sockaddr *)&to, length);
    int why = errno;
    closed(fd);
    errno = why;
    return result;
}

static int connect_tcp(const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof to);
}

static int be_root(void) {
    return setuid(0) < 0 || getuid() != 0 ? -1 : 0;
}

/* As many processes as there can be, at most so many; they are ended again. */
static int bomb(int most) {
    static pid_t pids[4096];
    int alive = 0, why = 0;
    while (alive < most && alive < 4096) {
        pid_t pid = fork();
        if (pid == 0) pause(), _exit(0);
        if (pid < 0) break;
        pids[alive++] = pid;
    }
    why = errno;
    printf("forked %d\n", alive);
    for (int i = 0; i < alive; i++) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0);
    errno = why;
    return alive == most ? 0 : -1;
}

static int fill(size_t mib) {
    for (size_t i = 0; i < mib; i++) {
        char *page = malloc(1 << 20);
        if (!page) return -1;
        memset(page, 1, 1 << 20);
    }
    return 0;
}

static int attempt(const char *name, const char *argument) {
    int n = atoi(argument);
    if (!strcmp(name, "read")) return read_file(argument);
    if (!strcmp(name, "list")) return list(argument);
    if (!strcmp(name, "write")) return closed(open(argument, O_WRONLY | O_APPEND));
    if (!strcmp(name, "create")) return closed(open(argument, O_WRONLY | O_CREAT | O_EXCL, 0600));
    if (!strcmp(name, "unlink")) return unlink(argument);
    if (!strcmp(name, "chmod")) return chmod(argument, 0777);
    if (!strcmp(name, "mkdir")) return mkdir(argument, 0777);
    if (!strcmp(name, "symlink")) return symlink("/etc/passwd", argument);
    if (!strcmp(name, "mknod")) return mknod(argument, S_IFCHR | 0666, makedev(1, 1));
    if (!strcmp(name, "fifo")) return mknod(argument, S_IFIFO | 0666, 0);
    if (!strcmp(name, "unix")) return connect_unix(argument);
    if (!strcmp(name, "tcp")) return connect_tcp(argument);
    if (!strcmp(name, "netlink")) return closed(socket(AF_NETLINK, SOCK_RAW, 0));
    if (!strcmp(name, "packet")) return closed(socket(AF_PACKET, SOCK_RAW, 0));
    if (!strcmp(name, "vsock")) return closed(socket(AF_VSOCK, SOCK_STREAM, 0));
    if (!strcmp(name, "signal")) return kill(n, 0);
    if (!strcmp(name, "ptrace")) return ptrace(PTRACE_SEIZE, n, 0, 0);
    if (!strcmp(name, "mount")) return mount("none", argument, "tmpfs", 0, "");
    if (!strcmp(name, "root")) return be_root();
    if (!strcmp(name, "chroot")) return chroot(argument);
    if (!strcmp(name, "userns")) return unshare(CLONE_NEWUSER);
    if (!strcmp(name, "clone")) {
        long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) _exit(0);
        return pid < 0 ? -1 : 0;
    }
    if (!strcmp(name, "keyctl")) return (int)syscall(SYS_keyctl, 0, -3, 1) < 0 ? -1 : 0;
    if (!strcmp(name, "io_uring")) {
        char parameters[256] = {0};
        return closed((int)syscall(SYS_io_uring_setup, 1, parameters));
    }
    if (!strcmp(name, "handle")) {
        struct { struct file_handle handle; char bytes[128]; } of = {.handle.handle_bytes = sizeof of.bytes};
        int mount, root = open("/", O_RDONLY | O_DIRECTORY);
        if (name_to_handle_at(AT_FDCWD, argument, &of.handle, &mount, 0) < 0) return -1;
        return closed(open_by_handle_at(root, &of.handle, O_RDONLY));
    }
    if (!strcmp(name, "sleep")) return (int)sleep((unsigned)n);
    if (!strcmp(name, "bomb")) return bomb(n);
    if (!strcmp(name, "fill")) return fill((size_t)n);
    errno = EINVAL;
    return -1;
}

static void carry_out(const char *word, FILE *to) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *equals = strchr(word, '=');
    errno = 0;
    int result = attempt(name, equals ? equals + 1 : "");
    fprintf(to, "%s: %s\n", word, result < 0 ? strerror(errno) : "ok");
    fflush(to);
}

/* In tar's place it makes the attempts that the directory after -C has a list of, a line each. */
static int in_place_of_tar(char **words) {
    while (*words && strcmp(*words, "-C")) words++;
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/attempts", *words && words[1] ? words[1] : "");
    FILE *list = fopen(path, "r");
    if (!list) return perror(path), 1;
    while (fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = 0;
        carry_out(line, stderr);
    }
    fprintf(stderr, "user %u\n", getuid());
    return 3;
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *base = strrchr(words[0], '/');
    if (!strcmp(base ? base + 1 : words[0], "tar")) return in_place_of_tar(words);
    for (int i = 1; i < count; i++) carry_out(words[i], stdout);
    return 0;
}
