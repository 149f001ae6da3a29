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
#define LEAVE(name, answer) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), ANSWER(answer)
#define DENY(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), REFUSE

/* Only a server of files has a root of its own, and threads with a working directory each. */
#define CLONE_FS_ALONE 0x200u

/* Only a program that shares the host's network has sockets of IP. */
static void install_filter(void) {
    const unsigned unix_family = 1, inet_family = jail.host_network ? 2 : 1, inet6_family = jail.host_network ? 10 : 1;
    const unsigned writer_only = jail.writable ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM;
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
        LEAVE(chroot, server_only),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 4), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE_FS_ALONE, 1, 0), REFUSE, ANSWER(server_only),
        /* Files by numbers instead of paths: those that it does not see. */
        DENY(name_to_handle_at), DENY(open_by_handle_at),
        /* In its directory a machine has sockets and nothing that podnetd could stumble over. */
        LEAVE(mkdirat, writer_only), LEAVE(symlinkat, writer_only), LEAVE(linkat, writer_only),
        LEAVE(mknodat, writer_only),
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

/* Fails with EPERM if any of these bits is in an argument. */
#define REFUSE_BITS(number, argument, bits)                                                                  \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4), LOAD(args[argument]),                                 \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1), REFUSE, ANSWER(SECCOMP_RET_ALLOW)
#define SET_ID 06000u      /* set-user-id and set-group-id */
#define A_DEVICE 0020000u  /* in the type of a block or character device, and of no other that mknod makes */
#define A_WHITEOUT 4u      /* renameat2(2) leaves a device node */
#define NR_FCHMODAT2 452   /* Linux 6.6, with this number everywhere */

/*
 * What a server of a writable directory does on top: a call that makes it another user succeeds and
 * does nothing, so that all that its machine writes is its own user's. Files that lend that user's
 * rights to others, device nodes and attributes cannot be made.
 */
static void install_filter_of_writes(void) {
    struct sock_filter filter[] = {
        LOAD(nr),
        LEAVE(setresuid, SECCOMP_RET_ERRNO), LEAVE(setresgid, SECCOMP_RET_ERRNO),
        REFUSE_BITS(SYS_fchmod, 1, SET_ID), REFUSE_BITS(SYS_fchmodat, 2, SET_ID),
        REFUSE_BITS(NR_FCHMODAT2, 2, SET_ID), REFUSE_BITS(SYS_openat, 3, SET_ID),
        REFUSE_BITS(SYS_mkdirat, 2, SET_ID), REFUSE_BITS(SYS_mknodat, 2, SET_ID | A_DEVICE),
        REFUSE_BITS(SYS_renameat2, 4, A_WHITEOUT),
        /* Their modes are behind a pointer. */
        DENY(openat2),
#ifdef SYS_chmod
        DENY(chmod), DENY(creat), REFUSE_BITS(SYS_open, 2, SET_ID),
#endif
        DENY(setxattr), DENY(lsetxattr), DENY(fsetxattr),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), "install", "the filter of writes");
}
