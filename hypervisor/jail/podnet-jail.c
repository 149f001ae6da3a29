/*
 * Runs a program with its own UID, in its own namespaces, on a root filesystem that holds only the
 * paths in its arguments.
 *
 * podnet-jail --uid N --run DIR --report FD [--oom-score N] [--cgroup DIR]... [--read PATH]...
 *   [--device PATH]... [--group GID] [--network host] [--open-files N] [--tree DIR]
 *   [--served FD --listen NAME [--writable GID]] -- PROGRAM [ARGUMENT]...
 *
 * With --tree the program sees the file system of DIR, and none that is mounted below, as
 * /podnet-tree. It may read all files there, whosever they are (CAP_DAC_READ_SEARCH), if the
 * launcher may.
 *
 * With --served and --listen, in place of --run and --tree, the program sees the directory that
 * FD is as /podnet-tree and can write nowhere. In the place of FD it gets a socket that listens at
 * NAME in the launcher's directory. It keeps two capabilities, to make the directory its root and
 * to give up both: virtiofsd does so before it answers its machine. With --writable it can write to
 * the directory, as user N and group GID whatever user its machine names; it makes neither device
 * nodes nor files that give others these rights.
 *
 * The program inherits only the descriptors 0 to FD - 1. The launcher writes to FD: `pid N`, the
 * pid seen from the host, then `ready` right before it executes the program, or `error TEXT`; the
 * stream ends when the program runs, or has failed. When `ready` has no reader, the program is not
 * executed, so that no program runs without podnetd's knowledge. The launcher's first process
 * stays, only waits, and ends the way the program ended.
 *
 * Linux 5.12 or later (mount_setattr). Every failure ends the start; no part of the confinement is
 * optional.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define UMOUNT_DETACH 2
#define MANY 64
#define FAILED 125
#define TREE_PLACE "/podnet-tree"

enum kind { READ, DEVICE, RUN, TREE };

/* A mount to be: taken from the host's files before the root changes, put in place after. */
struct piece {
    const char *path;
    enum kind kind;
    int tree;
    int directory;
    char link[256];
};

static struct {
    unsigned uid, group, open_files;
    int has_group, has_tree, host_network, writable, report, served, cgroups, pieces, oom_score;
    const char *run, *listen_at, *cgroup[MANY];
    struct piece piece[MANY];
} jail = {.report = -1, .served = -1, .open_files = 4096};

static int is_server(void) { return jail.served >= 0; }

/* Paths that a dynamic program of a usual distribution needs, if they exist. */
static const char *const system_paths[] = {"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache",
                                           "/usr/share/qemu", "/usr/share/seabios",
                                           /* libc's malloc reads these before it asks for huge
                                            * pages: docs/decisions/0156. */
                                           "/sys/kernel/mm/transparent_hugepage/enabled",
                                           "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"};
static const char *const system_devices[] = {"/dev/null", "/dev/zero", "/dev/urandom"};

static _Noreturn void fail(const char *what, const char *of) {
    const char *why = errno ? strerror(errno) : "not usable";
    dprintf(jail.report >= 0 ? jail.report : 2, "error %s %s: %s\n", what, of, why);
    _exit(FAILED);
}

static void check(long result, const char *what, const char *of) {
    if (result < 0) fail(what, of);
}

static void add(const char *path, enum kind kind) {
    errno = 0;
    if (jail.pieces == MANY || path[0] != '/') fail("take path", path);
    jail.piece[jail.pieces++] = (struct piece){.path = path, .kind = kind, .tree = -1};
}

static unsigned number(const char *text, unsigned long most) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value > most) fail("read number", text);
    return (unsigned)value;
}

/*
 * Every word before `--` is an option followed by its value. Answers the program and its arguments.
 */
