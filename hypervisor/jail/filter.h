/*
 * System calls no virtual machine needs and a broken one could use: they fail with EPERM. QEMU's
 * own sandbox comes on top; this one holds from its first instruction, and for calls which that one
 * (7.2) lets pass: keys, io_uring, sockets of other families (vsock knows no network namespaces),
 * files other than plain ones.
 */
#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "Neither x86_64 nor aarch64"
#endif

#define NEW_NAMESPACES 0x7e020000u /* every CLONE_NEW* that clone takes */
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE ANSWER(SECCOMP_RET_ERRNO | EPERM)
#define DENY(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), REFUSE

/* Only a server of files has a root of its own, and threads with a working directory each. */
#define CLONE_FS_ALONE 0x200u

/* Only a program that shares the host's network has sockets of IP. */
static void install_filter(void) {
    const unsigned unix_family = 1, inet_family = jail.host_network ? 2 : 1, inet6_family = jail.host_network ? 10 : 1;
    const unsigned server_only = is_server() ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM;
    struct sock_filter filter[] = {
        LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0), ANSWER(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        /* The x32 numbers are second names of the same calls. */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1), REFUSE,
        /* Other processes, and what the kernel lets every user do to itself. */
        DENY(ptrace), DENY(process_vm_readv), DENY(process_vm_writev), DENY(pidfd_getfd), DENY(kcmp),
        DENY(bpf), DENY(perf_event_open), DENY(userfaultfd), DENY(personality),
        DENY(keyctl), DENY(add_key), DENY(request_key),
        DENY(io_uring_setup), DENY(io_uring_enter), DENY(io_uring_register),
        /* Namespaces and mounts. */
        DENY(setns), DENY(pivot_root), DENY(mount), DENY(umount2), DENY(open_tree),
        DENY(move_mount), DENY(fsopen), DENY(fsmount), DENY(fspick), DENY(fsconfig), DENY(mount_setattr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_chroot, 0, 1), ANSWER(server_only),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 4), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE_FS_ALONE, 1, 0), REFUSE, ANSWER(server_only),
        /* Files by numbers instead of paths: those that it does not see. */
        DENY(name_to_handle_at), DENY(open_by_handle_at),
        /* In its directory a machine has sockets and nothing that podnetd could stumble over. */
        DENY(mkdirat), DENY(symlinkat), DENY(linkat), DENY(mknodat),
#ifdef SYS_mkdir
        DENY(mkdir), DENY(symlink), DENY(link), DENY(mknod),
#endif
        /* The C library then takes clone, whose flags can be looked at. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1), ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1), REFUSE, ANSWER(SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unix_family, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, inet_family, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, inet6_family, 1, 0), REFUSE,
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), "install", "the filter of system calls");
}