static char **parse(char **word) {
    for (word++; *word && strcmp(*word, "--"); word += 2) {
        const char *option = word[0], *value = word[1];
        errno = 0;
        if (!value) fail("read option", option);
        /* User 0 is what the jail is for keeping away. */
        if (!strcmp(option, "--uid")) jail.uid = number(value, 0xfffffffeu);
        else if (!strcmp(option, "--group")) jail.group = number(value, 0xfffffffeu), jail.has_group = 1;
        else if (!strcmp(option, "--report")) jail.report = (int)number(value, 1023);
        else if (!strcmp(option, "--oom-score")) jail.oom_score = (int)number(value, 1000);
        else if (!strcmp(option, "--open-files")) jail.open_files = number(value, 1u << 20);
        else if (!strcmp(option, "--network") && !strcmp(value, "host")) jail.host_network = 1;
        else if (!strcmp(option, "--run")) jail.run = value;
        else if (!strcmp(option, "--read")) add(value, READ);
        else if (!strcmp(option, "--device")) add(value, DEVICE);
        else if (!strcmp(option, "--tree") && !jail.has_tree) add(value, TREE), jail.has_tree = 1;
        else if (!strcmp(option, "--served")) jail.served = (int)number(value, 1023);
        else if (!strcmp(option, "--listen")) jail.listen_at = value;
        else if (!strcmp(option, "--writable")) jail.group = number(value, 0xfffffffeu), jail.writable = 1;
        else if (!strcmp(option, "--cgroup") && jail.cgroups < MANY) jail.cgroup[jail.cgroups++] = value;
        else fail("read option", option);
    }
    errno = 0;
    if (!*word || !word[1]) fail("find", "PROGRAM");
    if (!jail.uid || jail.report < 3) fail("find", "--uid and --report");
    if (is_server() ? jail.run || jail.has_tree || jail.host_network || !jail.listen_at || jail.served < 3 ||
                          jail.served >= jail.report
                    : !jail.run || jail.listen_at)
        fail("find", "--run, or --served and --listen");
    if (jail.writable && (!is_server() || !jail.group || jail.has_group)) fail("find", "--writable with --served");
    add(word[1], READ);
    if (!is_server()) add(jail.run, RUN);
    return word + 1;
}

static void join(const char *cgroup) {
    char path[4096];
    /*
     * Version 1 moves one thread, which this is, without the lock that cgroup.procs waits 10 ms for
     * (Linux 5.5).
     */
    snprintf(path, sizeof path, "%s/tasks", cgroup);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
        /*
         * Version 2 also requires that the opener of the file may write to the common ancestor of
         * both groups: at the top that is root's. CAP_SETUID and CAP_CHOWN are at hand for this
         * moment; the owner of the top does not change for good.
         */
        if (chown(path, 0, (gid_t)-1) == 0) setfsuid(0);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        setfsuid(geteuid());
    }
    check(fd, "open", path);
    check(write(fd, "0", 1), "join", cgroup);
    close(fd);
}

/* Takes a piece as a detached mount, or its link: /lib is one where /usr is merged. */
static void take(struct piece *piece, int optional) {
    struct stat is;
    if (piece->tree >= 0 || (optional && lstat(piece->path, &is) < 0)) return;
    if (optional && S_ISLNK(is.st_mode)) {
        ssize_t length = readlink(piece->path, piece->link, sizeof piece->link - 1);
        check(length, "read link", piece->path);
        return;
    }
    unsigned all = piece->kind == TREE ? 0 : AT_RECURSIVE;
    piece->tree = (int)syscall(SYS_open_tree, AT_FDCWD, piece->path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | all);
    check(piece->tree, "open", piece->path);
    check(fstat(piece->tree, &is), "look at", piece->path);
    piece->directory = S_ISDIR(is.st_mode);
    /* The plan names files; a directory put in a file's place would expose everything below it. */
    errno = EISDIR;
    if (!optional && piece->kind == READ && !S_ISREG(is.st_mode)) fail("show", piece->path);
    errno = ENOTDIR;
    if (piece->kind == TREE && !piece->directory) fail("show", piece->path);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID};
    if (piece->kind != DEVICE) attr.attr_set |= MOUNT_ATTR_NODEV;
    if (piece->kind != RUN && !(piece->kind == TREE && jail.writable)) attr.attr_set |= MOUNT_ATTR_RDONLY;
    if (piece->kind != READ) attr.attr_set |= MOUNT_ATTR_NOEXEC;
    check(syscall(SYS_mount_setattr, piece->tree, "", AT_EMPTY_PATH | all, &attr, sizeof attr), "protect", piece->path);
    if (piece->kind == TREE) piece->path = TREE_PLACE;
}

/*
 * Takes the directory of a server before the launcher leaves the host's mounts: a descriptor names
 * a mount of those. A socket takes its place.
 */
static void take_served(void) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", jail.served);
    add(path, TREE);
    struct piece *piece = &jail.piece[jail.pieces - 1];
    take(piece, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    errno = ENAMETOOLONG;
    if (strlen(jail.listen_at) >= sizeof name.sun_path) fail("listen at", jail.listen_at);
    strcpy(name.sun_path, jail.listen_at);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    check(fd, "make", "a socket");
    /* The machine is another user, and alone with podnetd in the directory. */
    umask(0);
    check(bind(fd, (struct sockaddr *)&name, sizeof name), "bind", jail.listen_at);
    check(listen(fd, 1), "listen at", jail.listen_at);
    check(dup2(fd, jail.served), "place", "the socket");
    close(fd);
}

static int filesystem(const char *type, const char *key, const char *value, unsigned attributes) {
    int context = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
    check(context, "open filesystem", type);
    check(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, value, 0), "set up", type);
    check(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "create", type);
    int made = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes);
    check(made, "mount", type);
    close(context);
    return made;
}

static void place(int tree, const char *path) {
    check(syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH), "mount", path);
}

/* Makes the directories above a path, on the new root. */
static void parents(const char *path) {
    char part[4096];
    if (strlen(path) >= sizeof part) errno = ENAMETOOLONG, fail("make", path);
    strcpy(part, path);
    for (char *at = strchr(part + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(part, 0755) < 0 && errno != EEXIST) fail("make", part);
        *at = '/';
    }
}

static void put(const struct piece *piece) {
    if (piece->link[0]) {
        parents(piece->path);
        check(symlink(piece->link, piece->path), "link", piece->path);
    }
    if (piece->tree < 0) return;
    parents(piece->path);
    /* It is there already below a directory that was put before. */
    int made = piece->directory ? mkdir(piece->path, 0755) : mknod(piece->path, S_IFREG | 0444, 0);
    if (made < 0 && errno != EEXIST && errno != EROFS) fail("make", piece->path);
    place(piece->tree, piece->path);
    close(piece->tree);
}

/*
 * The new root: a tmpfs that holds the pieces and a /proc of the program's own processes, itself
 * read-only.
 */
static void change_root(void) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY, .propagation = MS_PRIVATE};
    struct mount_attr apart = {.propagation = MS_PRIVATE};
    check(syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &apart, sizeof apart), "part from", "the host's mounts");
    struct piece fixed[MANY];
    int count = 0;
    for (size_t i = 0; i < sizeof system_paths / sizeof *system_paths; i++, count++) {
        fixed[count] = (struct piece){.path = system_paths[i], .kind = READ, .tree = -1};
        take(&fixed[count], 1);
    }
    for (size_t i = 0; i < sizeof system_devices / sizeof *system_devices; i++, count++) {
        fixed[count] = (struct piece){.path = system_devices[i], .kind = DEVICE, .tree = -1};
        take(&fixed[count], 0);
    }
    for (int i = 0; i < jail.pieces; i++) take(&jail.piece[i], 0);
    int root = filesystem("tmpfs", "mode", "755", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    /* virtiofsd also reads /proc/sys/fs/file-max at its start. */
    int proc = filesystem("proc", is_server() ? "hidepid" : "subset", is_server() ? "invisible" : "pid", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    /* Any directory serves: from here on it is the root. */
    place(root, is_server() ? "/proc" : jail.run);
    check(fchdir(root), "enter", "the new root");
    check(syscall(SYS_pivot_root, ".", "."), "change", "root");
    check(syscall(SYS_umount2, ".", UMOUNT_DETACH), "let go of", "the old root");
    check(chdir("/"), "enter", "/");
    for (int i = 0; i < count; i++) put(&fixed[i]);
    for (int i = 0; i < jail.pieces; i++) put(&jail.piece[i]);
    check(mkdir("/proc", 0555), "make", "/proc");
    place(proc, "/proc");
    check(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof attr), "protect", "/");
    const char *at = is_server() ? "/" : jail.run;
    check(chdir(at), "enter", at);
    close(root);
    close(proc);
}

static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear", "ambient capabilities");
    check(syscall(SYS_capset, &header, none), "drop", "capabilities");
}

/*
 * The capabilities that the program keeps: to read all files that can be seen, or to change its
 * root and to give up what it has.
 */
static unsigned kept_capabilities(void) {
    if (jail.has_tree) return 1u << CAP_DAC_READ_SEARCH;
    return is_server() ? 1u << CAP_SYS_CHROOT | 1u << CAP_SETPCAP : 0;
}

/*
 * Made inheritable while the bounding set has them, then ambient, which outlives the execution.
 */
static void keep_capabilities(unsigned wanted, int ambient) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2] = {{0}};
    check(syscall(SYS_capget, &header, now), "look at", "capabilities");
    unsigned kept = now[0].permitted & wanted;
    now[0].inheritable |= kept;
    struct __user_cap_data_struct only[2] = {{kept, kept, kept}};
    check(syscall(SYS_capset, &header, ambient ? only : now), "keep", "capabilities");
    for (unsigned long each = 0; ambient && each < 32; each++)
        if (kept & 1u << each) check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, each, 0, 0), "keep", "a capability");
}

static void drop_privileges(void) {
    const unsigned kept = kept_capabilities();
    if (kept) keep_capabilities(kept, 0);
    for (unsigned long each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; each++)
        check(prctl(PR_CAPBSET_DROP, each, 0, 0, 0), "drop", "the bounding set");
    check(setgroups((size_t)jail.has_group, &jail.group), "set", "groups");
    check(prctl(PR_SET_KEEPCAPS, kept != 0, 0, 0, 0), "keep", "capabilities");
    const gid_t group = jail.writable ? jail.group : jail.uid;
    check(setresgid(group, group, group), "become", "group");
    check(setresuid(jail.uid, jail.uid, jail.uid), "become", "user");
    if (kept) keep_capabilities(kept, 1);
    else drop_capabilities();
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set", "no_new_privs");
    errno = 0;
    if (getuid() != jail.uid || setuid(0) == 0) fail("become", "user");
}

#include "filter.h"

static void limit(int resource, const char *name, rlim_t most) {
    struct rlimit limits = {most, most}, now;
    if (getrlimit(resource, &now) == 0 && now.rlim_max < most) limits.rlim_cur = limits.rlim_max = now.rlim_max;
    check(setrlimit(resource, &limits), "limit", name);
}

/*
 * When the host runs out of memory, the kernel ends this machine before podnetd and the rest of the
 * host. Raising the score needs no privilege, but lowering does: a higher score that the host has
 * set stays.
 */
static void raise_oom_score(int wanted) {
    const char *path = "/proc/self/oom_score_adj";
    int fd = open(path, O_RDWR | O_CLOEXEC);
    check(fd, "open", path);
    char text[16] = "";
    check(read(fd, text, sizeof text - 1), "read", path);
    if (atoi(text) < wanted) {
        int length = snprintf(text, sizeof text, "%d", wanted);
        check(pwrite(fd, text, (size_t)length, 0), "write", path);
    }
    close(fd);
}

/* First process of its own pid namespace: with it ends every other one in there. */
static _Noreturn void confined(char **program) {
    /* QEMU's sockets are for podnetd, another user; all others cannot enter the directory. */
    umask(0);
    for (int i = 0; i < jail.cgroups; i++) join(jail.cgroup[i]);
    check(unshare(CLONE_NEWCGROUP), "make", "a cgroup namespace");
    check(sethostname("pod", 3), "set", "host name");
    change_root();
    limit(RLIMIT_CORE, "core files", 0);
    limit(RLIMIT_NOFILE, "open files", jail.open_files);
    check(fcntl(jail.report, F_SETFD, FD_CLOEXEC), "keep", "the report");
    check(syscall(SYS_close_range, jail.report + 1, ~0u, 0), "close", "descriptors");
    drop_privileges();
    install_filter();
    if (jail.writable) install_filter_of_writes();
    if (write(jail.report, "ready\n", 6) != 6) _exit(FAILED);
    execv(program[0], program);
    fail("execute", program[0]);
}

int main(int count, char **words) {
    char **program = parse(words);
    if (is_server()) take_served();
    raise_oom_score(jail.oom_score);
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD;
    if (!jail.host_network) flags |= CLONE_NEWNET;
    /* Without a reader the write fails, and with it the start. */
    signal(SIGPIPE, SIG_DFL);
    long child = syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    check(child, "make", "namespaces");
    if (child == 0) confined(program);
    dprintf(jail.report, "pid %ld\n", child);
    drop_capabilities();
    check(syscall(SYS_close_range, 0, ~0u, 0), "close", "descriptors");
    /* A search for the program by its arguments must not find the launcher. */
    memset(words[1], 0, (size_t)(words[count - 1] + strlen(words[count - 1]) - words[1]));
    int status;
    while (waitpid((pid_t)child, &status, 0) < 0)
        if (errno != EINTR) _exit(FAILED);
    if (WIFSIGNALED(status)) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
